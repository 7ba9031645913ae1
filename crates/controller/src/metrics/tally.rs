//! Sums over all jobs and workers, brought up to date by what has happened since Prometheus asked last: what asking
//! costs grows with what changes, not with how much there is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tessera_explain::WaitCode;
use tessera_ledger::{AllocationId, Event, IdleStep, Job, JobId, JobState, Revision, State, WorkerState};

/// The properties by which one job is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    queue: Arc<str>,
    state: JobState,
    /// The reason why a waiting job is not in line: a person, or its suspension for idleness, keeps it back.
    kept_back: Option<WaitCode>,
}

/// The sums over the jobs of a queue.
#[derive(Debug, Default)]
struct OfQueue {
    jobs: BTreeMap<JobState, u64>,
    kept_back: BTreeMap<WaitCode, u64>,
}

/// The sums up to a revision.
#[derive(Debug, Default)]
pub(super) struct Tally {
    revision: Option<Revision>,
    known: HashMap<JobId, Counted>,
    /// Queues that have jobs; a queue goes with its last one.
    queues: BTreeMap<Arc<str>, OfQueue>,
    /// Workers in doubt by allocation.
    in_doubt: BTreeMap<AllocationId, u64>,
}

impl Tally {
    /// Takes in what has happened up to this state.
    pub(super) fn follow(&mut self, state: &State) {
        let known = self.revision.filter(|revision| *revision <= state.revision());
        let entries = known.and_then(|revision| state.events_after(revision));
        let Some(entries) = entries else { return self.read(state) };
        let (mut jobs, mut allocations) = (BTreeSet::new(), BTreeSet::new());
        for event in entries.flat_map(|entry| entry.events.iter()) {
            match event {
                Event::Job { job, .. } | Event::JobRemoved { job } => {
                    jobs.insert(*job);
                }
                Event::Worker { allocation, .. } | Event::AllocationReleased { allocation, .. } => {
                    allocations.insert(*allocation);
                }
                _ => {}
            }
        }
        for id in jobs {
            let counted = state.job(id).map(|job| self.counted(job));
            self.put(id, counted);
        }
        for id in allocations {
            self.judge(id, state);
        }
        self.revision = Some(state.revision());
    }

    fn read(&mut self, state: &State) {
        *self = Self::default();
        for job in state.jobs_from(JobId::default()) {
            let counted = self.counted(job);
            self.put(job.id, Some(counted));
        }
        for allocation in state.allocations() {
            self.judge(allocation.id, state);
        }
        self.revision = Some(state.revision());
    }

    fn counted(&self, job: &Job) -> Counted {
        let waits = matches!(job.state, JobState::Pending | JobState::Suspended);
        let kept_back = match (waits, job.held, job.parked) {
            (true, true, _) => Some(WaitCode::Held),
            (true, false, true) if job.idle_step() == Some(IdleStep::Suspended) => Some(WaitCode::IdleSuspended),
            (true, false, true) => Some(WaitCode::SuspendedByUser),
            _ => None,
        };
        Counted { queue: self.name(&job.spec.queue), state: job.state, kept_back }
    }

    /// The name of a queue, in memory once.
    fn name(&self, queue: &str) -> Arc<str> {
        self.queues.get_key_value(queue).map_or_else(|| Arc::from(queue), |(known, _)| Arc::clone(known))
    }

    fn put(&mut self, id: JobId, counted: Option<Counted>) {
        let before = match &counted {
            Some(counted) => self.known.insert(id, counted.clone()),
            None => self.known.remove(&id),
        };
        if let Some(Counted { queue, state, kept_back }) = counted {
            let sums = self.queues.entry(queue).or_default();
            *sums.jobs.entry(state).or_default() += 1;
            if let Some(code) = kept_back {
                *sums.kept_back.entry(code).or_default() += 1;
            }
        }
        if let Some(before) = before {
            self.less(&before);
        }
    }

    fn less(&mut self, before: &Counted) {
        let Some(sums) = self.queues.get_mut(&before.queue) else { return };
        less(&mut sums.jobs, before.state);
        if let Some(code) = before.kept_back {
            less(&mut sums.kept_back, code);
        }
        if sums.jobs.is_empty() {
            self.queues.remove(&before.queue);
        }
    }

    /// Counts the workers of an allocation that are in doubt.
    fn judge(&mut self, id: AllocationId, state: &State) {
        let lost = state.allocation(id).map_or(0, |allocation| {
            allocation.workers.iter().filter(|worker| worker.state == WorkerState::Lost).count() as u64
        });
        if lost == 0 {
            self.in_doubt.remove(&id);
        } else {
            self.in_doubt.insert(id, lost);
        }
    }

    /// Jobs by queue and state.
    pub(super) fn jobs(&self) -> impl Iterator<Item = ((&str, JobState), u64)> {
        self.queues.iter().flat_map(|(queue, sums)| sums.jobs.iter().map(|(state, jobs)| ((&**queue, *state), *jobs)))
    }

    /// Jobs that a person keeps from waiting in line, by queue.
    pub(super) fn kept_back(&self) -> impl Iterator<Item = ((&str, WaitCode), u64)> {
        self.queues
            .iter()
            .flat_map(|(queue, sums)| sums.kept_back.iter().map(|(code, jobs)| ((&**queue, *code), *jobs)))
    }

    pub(super) fn workers_in_doubt(&self) -> u64 {
        self.in_doubt.values().sum()
    }
}

fn less<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K) {
    if let Some(sum) = sums.get_mut(&key) {
        *sum -= 1;
        if *sum == 0 {
            sums.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Ledger, job};
    use tessera_ledger::Command;

    fn shown(tally: &Tally) -> Vec<(String, u64)> {
        let jobs = tally.jobs().map(|((queue, state), jobs)| (format!("{queue} {}", state.name()), jobs));
        jobs.chain(tally.kept_back().map(|((queue, code), jobs)| (format!("{queue} {}", code.name()), jobs))).collect()
    }

    #[test]
    fn sums_that_follow_are_those_that_are_read_anew() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let mut following = Tally::default();
        let runs = ledger.submit(job(4));
        following.follow(&ledger.state);
        let waits = ledger.submit(job(4));
        ledger.apply(Command::HoldJob { job: waits });
        following.follow(&ledger.state);
        assert_eq!(shown(&following), [("default pending".to_owned(), 2), ("default HELD".to_owned(), 1)]);
        ledger.grant(runs, &[(node, 0, 4)]);
        ledger.apply(Command::CancelJob { job: waits });
        following.follow(&ledger.state);
        let mut anew = Tally::default();
        anew.follow(&ledger.state);
        assert_eq!(shown(&following), shown(&anew));
        assert_eq!(shown(&anew), [("default starting".to_owned(), 1), ("default cancelled".to_owned(), 1)]);
    }

    #[test]
    fn a_queue_is_forgotten_with_its_last_job() {
        let mut tally = Tally::default();
        for number in 0..3 {
            let (id, queue) = (JobId(number), tally.name("gone"));
            tally.put(id, Some(Counted { queue, state: JobState::Pending, kept_back: Some(WaitCode::Held) }));
        }
        assert_eq!(shown(&tally), [("gone pending".to_owned(), 3), ("gone HELD".to_owned(), 3)]);
        (0..3).for_each(|number| tally.put(JobId(number), None));
        assert!(tally.queues.is_empty(), "{tally:?}");
    }
}
