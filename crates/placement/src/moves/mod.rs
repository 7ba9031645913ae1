//! Moves: which running jobs go elsewhere so that one that waits fits, and what that costs.
//!
//! Whoever orders moves says how many there may be and who must be left in peace ([`CompactionOrder`]); [`Rules`] say
//! of each job whether it may be moved. Which of those that may would be enough together is judged by numbers, node by
//! node (`ways`); the cheapest are tried out on the index (`room`).

mod room;
mod ways;

use std::collections::BTreeSet;
use std::time::Duration;

use tessera_ledger::{CardId, Job, JobId, LogTime, PlanPart, PlannedWorker, Reason, Slice};

use crate::loss::Loss;

/// The bounds of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionOrder {
    /// Most moves.
    pub moves: u32,
    /// True if jobs may be moved that lose work by it.
    pub losing_work: bool,
    /// True if jobs may be moved that are not preemptible.
    pub not_preemptible: bool,
    /// A job that was moved is not moved again so soon.
    pub not_again_within: Duration,
}

impl CompactionOrder {
    /// Moves that nobody asked for: few at a time, and each job once an hour.
    #[must_use]
    pub fn automatic() -> Self {
        Self { moves: 8, not_again_within: Duration::from_secs(3600), ..Self::default() }
    }
}

impl Default for CompactionOrder {
    fn default() -> Self {
        Self { moves: 16, losing_work: false, not_preemptible: false, not_again_within: Duration::ZERO }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    pub job: JobId,
    /// The slices that it leaves, in order of rank.
    pub from: Vec<Slice>,
    /// Its workers at their new places, in order of rank.
    pub workers: Vec<PlannedWorker>,
    /// Cards that are renumbered before.
    pub renumbered: Vec<CardId>,
    pub loss: Loss,
    /// The waiting job that it makes room for; `None` when it only brings free room together.
    pub makes_room_for: Option<JobId>,
}

impl PlannedMove {
    /// The parts of a plan that carry it out.
    #[must_use]
    pub fn parts(&self) -> Vec<PlanPart> {
        let renumbered = self.renumbered.iter().map(|card| PlanPart::Renumber { card: *card });
        renumbered.chain([PlanPart::Move { job: self.job, workers: self.workers.clone() }]).collect()
    }

    /// The cards that it leaves and goes to.
    pub fn cards(&self) -> impl Iterator<Item = CardId> {
        let to = self.workers.iter().flat_map(|worker| &worker.slices);
        self.from.iter().chain(to).map(|slice| slice.card)
    }
}

/// The rules that decide which jobs may be moved.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub order: &'a CompactionOrder,
    pub now: LogTime,
    /// Jobs that stay where they are.
    pub stay: &'a BTreeSet<JobId>,
}

impl Rules<'_> {
    /// Returns whether a job may be moved at all, wherever it is.
    #[must_use]
    pub fn allow(&self, job: &Job) -> bool {
        let Self { order, now, stay } = *self;
        let moved_lately = job.history.iter().any(|attempt| {
            attempt.reason == Some(Reason::Moving)
                && attempt.ended_at.is_some_and(|ended| now.since(ended) < order.not_again_within)
        });
        !stay.contains(&job.id)
            && !moved_lately
            && (order.losing_work || !loses_work(job))
            && (order.not_preemptible || job.is_preemptible())
    }
}

/// Returns whether a job loses work when it is moved.
fn loses_work(job: &Job) -> bool {
    !job.spec.is_saved()
}

/// Returns whether the places of a job depend on its other workers or on other jobs.
#[must_use]
pub fn has_company(job: &Job) -> bool {
    let affinity = &job.spec.affinity;
    !affinity.together.is_empty() || !affinity.spread.is_empty() || !affinity.avoid.is_empty()
}
