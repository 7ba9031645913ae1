//! The holdings of a job and its use of them, as a row.

use std::collections::BTreeMap;

use serde::Serialize;

use super::time::{Clock, text};
use super::used::mebibytes;
use super::{JobView, UseView};
use crate::print::{Column, Tabular};
use crate::top::entry::JobCards;

/// The holdings of a job and its use of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobUseView {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: String,
    /// The person who submitted it.
    pub submitter: String,
    /// Its state.
    pub state: String,
    /// The constraint that it waits for, or the code of the reason of its state.
    pub why: String,
    /// Blocks that it holds.
    pub blocks: u64,
    /// Memory of cards that it holds.
    pub memory_mib: u64,
    /// Its use of that; absent when it holds nothing, or nobody leads.
    pub used: Option<UseView>,
    /// Mean share of time that its cards computed, for it or for others on them; absent when no card told.
    pub cards_busy: Option<f64>,
    /// Its cards.
    pub cards: Vec<CardUseView>,
    /// The time from which all workers of its newest attempt ran.
    pub started_at: Option<String>,
    /// The time at which it was over.
    pub ended_at: Option<String>,
}

/// A card that a job is on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardUseView {
    /// Its node.
    pub node: String,
    /// Its place on the node.
    pub index: u32,
    /// Share of time that it computed, for whomever; absent when its agent did not tell.
    pub busy: Option<f64>,
}

impl From<&JobView> for JobUseView {
    fn from(job: &JobView) -> Self {
        let used = JobCards::of(job);
        Self {
            id: job.id,
            name: job.spec.name.clone(),
            queue: job.spec.queue.clone(),
            submitter: job.submitter.clone(),
            state: job.stands(),
            why: job.why_short(),
            blocks: used.blocks,
            memory_mib: used.memory_mib,
            used: job.used.clone(),
            cards_busy: None,
            cards: used.cards.into_iter().map(|(node, index)| CardUseView { node, index, busy: None }).collect(),
            started_at: text(job.started_at.as_ref()),
            ended_at: text(job.ended_at.as_ref()),
        }
    }
}

impl JobUseView {
    /// Says how busy the cards are.
    pub fn tell_busy(&mut self, busy: &BTreeMap<(String, u32), f64>) {
        for card in &mut self.cards {
            card.busy = busy.get(&(card.node.clone(), card.index)).copied();
        }
        let known: Vec<f64> = self.cards.iter().filter_map(|card| card.busy).collect();
        self.cards_busy = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
    }
}

impl Tabular for JobUseView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("JOB"),
            Column::left("NAME"),
            Column::left("QUEUE"),
            Column::state("STATE"),
            Column::right("BLOCKS"),
            Column::right("MEMORY"),
            Column::right("CARDS"),
            Column::right("USE"),
            Column::right("IN USE"),
            Column::right("CPUS"),
            Column::right("RAN"),
            Column::left("REASON"),
            Column::wide("USER"),
            Column::wide("OPERATIONS/S"),
            Column::wide("MOVED"),
            Column::wide("GATE"),
            Column::wide("CARDS BUSY"),
            Column::wide("ON"),
        ];
        COLUMNS
    }

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let nothing = || "-".to_owned();
        let device = self.used.as_ref().and_then(UseView::of_device);
        let [operations, moved, gate] = device.unwrap_or_else(|| [nothing(), nothing(), nothing()]);
        let on: Vec<String> = self.cards.iter().map(|card| format!("{}/{}", card.node, card.index)).collect();
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.queue.clone(),
            self.state.clone(),
            self.blocks.to_string(),
            format!("{} MiB", self.memory_mib),
            self.cards.len().to_string(),
            self.used.as_ref().map_or_else(nothing, UseView::percent),
            self.used.as_ref().map_or_else(nothing, |used| format!("{} MiB", mebibytes(used.memory_used_bytes))),
            self.used.as_ref().map_or_else(nothing, |used| format!("{:.1}", used.processors)),
            clock.between(self.started_at.as_deref(), self.ended_at.as_deref()),
            self.why.clone(),
            self.submitter.clone(),
            operations,
            moved,
            gate,
            self.cards_busy.map_or_else(nothing, |busy| format!("{:.0} %", busy * 100.0)),
            on.join(","),
        ]
    }

    fn name(&self) -> String {
        format!("job/{}", self.id)
    }
}
