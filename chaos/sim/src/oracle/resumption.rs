//! Work goes on from what was saved, and is not thrown away by whoever stops it on purpose.
//!
//! * A program that is started with a checkpoint begins with just what its rank had saved in it; one that is started
//!   without begins from the beginning. Nothing that agents bring is believed for its name.
//! * A job that was stopped without anybody's need of its blocks (to grow, for being idle, outside of its time windows)
//!   goes on from no earlier than the newest checkpoint that it had then, as long as that is there.
//!
//! Which of several is to be taken is judged by [`checkpoints`](super::checkpoints).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_agent::worker::WorkerId;
use tessera_ledger::{
    Allocation, AllocationPhase, Checkpoint, CheckpointKey, Command, Event, JobId, JobState, Observation, Rank, Reason,
    State,
};

use super::wishes::granted;
use super::{Oracle, View};
use crate::journal::Applied;
use crate::shelf::computed_in;
use crate::world::Computation;

#[derive(Default)]
pub struct Resumption {
    /// For how long the work had computed that each part holds, as its agent told.
    saved: BTreeMap<(JobId, CheckpointKey, Rank), Duration>,
    /// Newest checkpoint of each job that was stopped on purpose and was granted nothing since.
    stopped: BTreeMap<JobId, CheckpointKey>,
    judged: BTreeSet<WorkerId>,
}

/// Returns whether a job is stopped by somebody who needs none of its blocks for another one.
const fn is_on_purpose(reason: &Reason) -> bool {
    matches!(reason, Reason::Growing | Reason::IdleSuspended | Reason::OutsideWindow)
}

fn is_there(state: &State, checkpoint: &Checkpoint) -> bool {
    checkpoint.parts.iter().all(|part| part.nodes.iter().any(|node| state.is_ready(*node)))
}

impl Resumption {
    fn note_saved(&mut self, entry: &Applied) {
        for request in &entry.requests {
            let Command::ReportWorkers { reports, .. } = &request.command else { continue };
            for report in reports {
                let Observation::Saved(part) = &report.observation else { continue };
                let owner = entry.before.allocation(report.worker.allocation);
                let Some(owner) = owner.filter(|owner| owner.epoch == report.worker.epoch) else { continue };
                let key = CheckpointKey { attempt: owner.attempt, sequence: part.sequence };
                self.saved.entry((owner.job, key, report.worker.rank)).or_insert_with(|| computed_in(part));
            }
        }
    }

    fn note_stopped(&mut self, entry: &Applied) {
        for event in entry.events.iter() {
            let Event::Job { job, to: JobState::Suspending, reason, .. } = event else { continue };
            let newest = entry.before.job(*job).and_then(|job| job.checkpoints.that_count().next());
            if let Some(newest) = newest.filter(|_| is_on_purpose(reason)) {
                self.stopped.insert(*job, newest.key);
            }
        }
    }

    /// Explains why a job that was stopped on purpose should have resumed from a newer checkpoint.
    fn thrown_away(&mut self, entry: &Applied, allocation: &Allocation) -> Option<String> {
        let had = self.stopped.remove(&allocation.job)?;
        let checkpoint = entry.before.job(allocation.job)?.checkpoints.get(had)?;
        let could = checkpoint.counts()
            && checkpoint.suits(allocation.workers.len())
            && is_there(&entry.before, checkpoint)
            && is_there(&entry.after, checkpoint);
        (could && allocation.from < Some(had)).then(|| {
            let (job, from) = (allocation.job, allocation.from);
            format!("job {job} was stopped on purpose, had saved {had:?}, and goes on from {from:?}")
        })
    }

    /// The computed time that a program has to begin with; `None`: the ledger has gone on since, and nobody can say.
    fn expected(&self, state: &State, computation: &Computation) -> Option<Duration> {
        let worker = computation.worker;
        let allocation = state.allocation(worker.allocation).filter(|own| own.epoch == worker.epoch)?;
        let Some(from) = allocation.from else { return Some(Duration::ZERO) };
        // A worker beyond those that saved begins with an empty folder.
        Some(self.saved.get(&(allocation.job, from, worker.rank)).copied().unwrap_or_default())
    }
}

impl Oracle for Resumption {
    fn name(&self) -> &'static str {
        "work goes on from what was saved"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        self.note_saved(entry);
        for allocation in granted(entry) {
            // The target of a move is given its checkpoint later than its blocks.
            let begun = matches!(allocation.phase, AllocationPhase::Active | AllocationPhase::Waiting);
            if begun && let Some(what) = self.thrown_away(entry, allocation) {
                return Err(format!("revision {}: {what}", entry.at.revision));
            }
        }
        self.note_stopped(entry);
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(newest) = view.newest() else { return Ok(()) };
        for computation in view.world.live() {
            if !self.judged.insert(computation.worker) {
                continue;
            }
            let expected = self.expected(newest, &computation);
            if expected.is_some_and(|expected| expected != computation.computed) {
                return Err(format!(
                    "worker {} of job {} begins with {:?}, and {expected:?} was saved of it",
                    computation.worker, computation.job, computation.computed
                ));
            }
        }
        Ok(())
    }
}
