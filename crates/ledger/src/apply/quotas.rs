//! The bytes that the checkpoints of queues take, and their bounds.
//!
//! A queue with a bound keeps to it by giving up what its jobs keep in reserve, the oldest first: all but the newest of
//! each job, the newest that outlives the loss of a node, the one that is being copied so that it does, and what an
//! attempt has begun from and has saved nothing after. With these alone a queue may be above its bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, CheckpointKey};
use crate::ids::JobId;
use crate::job::Job;
use crate::state::{PersistentMap, State};
use crate::units::LogTime;

const MEBIBYTE: u64 = 1 << 20;

/// Bytes of the checkpoints of a queue's jobs, and of those of the queues below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointBytes {
    pub all: u64,
    /// As far as they can be given up.
    pub spare: u64,
}

impl CheckpointBytes {
    pub(super) fn of(job: &Job) -> Self {
        let spare = spare_of(job).fold(0_u64, |sum, checkpoint| sum.saturating_add(checkpoint.bytes()));
        Self { all: job.checkpoints.bytes(), spare }
    }

    fn changed(self, had: Self, has: Self) -> Self {
        let of = |sum: u64, had: u64, has: u64| sum.saturating_add(has).saturating_sub(had);
        Self { all: of(self.all, had.all, has.all), spare: of(self.spare, had.spare, has.spare) }
    }
}

/// The checkpoints of a job that can be given up. What its present attempt began from may be on its way to a node until
/// it has saved itself.
fn spare_of(job: &Job) -> impl Iterator<Item = &Arc<Checkpoint>> {
    let attempt = job.history.last().filter(|_| job.allocation.is_some());
    let saved = attempt.is_some_and(|attempt| {
        job.checkpoints.that_count().next().is_some_and(|newest| newest.key.attempt == attempt.number)
    });
    let from = attempt.filter(|_| !saved).and_then(|attempt| attempt.from);
    job.checkpoints.spare().filter(move |checkpoint| Some(checkpoint.key) != from)
}

impl State {
    /// Bytes of the checkpoints of the jobs of a queue, and of the queues below it; each is counted once, wherever it
    /// lies.
    #[must_use]
    pub fn checkpoint_bytes(&self, queue: &str) -> u64 {
        self.checkpoint_sums(queue).all
    }

    fn checkpoint_sums(&self, queue: &str) -> CheckpointBytes {
        self.checkpoint_bytes.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn count_checkpoint_bytes(&self) -> PersistentMap<String, CheckpointBytes> {
        let mut sums: BTreeMap<String, CheckpointBytes> = BTreeMap::new();
        for job in self.jobs_with_checkpoints() {
            for queue in self.queue_line(&job.spec.queue) {
                let sum = sums.entry(queue).or_default();
                *sum = sum.changed(CheckpointBytes::default(), CheckpointBytes::of(job));
            }
        }
        sums.into_iter().filter(|(_, sum)| *sum != CheckpointBytes::default()).collect()
    }

    /// The checkpoints of a job of a queue took so much, and take so much now.
    pub(super) fn charge_checkpoints(&mut self, queue: &str, had: CheckpointBytes, has: CheckpointBytes) {
        for name in self.queue_line(queue) {
            let sum = self.checkpoint_sums(&name).changed(had, has);
            if sum == CheckpointBytes::default() {
                self.checkpoint_bytes.remove_cow(&name);
            } else {
                self.checkpoint_bytes.insert_cow(name, sum);
            }
        }
    }

    /// Gives up what the queue of a job may not keep, and those above it.
    pub(super) fn keep_to_quota_of(&mut self, job: JobId) {
        if let Some(job) = self.jobs.get(&job).cloned() {
            self.keep_to_quotas(&job.spec.queue, Some(&job));
        }
    }

    /// Gives up what a queue and those above it may not keep. `changed`: whose checkpoints have changed; it is looked
    /// at alone where nobody else has anything to give up.
    pub(super) fn keep_to_quotas(&mut self, queue: &str, changed: Option<&Arc<Job>>) {
        for name in self.queue_line(queue) {
            let Some(most) = self.queues.get(&name).and_then(|queue| queue.settings.checkpoints) else { continue };
            let most = most.0.saturating_mul(MEBIBYTE);
            let sums = self.checkpoint_sums(&name);
            if sums.all <= most || sums.spare == 0 {
                continue;
            }
            let own = changed.filter(|job| CheckpointBytes::of(job).spare == sums.spare);
            let spare = own.map_or_else(|| self.spare_checkpoints(&name), |job| sorted(spare_keys(job)));
            for (_, job, key) in spare {
                if self.checkpoint_sums(&name).all <= most {
                    break;
                }
                self.with_job(job, |job| job.checkpoints.remove(key));
            }
        }
    }

    /// The checkpoints that the jobs of a queue and of those below it can give up, the oldest first.
    fn spare_checkpoints(&self, queue: &str) -> Vec<(LogTime, JobId, CheckpointKey)> {
        let is_below = |other: &&str| self.queue_line(other).iter().any(|name| name == queue);
        let below: BTreeSet<&str> = self.queues().map(|queue| queue.settings.name.as_str()).filter(is_below).collect();
        let jobs = self.jobs_with_checkpoints().filter(|job| below.contains(job.spec.queue.as_str()));
        sorted(jobs.flat_map(spare_keys))
    }
}

fn spare_keys(job: &Arc<Job>) -> impl Iterator<Item = (LogTime, JobId, CheckpointKey)> {
    spare_of(job).map(|checkpoint| (checkpoint.at, job.id, checkpoint.key))
}

fn sorted(spare: impl Iterator<Item = (LogTime, JobId, CheckpointKey)>) -> Vec<(LogTime, JobId, CheckpointKey)> {
    let mut spare: Vec<_> = spare.collect();
    spare.sort_unstable();
    spare
}
