//! Moves of jobs between cards: reserve target, suspend, transfer, resume (architecture section 6). Each step is a log
//! entry; whoever leads next finds the move where it stands and carries it on.
//!
//! While it moves a job holds both places, and its queue is charged for both: a move that would take the queue above
//! its maximum is refused. The source is one attempt, the target the next: what each of them wrote is found where it
//! ran. A move costs no retry. Whatever goes wrong at the target leaves the job as if it had been suspended: it resumes
//! by itself.

use std::sync::Arc;

use planted::Bug;

use super::Applied;
use crate::allocation::{Allocation, AllocationPhase, Move, MovePhase, PlannedWorker, StopCause, WorkerExit};
use crate::command::Outcome;
use crate::event::Event;
use crate::ids::{AllocationId, JobId, MoveId, Rank};
use crate::job::{Ending, Job, JobState};
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;

impl State {
    /// Reserves the target of a move; the job runs on at its source for now.
    pub(super) fn begin_move(&mut self, id: JobId, workers: &[PlannedWorker]) -> Result<AllocationId, Rejection> {
        let job = self.known_job(id)?;
        let source = job.allocation.filter(|_| job.state == JobState::Running);
        let Some(source) = source.and_then(|id| self.allocations.get(&id)).cloned() else {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "moved" });
        };
        let present = source.programs(&job.spec.virtual_card).map(|worker| worker.virtual_card);
        if !job.spec.cards_with_programs(workers).eq(present) {
            let problem = "a move keeps the programs of each virtual card".to_owned();
            return Err(Rejection::GrantMismatch { job: id, problem });
        }
        self.validate_workers(&job, workers, &[])?;
        self.validate_queue(&job, workers, &[])?;
        let ports = self.free_ports(&job, workers)?;
        let target = self.make_allocation(id, job.attempts + 1, workers, AllocationPhase::Reserved, &ports);
        let movement = self.next_move;
        self.next_move = MoveId(movement.0 + 1);
        let record = Move {
            id: movement,
            job: id,
            source: source.id,
            target,
            phase: MovePhase::Reserved,
            started_at: self.time,
        };
        self.moves.insert_cow(movement, Arc::new(record));
        self.with_job(id, |job| job.moving = Some(movement));
        self.move_job(id, JobState::Moving, Reason::Moving);
        // Until the source is told to stop, the job's place in its queue is the source: nobody gives way for both.
        self.charge_leaving(id, self.amount_asked(workers));
        self.pending_events.push(Event::Move { id: movement, job: id, in_progress: true });
        Ok(target)
    }

    /// Takes a move to its next step, or gives it up.
    pub(super) fn advance_move(&mut self, id: MoveId, from: MovePhase, proceed: bool) -> Applied {
        let movement = self.moves.get(&id).cloned().ok_or(Rejection::UnknownMove(id))?;
        if movement.phase != from {
            return Err(Rejection::MoveStale(id));
        }
        match (from, proceed) {
            (MovePhase::Reserved, true) => {
                if let Some(target) = self.allocations.get(&movement.target).cloned() {
                    self.charge_staying(movement.job, self.held_by(&target));
                }
                self.set_move_phase(id, MovePhase::Suspending);
                self.begin_stop(movement.source);
                if planted::is(Bug::SourceBelieved) {
                    self.release_worker(movement.source, Rank(0), WorkerExit::without_word(StopCause::Ordered, ""));
                }
                self.settle_if_over(movement.job, movement.source, Reason::Moving);
            }
            (MovePhase::Reserved, false) => {
                self.begin_stop(movement.target);
                self.end_move(id);
                self.move_job(movement.job, JobState::Running, Reason::MoveFailed);
            }
            (MovePhase::Suspending, false) => {
                // The source goes on stopping; the job is suspended once it has.
                self.begin_stop(movement.target);
                self.end_move(id);
                self.move_job(movement.job, JobState::Suspending, Reason::MoveFailed);
                self.settle_if_over(movement.job, movement.source, Reason::MoveFailed);
            }
            (MovePhase::Transferring, true) => {
                self.begin_attempt_at(movement.job, movement.target);
                self.set_move_phase(id, MovePhase::Resuming);
            }
            (MovePhase::Transferring, false) => {
                self.begin_stop(movement.target);
                self.end_move(id);
                self.move_job(movement.job, JobState::Suspended, Reason::MoveFailed);
            }
            // The source is stopping, or the target starting: both end by themselves.
            (MovePhase::Suspending, true) | (MovePhase::Resuming, _) => return Err(Rejection::MoveStale(id)),
        }
        Ok(Outcome::Done)
    }

    /// Puts the target of a move into force, as the next attempt of its job.
    fn begin_attempt_at(&mut self, job: JobId, target: AllocationId) {
        let number = self.jobs.get(&job).map_or(1, |job| job.attempts + 1);
        // What the source saved when it stopped is known by now.
        let from = self.allocations.get(&target).and_then(|target| self.begins_from(target));
        self.with_allocation(target, |target| {
            target.phase = AllocationPhase::Active;
            target.attempt = number;
            target.from = from;
        });
        self.begin_attempt(job, target);
    }

    /// The source of a move has stopped and given its blocks back.
    pub(super) fn source_stopped(&mut self, job: &Job, source: &Allocation) {
        let Some(id) = job.moving else { return };
        if let Some((ending, reason)) = ended_by_itself(source) {
            // It was over before it could be asked to stop: nothing is left to move.
            if let Some(target) = self.moves.get(&id).map(|movement| movement.target) {
                self.begin_stop(target);
            }
            self.end_move(id);
            self.with_job(job.id, |job| job.ending = Some(ending));
            self.move_job(job.id, JobState::Completing, reason.clone());
            self.close_attempt(source, &reason);
            self.remove_allocation(source);
            self.end_attempt(job.id, reason);
            return;
        }
        self.close_attempt(source, &Reason::Moving);
        self.remove_allocation(source);
        self.set_move_phase(id, MovePhase::Transferring);
    }

    /// The step of a job's move, if it is being moved.
    pub(super) fn move_phase(&self, job: &Job) -> Option<MovePhase> {
        self.moves.get(&job.moving?).map(|movement| movement.phase)
    }

    fn set_move_phase(&mut self, id: MoveId, phase: MovePhase) {
        if let Some(movement) = self.moves.get_mut_cow(&id) {
            let movement = Arc::make_mut(movement);
            movement.phase = phase;
            let job = movement.job;
            self.pending_events.push(Event::Move { id, job, in_progress: true });
        }
    }

    /// Takes a move out of the ledger.
    pub(super) fn end_move(&mut self, id: MoveId) {
        if let Some(movement) = self.moves.remove_cow(&id) {
            self.with_job(movement.job, |job| job.moving = None);
            self.pending_events.push(Event::Move { id, job: movement.job, in_progress: false });
        }
    }
}

/// The ending of an allocation that was to be moved, if it ended by itself: all workers succeeded, or one reached the
/// time limit. Any other end counts as a stop for the move (`None`): while a gang is being stopped, some workers fail
/// because others are gone.
fn ended_by_itself(source: &Allocation) -> Option<(Ending, Reason)> {
    let exits = || source.workers.iter().filter_map(|worker| worker.exit.as_ref());
    if exits().any(|exit| exit.cause == StopCause::TimeLimit) {
        return Some((Ending::Timeout, Reason::TimeLimit));
    }
    let well = source.workers.iter().all(|worker| worker.exit.as_ref().is_some_and(WorkerExit::succeeded));
    well.then_some((Ending::Completed, Reason::Exited))
}
