//! A card as it is shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::{BlocksView, CardBlocksView, words};
use crate::print::{Column, Detail, Page, Tabular};

/// A card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardView {
    /// `node/index`.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its place on the node.
    pub index: u32,
    /// Its kind.
    pub kind: String,
    /// Its maker.
    pub vendor: String,
    /// Its model.
    pub model: String,
    /// Its maker's identity.
    pub uuid: String,
    /// Whether it is usable.
    pub health: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// TFLOPS by precision: measured where that was done, else as declared.
    pub tflops: BTreeMap<String, f64>,
    /// Memory.
    pub memory_mib: u64,
    /// Memory granted.
    pub memory_used_mib: u64,
    /// Its blocks.
    pub blocks: BlocksView,
    /// Pool-wide number of its first block.
    pub first_block: u64,
    /// Slices in force.
    pub slices: u32,
    /// Strongest isolation that it can promise now.
    pub isolation: String,
    /// Blocks that it offers in percent of those that it is rated for; above 100 it is oversubscribed.
    pub oversubscription: u32,
    /// Why it has no block, and what to do; empty when it has some.
    pub lack_of_blocks: String,
    /// PCI address.
    pub pci_address: String,
    /// Newest reading, when the leader answered.
    pub sample: Option<SampleView>,
}

/// A reading of a card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleView {
    /// When it came.
    pub at: Option<String>,
    /// Share of time it computed.
    pub utilization: f64,
    /// Memory in use.
    pub memory_used_bytes: u64,
    /// Degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Watts.
    pub power_watts: Option<f64>,
    /// How its time is divided among the workers on it, when its agent says so.
    pub time_slicing: Option<TimeSlicingView>,
}

/// How the time of a card is divided: round by round, where workers take turns.
pub type TimeSlicingView = Shown<v1::TimeSlicing>;

impl TimeSlicingView {
    fn text(&self) -> String {
        let Some(round) = seconds(self.round.as_ref()) else {
            return match words::time_slicer(self.slicer).as_str() {
                "control_group" => "by the share and quota of control groups".to_owned(),
                "device" => "by the card or its driver".to_owned(),
                "none" => "by nobody; workers compete".to_owned(),
                other => other.to_owned(),
            };
        };
        let taken = match self.workers {
            _ if !self.competing.is_empty() => format!("not now: {}", self.competing),
            workers @ 0..=1 => format!("{workers} of them"),
            workers => format!("{workers} of them, {:.1} switches a round", self.switches_per_round),
        };
        format!("workers stand still in turns, rounds of {round} s; {taken}")
    }
}

impl From<v1::Card> for CardView {
    fn from(card: v1::Card) -> Self {
        let of = card.description.unwrap_or_default();
        let at = text(card.sampled_at.as_ref());
        let ratings = of.rated.iter().chain(&of.measured);
        Self {
            name: format!("{}/{}", card.node_name, of.index),
            node: card.node_name,
            index: of.index,
            kind: words::kind(of.kind),
            tflops: ratings.map(|rating| (words::precision(rating.precision), tflops(rating.milli_tflops))).collect(),
            vendor: of.vendor,
            model: of.model,
            uuid: of.uuid,
            health: words::health(of.health),
            simulated: of.simulated,
            memory_mib: of.memory_mib,
            memory_used_mib: card.memory_used_mib,
            blocks: card.block_counts.unwrap_or_default().into(),
            first_block: card.first_block_number,
            slices: card.slices,
            isolation: words::isolation(card.isolation),
            oversubscription: card.oversubscription_percent,
            lack_of_blocks: card.lack_of_blocks,
            pci_address: of.pci_address,
            sample: card.sample.map(|sample| SampleView {
                at,
                utilization: sample.utilization_ratio,
                memory_used_bytes: sample.memory_used_bytes,
                temperature_celsius: sample.temperature_celsius,
                power_watts: sample.power_watts,
                time_slicing: sample.time_slicing.map(Into::into),
            }),
        }
    }
}

impl CardView {
    /// First and last block number, as `1-18`; `-` for a card without blocks.
    fn numbers(&self) -> String {
        match self.blocks.total {
            0 => "-".to_owned(),
            total => format!("{}-{}", self.first_block, self.first_block + total - 1),
        }
    }
}

impl Tabular for CardView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("CARD"),
            Column::left("KIND"),
            Column::left("MODEL"),
            Column::state("HEALTH"),
            Column::right("BLOCKS"),
            Column::right("NUMBERS"),
            Column::right("FREE"),
            Column::right("RUNNING"),
            Column::right("MEMORY"),
            Column::right("BUSY"),
            Column::wide("VENDOR"),
            Column::wide("SLICES"),
            Column::wide("ISOLATION"),
            Column::wide("OFFERED"),
            Column::wide("UUID"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        let busy = self.sample.as_ref().map_or_else(|| "-".to_owned(), |of| format!("{:.0} %", of.utilization * 100.0));
        vec![
            self.name.clone(),
            self.kind.clone(),
            self.model.clone(),
            self.health.clone(),
            self.blocks.total.to_string(),
            self.numbers(),
            self.blocks.free.to_string(),
            self.blocks.running.to_string(),
            format!("{}/{} MiB", self.memory_used_mib, self.memory_mib),
            busy,
            self.vendor.clone(),
            self.slices.to_string(),
            self.isolation.clone(),
            format!("{} %", self.oversubscription),
            self.uuid.clone(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// A card with its blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardDetailView {
    /// The card.
    #[serde(flatten)]
    pub card: CardView,
    /// Its blocks.
    pub runs: CardBlocksView,
}

impl From<v1::GetCardResponse> for CardDetailView {
    fn from(response: v1::GetCardResponse) -> Self {
        Self { card: response.card.unwrap_or_default().into(), runs: response.blocks.unwrap_or_default().into() }
    }
}

impl Detail for CardDetailView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let card = &self.card;
        out.title(format!("card {}", card.name));
        out.line("kind", &card.kind);
        out.line("model", format!("{} {}", card.vendor, card.model));
        out.line("uuid", &card.uuid);
        out.state("health", &card.health);
        out.line("simulated", if card.simulated { "yes" } else { "no" });
        for (precision, tflops) in &card.tflops {
            out.line(precision, format!("{tflops} TFLOPS"));
        }
        out.line("memory", format!("{} of {} MiB granted", card.memory_used_mib, card.memory_mib));
        out.line("blocks", card.numbers());
        if !card.lack_of_blocks.is_empty() {
            out.line("why no blocks", &card.lack_of_blocks);
        }
        out.line("isolation", &card.isolation);
        if card.oversubscription > 100 {
            out.line("oversubscribed", format!("{} % of what it is rated for", card.oversubscription));
        }
        if let Some(sample) = &card.sample {
            out.line("busy", format!("{:.0} %", sample.utilization * 100.0));
            if let Some(slicing) = &sample.time_slicing {
                out.line("time slicing", slicing.text());
            }
        }
        out.table(
            &["BLOCKS", "STATE", "JOB", "PRIO", "ALLOCATION", "NEXT JOB"],
            self.runs.runs.iter().map(|run| {
                let owner = run.owner.as_ref();
                let say = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    format!("{}-{}", run.first_block, run.last_block),
                    run.state.clone(),
                    say(owner.map(|owner| owner.job_id.to_string())),
                    say(owner.map(|owner| owner.priority.to_string())),
                    say(owner.map(|owner| owner.allocation_id.to_string())),
                    say(run.next.as_ref().map(|owner| owner.job_id.to_string())),
                ]
            }),
        );
    }

    fn name(&self) -> String {
        self.card.name.clone()
    }
}
