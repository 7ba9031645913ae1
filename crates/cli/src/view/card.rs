//! A card as it is shown.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::used::share;
use super::{BlocksView, CardBlocksView, words};
use crate::print::{Column, Detail, Page, Tabular};

/// A card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardView {
    /// `node/index`.
    pub name: String,
    /// The card as the ledger has it.
    #[serde(flatten)]
    pub card: Shown<v1::Card>,
    /// TFLOPS by precision: measured where that was done, else as declared.
    pub tflops: BTreeMap<String, f64>,
    /// Newest reading, when the leader answered.
    pub sample: Option<SampleView>,
}

/// A reading of a card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleView {
    /// The time at which the reading arrived.
    pub at: Option<String>,
    /// The reading.
    #[serde(flatten)]
    pub read: Shown<v1::CardSample>,
}

/// Share of time that the card computed; `None`: that cannot be read.
pub fn busy_share(sample: &v1::CardSample) -> Option<f64> {
    (!sample.unread).then_some(sample.utilization_ratio)
}

/// The division of the time of a card: round by round, where workers take turns.
fn slicing_text(of: &v1::TimeSlicing) -> String {
    let Some(round) = seconds(of.round.as_ref()) else {
        return match words::time_slicer(of.slicer).as_str() {
            "control_group" => "by the share and quota of control groups".to_owned(),
            "device" => "by the card or its driver".to_owned(),
            "none" => "by nobody; workers compete".to_owned(),
            other => other.to_owned(),
        };
    };
    let taken = match of.workers {
        _ if !of.competing.is_empty() => format!("not now: {}", of.competing),
        workers @ 0..=1 => format!("{workers} of them"),
        workers => format!("{workers} of them, {:.1} switches a round", of.switches_per_round),
    };
    format!("workers stand still in turns, rounds of {round} s; {taken}")
}

impl From<v1::Card> for CardView {
    fn from(card: v1::Card) -> Self {
        let of = card.description.clone().unwrap_or_default();
        let at = text(card.sampled_at.as_ref());
        let ratings = of.rated.iter().chain(&of.measured);
        Self {
            name: format!("{}/{}", card.node_name, of.index),
            tflops: ratings.map(|rating| (words::precision(rating.precision), tflops(rating.milli_tflops))).collect(),
            sample: card.sample.clone().map(|sample| SampleView { at, read: sample.into() }),
            card: card.into(),
        }
    }
}

impl Deref for CardView {
    type Target = v1::Card;

    fn deref(&self) -> &v1::Card {
        &self.card
    }
}

impl CardView {
    /// The description that its agent declared last.
    #[must_use]
    pub fn of(&self) -> v1::CardDescription {
        self.description.clone().unwrap_or_default()
    }

    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> BlocksView {
        self.block_counts.unwrap_or_default().into()
    }

    /// First and last block number, as `1-18`; `-` for a card without blocks.
    fn numbers(&self) -> String {
        match self.blocks().total() {
            0 => "-".to_owned(),
            total => format!("{}-{}", self.first_block_number, self.first_block_number + total - 1),
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
        let busy = self.sample.as_ref().and_then(|of| busy_share(&of.read)).map_or_else(|| "-".to_owned(), share);
        let (of, blocks) = (self.of(), self.blocks());
        vec![
            self.name.clone(),
            words::kind(of.kind),
            of.model,
            words::health(of.health),
            blocks.total().to_string(),
            self.numbers(),
            blocks.free.to_string(),
            blocks.running.to_string(),
            format!("{}/{} MiB", self.memory_used_mib, of.memory_mib),
            busy,
            of.vendor,
            self.slices.to_string(),
            words::isolation(self.isolation),
            format!("{} %", self.oversubscription_percent),
            of.uuid,
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
        let of = card.of();
        out.title(format!("card {}", card.name));
        out.line("kind", words::kind(of.kind));
        out.line("model", format!("{} {}", of.vendor, of.model));
        out.line("uuid", &of.uuid);
        out.state("health", &words::health(of.health));
        out.line("simulated", if of.simulated { "yes" } else { "no" });
        for (precision, tflops) in &card.tflops {
            out.line(precision, format!("{tflops} TFLOPS"));
        }
        out.line("memory", format!("{} of {} MiB granted", card.memory_used_mib, of.memory_mib));
        out.line("blocks", card.numbers());
        if !card.lack_of_blocks.is_empty() {
            out.line("why no blocks", &card.lack_of_blocks);
        }
        out.line("isolation", words::isolation(card.isolation));
        if card.oversubscription_percent > 100 {
            out.line("oversubscribed", format!("{} % of what it is rated for", card.oversubscription_percent));
        }
        if let Some(sample) = &card.sample {
            if let Some(busy) = busy_share(&sample.read) {
                out.line("busy", share(busy));
            }
            if let Some(slicing) = &sample.read.time_slicing {
                out.line("time slicing", slicing_text(slicing));
            }
        }
        out.table(
            &["BLOCKS", "STATE", "JOB", "PRIO", "ALLOCATION", "NEXT JOB"],
            self.runs.runs.iter().map(|run| {
                let owner = run.owner.as_ref();
                let say = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    format!("{}-{}", run.first_block_number, run.last_block_number),
                    words::block_state(run.state),
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
