//! Reports of agents about workers, and their consequences for the attempt and the job.

use std::sync::Arc;

use planted::Bug;

use super::Applied;
use crate::allocation::{Allocation, AllocationPhase, MovePhase, StopCause, Worker, WorkerExit, WorkerState};
use crate::command::{Observation, Outcome, WorkerReport};
use crate::event::Event;
use crate::extent::BlockState;
use crate::ids::{AllocationId, JobId, NodeId, Rank};
use crate::job::{Ending, Job, JobState};
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::LogTime;

impl State {
    /// Takes reports from a node. A report of an allocation that is not known, of another epoch, or of another node
    /// changes nothing: it is out of date and need not be sent again.
    pub(super) fn report_workers(&mut self, node: NodeId, reports: &[WorkerReport]) -> Applied {
        if self.nodes.get(&node).is_none() {
            return Err(Rejection::UnknownNode(node));
        }
        for report in reports {
            let Some(allocation) = self.allocations.get(&report.worker.allocation).cloned() else { continue };
            let here = allocation.worker(report.worker.rank).is_some_and(|worker| worker.node == node);
            if here && (allocation.epoch == report.worker.epoch || planted::is(Bug::EpochUncheckedInLedger)) {
                self.take_report(&allocation, report.worker.rank, &report.observation);
            }
        }
        Ok(Outcome::Done)
    }

    fn take_report(&mut self, allocation: &Arc<Allocation>, rank: Rank, observation: &Observation) {
        let Some(worker) = allocation.worker(rank) else { return };
        if matches!(allocation.phase, AllocationPhase::Waiting | AllocationPhase::Reserved) {
            return; // No order was ever given for it: whatever is meant, it is not this worker.
        }
        match observation {
            Observation::Running => self.worker_runs(allocation, rank),
            Observation::Stopped(exit) => {
                self.settle_worker(allocation.id, rank, exit.clone());
            }
            Observation::Saved(saved) => self.worker_saved(allocation, rank, saved),
            Observation::Unusable { lost, message } => self.checkpoint_unusable(allocation, rank, *lost, message),
            Observation::Unconfirmed { message } => {
                if !matches!(worker.state, WorkerState::Stopped | WorkerState::Lost) {
                    self.pending_events.push(Event::Quarantined {
                        node: worker.node,
                        job: allocation.job,
                        allocation: allocation.id,
                        rank,
                        message: message.clone(),
                    });
                    self.lose_worker(allocation.id, rank);
                }
            }
        }
    }

    /// A worker runs: for the first time, or again after its node was away.
    fn worker_runs(&mut self, allocation: &Arc<Allocation>, rank: Rank) {
        let Some(worker) = allocation.worker(rank) else { return };
        let owner = allocation.owner(rank);
        let (state, blocks) = match (worker.state, allocation.phase) {
            (WorkerState::Held | WorkerState::Lost, AllocationPhase::Active) => {
                (WorkerState::Running, BlockState::Running(owner))
            }
            (WorkerState::Lost, AllocationPhase::Ending) => {
                (WorkerState::Draining, BlockState::Draining { owner, next: None })
            }
            _ => return,
        };
        self.set_worker(allocation, rank, state);
        self.change_blocks(owner, &worker.slices, |_| blocks);
        if !self.has_device(allocation.job) {
            self.forget_faults(worker.node, allocation.job);
        }
        self.start_if_all_run(allocation.id);
    }

    /// Once every worker of an allocation runs (or has ended well already), the job runs.
    fn start_if_all_run(&mut self, id: AllocationId) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let all = allocation.workers.iter().all(|worker| {
            worker.state == WorkerState::Running || worker.exit.as_ref().is_some_and(WorkerExit::succeeded)
        });
        let Some(job) = self.jobs.get(&allocation.job).cloned() else { return };
        if !all || job.allocation != Some(id) {
            return;
        }
        let now = self.time;
        match job.state {
            // The source of a move that has not begun to stop.
            JobState::Moving if self.move_phase(&job) != Some(MovePhase::Resuming) => {}
            JobState::Starting | JobState::Moving => {
                self.with_allocation(id, |allocation| allocation.started_at = Some(now));
                self.with_job(job.id, |job| {
                    if let Some(attempt) = job.history.last_mut() {
                        attempt.started_at.get_or_insert(now);
                    }
                });
                if let Some(movement) = job.moving {
                    self.end_move(movement);
                }
                self.move_job(job.id, JobState::Running, Reason::Started);
            }
            JobState::Running if matches!(job.reason, Reason::NodeDisconnected { .. }) => {
                self.move_job(job.id, JobState::Running, Reason::Started);
            }
            _ => {}
        }
    }

    fn has_device(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.spec.virtual_card.access.is_device())
    }

    /// A worker has ended by itself, or has saved: if it has a device it really had it. What it begins as runs before,
    /// so that to run says nothing of its node.
    pub(super) fn device_worked(&mut self, node: NodeId, job: JobId) {
        if self.has_device(job) {
            self.forget_faults(node, job);
        }
    }

    /// A worker is over: its blocks go back, and the job goes where that leads.
    pub(super) fn settle_worker(&mut self, id: AllocationId, rank: Rank, exit: WorkerExit) {
        let node = self.allocations.get(&id).and_then(|allocation| allocation.worker(rank)).map(|worker| worker.node);
        let node = node.unwrap_or(NodeId(0));
        // A worker says so itself, and only those that meet others are given ports.
        let job = self.allocations.get(&id).and_then(|allocation| self.jobs.get(&allocation.job));
        let meets_others = job.is_some_and(|job| job.spec.virtual_card.serves_across_nodes());
        let cause = if exit.cause == StopCause::PortTaken && !meets_others { StopCause::NodeFault } else { exit.cause };
        let exit = WorkerExit { cause, ..exit };
        let (cause, message) = (exit.cause, exit.message.clone());
        let judged = exit.clone();
        self.end_worker(id, rank, exit, |(job, phase)| match phase {
            // That the new place cannot start it is not the job's fault.
            Some(MovePhase::Resuming) if cause == StopCause::StartFailed => {
                (Ending::Requeue, Reason::StartFailed { message })
            }
            _ => verdict(job, node, &judged),
        });
    }

    /// A worker is over, and `verdict` says how its attempt ends when it was wanted to run on, and why.
    pub(super) fn end_worker(
        &mut self,
        id: AllocationId,
        rank: Rank,
        exit: WorkerExit,
        verdict: impl FnOnce((&Job, Option<MovePhase>)) -> (Ending, Reason),
    ) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let stopped = allocation.worker(rank).is_none_or(|worker| worker.state == WorkerState::Stopped);
        if stopped || matches!(allocation.phase, AllocationPhase::Waiting | AllocationPhase::Reserved) {
            return;
        }
        let Some(job) = self.jobs.get(&allocation.job).cloned() else { return };
        let node = allocation.worker(rank).map_or(NodeId(0), |worker| worker.node);
        let (ending, reason) = verdict((&job, self.move_phase(&job)));
        let runs = match job.state {
            JobState::Starting | JobState::Running => true,
            JobState::Moving => self.move_phase(&job) != Some(MovePhase::Suspending),
            _ => false,
        };
        if !exit.not_saved.is_empty() {
            self.with_job(job.id, |job| {
                if let Some(attempt) = job.attempt_under_mut(&allocation) {
                    attempt.not_saved.clone_from(&exit.not_saved);
                }
            });
        }
        if runs && exit.cause == StopCause::NodeFault {
            self.count_fault(node, job.id, &exit.message);
        } else if runs && exit.cause == StopCause::Exited {
            // That servers have ended says nothing of the device: they do whenever it is over, and when it broke.
            if allocation.program(&job.spec.virtual_card, rank).is_some() {
                self.device_worked(node, job.id);
            }
            if !exit.succeeded() && allocation.workers.len() > 1 {
                // Whether that is the fault of another part is known only when all have stopped: those are counted on.
                self.with_job(job.id, |known| known.node_faults = job.node_faults);
            }
        }
        let explains = !runs && self.explains(&job, &allocation, (rank, &exit), ending);
        self.release_worker(id, rank, exit);
        if !runs {
            let reason = if explains {
                self.note_decisive(&allocation, rank);
                self.end_otherwise(&job, node, ending, reason)
            } else {
                job.reason.clone()
            };
            self.settle_if_over(job.id, id, reason);
        } else if ending != Ending::Completed {
            self.note_decisive(&allocation, rank);
            self.wind_up(job.id, ending, reason);
        } else if self.allocations.get(&id).is_some_and(|held| held.is_over() || has_served(&job, held)) {
            self.wind_up(job.id, Ending::Completed, reason);
        } else {
            self.start_if_all_run(id);
        }
    }

    /// Notes that the end of a worker decides how its attempt ends.
    fn note_decisive(&mut self, allocation: &Allocation, rank: Rank) {
        self.with_job(allocation.job, |job| {
            if let Some(attempt) = job.attempt_under_mut(allocation) {
                attempt.decisive = Some(rank);
            }
        });
    }

    /// Returns whether the end of this worker explains the failure of another worker of its gang: programs fail when a
    /// peer is gone, often before the loss of its node is known, and a slice server fails when its program does, whose
    /// end may be reported later. Agents report in any order, too: of those that failed by themselves the first in time
    /// explains the others, and in one millisecond the lowest rank.
    fn explains(&self, job: &Job, allocation: &Allocation, (rank, exit): (Rank, &WorkerExit), ending: Ending) -> bool {
        let cause = exit.cause;
        let failed = job.state == JobState::Completing && matches!(job.ending, Some(Ending::Failed | Ending::Retry));
        let by_program = matches!(job.reason, Reason::NonZeroExit { .. } | Reason::Signalled { .. });
        let lost = matches!(cause, StopCause::LeaseExpired | StopCause::NodeFault | StopCause::PortTaken)
            && ending == Ending::Requeue;
        let is_own = |exit: &WorkerExit| matches!(exit.cause, StopCause::Exited | StopCause::OutOfMemory);
        let by_itself = is_own(exit) && ending != Ending::Completed;
        let card = &job.spec.virtual_card;
        let served = |first| allocation.program(card, first).is_none() && allocation.program(card, rank).is_some();
        let first = job.attempt_under(allocation).and_then(|attempt| attempt.decisive);
        let came_later = |first| {
            let decided = allocation.worker(first).and_then(|worker| worker.exit.as_ref()).filter(|exit| is_own(exit));
            let goes_before = |decided: &WorkerExit| (exit.ended_at, rank) < (decided.ended_at, first);
            exit.ended_at != LogTime(0) && decided.is_some_and(goes_before)
        };
        let by_itself_too = by_program || job.reason == Reason::OutOfMemory;
        let explained = |first| by_program && served(first) || by_itself_too && came_later(first);
        failed && (by_program && lost || by_itself && first.is_some_and(explained))
    }

    /// An attempt did not end as it seemed, but as `reason` says.
    fn end_otherwise(&mut self, job: &Job, node: NodeId, ending: Ending, reason: Reason) -> Reason {
        if let Reason::NodeFault { message, .. } = &reason {
            self.count_fault(node, job.id, message);
        }
        self.with_job(job.id, |job| job.ending = Some(ending));
        self.move_job(job.id, JobState::Completing, reason.clone());
        reason
    }

    /// Once no worker of an allocation holds anything any more, the allocation leaves the ledger and its job goes on.
    pub(super) fn settle_if_over(&mut self, id: JobId, held: AllocationId, reason: Reason) {
        let Some(allocation) = self.allocations.get(&held).cloned() else {
            return self.settle_abandoned(id, reason);
        };
        if !allocation.is_over() {
            return;
        }
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        match job.state {
            JobState::Suspending => {
                let succeeded = |worker: &Worker| worker.exit.as_ref().is_some_and(WorkerExit::succeeded);
                let ended_well = allocation.workers.iter().all(succeeded) || has_served(&job, &allocation);
                if ended_well {
                    // It ended by itself before it could be asked to stop.
                    self.with_job(id, |job| job.ending = Some(Ending::Completed));
                    self.move_job(id, JobState::Completing, Reason::Exited);
                    self.close_attempt(&allocation, &Reason::Exited);
                    self.remove_allocation(&allocation);
                    self.end_attempt(id, Reason::Exited);
                } else {
                    self.close_attempt(&allocation, &reason);
                    self.remove_allocation(&allocation);
                    self.move_job(id, JobState::Suspended, reason);
                }
            }
            JobState::Moving => self.source_stopped(&job, &allocation),
            JobState::Completing => {
                self.close_attempt(&allocation, &job.reason);
                self.remove_allocation(&allocation);
                self.end_attempt(id, job.reason.clone());
            }
            _ => {}
        }
    }

    /// Goes on with a job whose allocation was given up before any worker had been started.
    fn settle_abandoned(&mut self, id: JobId, reason: Reason) {
        match self.jobs.get(&id).map(|job| job.state) {
            Some(JobState::Suspending) => self.move_job(id, JobState::Suspended, reason),
            Some(JobState::Completing) => self.end_attempt(id, reason),
            _ => {}
        }
    }
}

/// Returns whether all programs of an allocation have ended well and its other workers only serve them: the allocation
/// is over then, whatever the others do.
fn has_served(job: &Job, allocation: &Allocation) -> bool {
    let card = &job.spec.virtual_card;
    let succeeded = |worker: &Worker| worker.exit.as_ref().is_some_and(WorkerExit::succeeded);
    card.serves_across_nodes() && allocation.programs(card).all(succeeded)
}

/// The ending of an attempt one of whose workers ended with `exit`, and the reason.
fn verdict(job: &Job, node: NodeId, exit: &WorkerExit) -> (Ending, Reason) {
    if exit.succeeded() {
        return (Ending::Completed, Reason::Exited);
    }
    let failed = if job.retries < job.spec.retry.max_retries { Ending::Retry } else { Ending::Failed };
    match exit.cause {
        StopCause::Exited => match (exit.code, exit.signal) {
            (_, Some(signal)) => (failed, Reason::Signalled { signal }),
            (code, None) => (failed, Reason::NonZeroExit { code: code.unwrap_or(-1) }),
        },
        StopCause::StartFailed => (failed, Reason::StartFailed { message: exit.message.clone() }),
        StopCause::NodeFault => {
            let blamed = job.is_blamed_for(node);
            (if blamed { failed } else { Ending::Requeue }, Reason::NodeFault { node, message: exit.message.clone() })
        }
        // Whose fault that is cannot be told: it is tried again, and what cannot be restored is given up some day.
        StopCause::NotRestored => (Ending::Requeue, Reason::NotRestored { message: exit.message.clone() }),
        // Whoever has it has it by chance, or is a job of somebody's: the next attempt gets others.
        StopCause::PortTaken => (Ending::Requeue, Reason::PortTaken { node, message: exit.message.clone() }),
        StopCause::OutOfMemory => (failed, Reason::OutOfMemory),
        StopCause::TimeLimit => (Ending::Timeout, Reason::TimeLimit),
        // Nobody is there for whom another attempt could compute.
        StopCause::HostLost => (Ending::Failed, Reason::HostLost),
        StopCause::LeaseExpired => (Ending::Requeue, Reason::NodeLost { node }),
        StopCause::Vanished | StopCause::NotGranted | StopCause::Ordered => (Ending::Requeue, Reason::WorkerVanished),
    }
}
