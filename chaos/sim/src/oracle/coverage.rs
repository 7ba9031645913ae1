//! Which transitions of the ledger a run has seen. Not a judge: what was never hit was never tested.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tessera_ledger::{AllocationId, Event, JobState, Rank, Revision, WorkerState};

use super::View;
use crate::story::Story;

/// How often each transition was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Transitions, named `job pending -> starting`.
    pub hits: BTreeMap<String, u64>,
}

/// Follows the newest state.
#[derive(Default)]
pub struct Follower {
    /// What was seen.
    pub coverage: Coverage,
    seen: Revision,
    workers: BTreeMap<(AllocationId, Rank), WorkerState>,
}

fn transition(what: &str, from: &str, to: &str) -> String {
    format!("{what} {from} -> {to}")
}

/// Every legal transition of a job: those of the table, and the submission.
pub fn legal() -> BTreeSet<String> {
    let submitted = transition("job", "submitted", JobState::Pending.name());
    let table = JobState::ALL
        .into_iter()
        .flat_map(|from| from.successors().iter().map(move |to| transition("job", from.name(), to.name())));
    table.chain([submitted]).collect()
}

/// An event in a line of the story; `None` for those that say nothing to a reader.
fn describe(event: &Event) -> Option<String> {
    match event {
        Event::Job { job, from, to, reason, .. } => {
            let from = from.map_or("submitted", JobState::name);
            Some(format!("job {job} {from} -> {}: {}", to.name(), reason.code()))
        }
        Event::Worker { job, allocation, rank, node, state } => {
            Some(format!("job {job} worker {}-*-{} on node {node}: {state:?}", allocation.0, rank.0))
        }
        Event::AllocationReleased { job, allocation } => Some(format!("job {job} grant {} given back", allocation.0)),
        Event::Node { node, state, eligibility } => Some(format!("node {node}: {state:?}, {eligibility:?}")),
        Event::Move { id, job, in_progress } => {
            Some(format!("job {job} move {} {}", id.0, if *in_progress { "goes on" } else { "ended" }))
        }
        Event::Quarantined { node, job, .. } => Some(format!("job {job} quarantined on node {node}")),
        _ => None,
    }
}

impl Follower {
    /// Takes note of what happened since it looked last.
    pub fn follow(&mut self, view: &View<'_>, story: &Story) {
        let Some(newest) = view.newest().filter(|state| state.revision() > self.seen) else { return };
        let mut seen = Vec::new();
        match newest.events_after(self.seen) {
            Some(entries) => {
                for (revision, event) in
                    entries.flat_map(|entry| entry.events.iter().map(|event| (entry.revision, event)))
                {
                    if let Some(line) = describe(event) {
                        story.tell("==", format!("{:<4} {line}", revision.0));
                    }
                    seen.extend(self.name(event));
                }
            }
            None => seen.push("events were compacted before they were seen".to_owned()),
        }
        for name in seen {
            *self.coverage.hits.entry(name).or_default() += 1;
        }
        self.seen = newest.revision();
    }

    fn name(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Job { from, to, .. } => {
                let from = from.map_or("submitted", JobState::name);
                (from != to.name()).then(|| transition("job", from, to.name()))
            }
            Event::Worker { allocation, rank, state, .. } => {
                let before = self.workers.insert((*allocation, *rank), *state);
                let before = before.map_or("granted".to_owned(), |before| format!("{before:?}"));
                Some(transition("worker", &before, &format!("{state:?}")))
            }
            Event::Node { state, eligibility, .. } => Some(format!("node {state:?}, {eligibility:?}")),
            Event::Move { in_progress, .. } => Some(format!("move {}", if *in_progress { "goes on" } else { "ended" })),
            _ => None,
        }
    }
}
