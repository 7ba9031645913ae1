//! Every attempt ends for a reason, and the reason is true: a job is tried again only when something really happened to
//! the attempt before, and counts as completed only when its programs really came to their end.
//!
//! What the ledger committed as the reason of an attempt's end is held against what was seen on the machines. Where an
//! order of the pool ended it (a suspension, a preemption, a drain, a move, a cancellation) that order is the reason;
//! everything else must have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_agent::supervisor::status::{Cause, Exit};
use tessera_agent::worker::WorkerId;
use tessera_ledger::{AllocationId, Attempt, Event, Job, JobId, JobState, NodeId, NodeState, Rank, Reason, Revision};

use super::{Oracle, View};
use crate::journal::Applied;
use crate::world::Fate;

/// Longest delay from an event on a machine to its observation here: the time between two looks, and more.
const LATE: Duration = Duration::from_millis(200);

/// The shortest time that agents go on without a lease in any scenario.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Attempts {
    /// Jobs that changed since they were judged.
    changed: BTreeSet<JobId>,
    /// Revision at which each node was last lost.
    lost: BTreeMap<NodeId, Revision>,
    /// Revision at which each job was last told to give its blocks back.
    suspended: BTreeMap<JobId, Revision>,
    /// Time at which each allocation was first seen.
    granted: BTreeMap<AllocationId, Duration>,
    /// The last attempt of each job that was judged.
    judged: BTreeMap<JobId, u32>,
}

impl Attempts {
    /// Explains why the reason of an attempt that is over is untrue; `None` when it is true.
    fn untrue(&self, view: &View<'_>, job: &Job, attempt: &Attempt, reason: &Reason) -> Option<&'static str> {
        let workers = (0u32..).zip(attempt.nodes.iter()).map(|(rank, node)| {
            let worker = WorkerId { allocation: attempt.allocation, epoch: attempt.epoch, rank: Rank(rank) };
            (view.world.fate(worker), *node)
        });
        let workers: Vec<(Fate, NodeId)> = workers.collect();
        let any = |holds: &dyn Fn(&Fate) -> bool| workers.iter().any(|(fate, _)| holds(fate));
        let since_granted = |at: Option<&Revision>| at.is_some_and(|at| at.0 >= attempt.epoch.0);
        let Some(granted) = self.granted.get(&attempt.allocation).copied() else {
            return Some("nobody was ever seen to grant it anything");
        };
        let (holds, otherwise) = match reason {
            Reason::Exited => (
                workers.iter().all(|(fate, _)| fate.exit == Some(Exit::Code(0))),
                "not every program of it came to a good end",
            ),
            Reason::NonZeroExit { code } => {
                (any(&|fate| fate.exit == Some(Exit::Code(*code))), "no program of it ended with that code")
            }
            Reason::Signalled { signal } => {
                (any(&|fate| fate.exit == Some(Exit::Signal(*signal))), "no program of it was killed by that signal")
            }
            Reason::NodeLost { node } => {
                let lost = since_granted(self.lost.get(node));
                // Its agent gives up what it could not begin before the lease ended.
                let too_late = any(&|fate| !fate.began) && view.now.saturating_sub(granted) >= SHORTEST_LEASE;
                let expired = too_late || any(&|fate| fate.cause == Some(Cause::LeaseExpired) && !fate.by_itself);
                (lost || expired, "the node was not lost, and no lease of it ended")
            }
            Reason::WorkerVanished => {
                let restarted = |node: &NodeId| {
                    let name = view.newest().and_then(|state| state.node(*node)).map(|node| &node.description.name);
                    name.and_then(|name| view.world.restarted_at(name)).is_some_and(|at| at + LATE >= granted)
                };
                let never_begun = workers.iter().any(|(fate, node)| !fate.began && restarted(node));
                (never_begun || any(&|fate| fate.torn_away), "nothing happened to its programs, machines and agents")
            }
            Reason::TimeLimit => {
                let limit = job.spec.time_limit.unwrap_or(Duration::MAX);
                let noticed = any(&|fate| fate.cause == Some(Cause::TimeLimit));
                (noticed || view.now.saturating_sub(granted) >= limit, "it did not run for so long")
            }
            Reason::Queued | Reason::Held => {
                let given_up = !any(&|fate| fate.began);
                (given_up || since_granted(self.suspended.get(&job.id)), "it had begun, and nobody suspended it")
            }
            Reason::StartFailed { .. } | Reason::CheckpointDamaged { .. } => {
                let ids = (0u32..).zip(attempt.nodes.iter()).map(|(rank, _)| Rank(rank));
                let mut workers =
                    ids.map(|rank| WorkerId { allocation: attempt.allocation, epoch: attempt.epoch, rank });
                let without = workers.any(|worker| view.world.is_without_checkpoint(worker));
                (without, "every checkpoint of it could be had")
            }
            Reason::NodeFault { .. }
            | Reason::OutOfMemory
            | Reason::HostLost
            | Reason::PortTaken { .. }
            | Reason::NotRestored { .. } => (false, "no simulated machine does that"),
            Reason::Preempted { .. }
            | Reason::SuspendedByUser
            | Reason::IdleSuspended
            | Reason::OutsideWindow
            | Reason::Growing
            | Reason::Drained { .. }
            | Reason::Moving
            | Reason::MoveFailed
            | Reason::Cancelled { .. } => (true, ""),
            Reason::Submitted
            | Reason::Backoff
            | Reason::Granted
            | Reason::WaitingForPreempted
            | Reason::Started
            | Reason::IdleNoticed
            | Reason::IdlePreemptible
            | Reason::IdleReleased
            | Reason::NodeDisconnected { .. } => (false, "that ends no attempt"),
        };
        (!holds).then_some(otherwise)
    }
}

impl Oracle for Attempts {
    fn name(&self) -> &'static str {
        "attempts end for a true reason"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for event in entry.events.iter() {
            match event {
                Event::Node { node, state: NodeState::Lost, .. } => {
                    self.lost.insert(*node, entry.at.revision);
                }
                Event::Worker { allocation, .. } => {
                    self.granted.entry(*allocation).or_insert(entry.seen);
                }
                Event::Job { job, to, .. } => {
                    self.changed.insert(*job);
                    if *to == JobState::Suspending {
                        self.suspended.insert(*job, entry.at.revision);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(newest) = view.newest() else { return Ok(()) };
        for id in std::mem::take(&mut self.changed) {
            let Some(job) = newest.job(id) else {
                return Err(format!("job {id} left the ledger before its attempts were judged"));
            };
            let judged = self.judged.get(&job.id).copied().unwrap_or(0);
            if job.history.first().is_some_and(|oldest| oldest.number > judged + 1) {
                return Err(format!("attempts of job {id} after {judged} left its history before they were judged"));
            }
            for attempt in job.history.iter().filter(|attempt| attempt.number > judged) {
                let last = attempt.number == job.attempts;
                let Some(reason) = &attempt.reason else {
                    if last {
                        continue;
                    }
                    return Err(format!(
                        "job {} has a further attempt after {}, which is not over",
                        job.id, attempt.number
                    ));
                };
                if let Some(why_not) = self.untrue(view, job, attempt, reason) {
                    return Err(format!(
                        "attempt {} of job {} (allocation {}) ended by {}, and {why_not}",
                        attempt.number,
                        job.id,
                        attempt.allocation.0,
                        reason.code()
                    ));
                }
                self.judged.insert(job.id, attempt.number);
            }
        }
        Ok(())
    }
}
