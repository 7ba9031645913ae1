//! Jobs: submission, the wishes of people, and the one function that moves a job from state to state.

use std::sync::Arc;
use std::time::Duration;

use planted::Bug;

use super::Applied;
use super::guard::Guarded;
use super::quotas::CheckpointBytes;
use super::windows::closed_at_first;
use crate::allocation::{Allocation, MovePhase, Worker};
use crate::checkpoint::Checkpoints;
use crate::command::{Outcome, Request};
use crate::event::{Event, Touched};
use crate::ids::{AllocationId, JobId};
use crate::job::{Ending, Job, JobState, RESTORES_UNTIL_GIVEN_UP};
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::spec::JobSpec;
use crate::state::{State, WaitingKey};
use crate::units::LogTime;
use crate::window::opening;
use crate::wire::hash_of_spec;

/// Most attempts kept in a job's history; older ones go.
const HISTORY_LIMIT: usize = 8;

impl State {
    /// Changes a job and keeps every index over jobs right.
    pub(super) fn with_job<R>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> R) -> Option<R> {
        let (revision, now) = (self.revision, self.time);
        // Who waits while windows are closed waits for nobody: it counts from their opening.
        let known = self.jobs.get(&id)?;
        let closed = Some(known).filter(|job| job.is_waiting()).map(|job| self.job_closed_until(job));
        let (order, guard) = (self.order_of(&known.spec.queue), Guarded::of(known));
        let job = Arc::make_mut(self.jobs.get_mut_cow(&id)?);
        let (state, waiting, old_key) = (job.state, job.is_waiting(), WaitingKey::of(job, order));
        let (had_checkpoints, had_bytes) = (!job.checkpoints.is_empty(), CheckpointBytes::of(job));
        let (had_windows, was_idler) = (job.has_windows(), job.is_idler());
        let began = job.waiting_since().max(closed.unwrap_or_default());
        let result = change(job);
        if job.state.is_terminal() {
            job.checkpoints = Checkpoints::default();
        }
        job.guarded &= job.can_be_guarded();
        job.revision = revision;
        match (waiting, job.is_waiting()) {
            (true, false) => {
                job.waited = job.waited.saturating_add(now.since(began));
                self.waiting.remove_cow(&old_key);
            }
            (false, true) => {
                job.queued_at = now.max(opening(job.closed_until));
                self.waiting.insert_cow(WaitingKey::of(job, order), ());
            }
            (true, true) if WaitingKey::of(job, order) != old_key => {
                self.waiting.remove_cow(&old_key);
                self.waiting.insert_cow(WaitingKey::of(job, order), ());
            }
            (true, true) | (false, false) => {}
        }
        match (had_checkpoints, !job.checkpoints.is_empty()) {
            (true, false) => {
                self.checkpointed.remove_cow(&id);
            }
            (false, true) => {
                self.checkpointed.insert_cow(id, ());
            }
            (true, true) | (false, false) => {}
        }
        if had_windows && !job.has_windows() {
            self.windowed.remove_cow(&id);
        }
        match (was_idler, job.is_idler()) {
            (true, false) => {
                self.idlers.remove_cow(&id);
            }
            (false, true) => {
                self.idlers.insert_cow(id, ());
            }
            (true, true) | (false, false) => {}
        }
        let (spec, new_state, changed_at) = (Arc::clone(&job.spec), job.state, job.changed_at);
        let has_bytes = CheckpointBytes::of(job);
        if had_bytes != has_bytes {
            self.charge_checkpoints(&spec.queue, had_bytes, has_bytes);
        }
        if state != new_state {
            self.count_job(state, false);
            self.count_job(new_state, true);
            if new_state.is_terminal() {
                self.ended.insert_cow((changed_at, id), ());
                self.ended_spec_bytes += spec.bytes();
                self.with_queue(&spec.queue, |queue| queue.jobs -= 1);
            }
        }
        self.touched.push(Touched::Job(id));
        if order.is_some() {
            self.follow_guard(id, guard);
        }
        Some(result)
    }

    pub(super) fn count_job(&mut self, state: JobState, add: bool) {
        let count = self.job_counts.entry(state).or_insert(0);
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
    }

    /// Moves a job to a state of the table in [`JobState::successors`], or only gives it another reason.
    pub(super) fn move_job(&mut self, id: JobId, to: JobState, reason: Reason) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (from, allocation) = (job.state, job.allocation);
        debug_assert!(from == to || from.can_become(to), "job {id}: {from:?} -> {to:?} is not in the table");
        let now = self.time;
        self.with_job(id, |job| {
            if job.state != to {
                job.changed_at = now;
            }
            job.state = to;
            job.reason = reason.clone();
        });
        self.pending_events.push(Event::Job { job: id, from: Some(from), to, reason, allocation });
    }

    pub(super) fn submit_job(
        &mut self,
        request: &Request,
        spec: &Arc<JobSpec>,
        traceparent: &str,
        secret: Option<u128>,
    ) -> Applied {
        spec.check()?;
        if self.queues.get(&spec.queue).is_none() {
            if planted::is(Bug::RefusedTakesNumber) {
                self.next_job = JobId(self.next_job.0 + 1);
            }
            return Err(Rejection::UnknownQueue(spec.queue.clone()));
        }
        self.admit(spec)?;
        let live: u64 =
            JobState::ALL.iter().filter(|state| !state.is_terminal()).map(|state| self.job_count(*state)).sum();
        if live >= self.config.job_limit {
            return Err(Rejection::TooManyJobs { limit: self.config.job_limit });
        }
        let bytes = spec.bytes();
        self.make_room_for(bytes)?;
        self.spec_bytes += bytes;
        let id = self.next_job;
        self.next_job = JobId(id.0 + 1);
        let reason = if spec.held { Reason::Held } else { Reason::Submitted };
        let job = Job {
            id,
            spec: spec.clone(),
            submitter: request.actor.clone(),
            request: request.key.map(|key| key.id),
            traceparent: traceparent.to_owned(),
            secret,
            state: JobState::Pending,
            reason: reason.clone(),
            held: spec.held,
            parked: false,
            submitted_at: self.time,
            changed_at: self.time,
            revision: self.revision,
            not_before: LogTime(0),
            allocation: None,
            moving: None,
            ending: None,
            attempts: 0,
            retries: 0,
            node_faults: 0,
            history: Vec::new(),
            checkpoints: Checkpoints::default(),
            preempted_at: Vec::new(),
            queued_at: self.time,
            waited: Duration::ZERO,
            attained: Duration::ZERO,
            guarded: false,
            closed_until: closed_at_first(&spec.windows),
            idle: None,
            spec_hash: hash_of_spec(spec),
        };
        if job.is_waiting() {
            self.waiting.insert_cow(self.waiting_key(&job), ());
        }
        if job.has_windows() {
            self.windowed.insert_cow(id, ());
        }
        self.jobs.insert_cow(id, Arc::new(job));
        self.count_job(JobState::Pending, true);
        self.with_queue(&spec.queue, |queue| queue.jobs += 1);
        self.touched.push(Touched::Job(id));
        if self.order_of(&spec.queue).is_some() {
            self.follow_guard(id, Guarded::UNKNOWN);
        }
        self.pending_events.push(Event::Job { job: id, from: None, to: JobState::Pending, reason, allocation: None });
        Ok(Outcome::Submitted(id))
    }

    pub(super) fn cancel_job(&mut self, id: JobId, actor: &str) -> Applied {
        let job = self.known_job(id)?;
        let reason = Reason::Cancelled { by: if actor.is_empty() { "somebody".to_owned() } else { actor.to_owned() } };
        match job.state {
            JobState::Pending | JobState::Suspended => self.move_job(id, JobState::Cancelled, reason),
            JobState::Completing if matches!(job.ending, Some(Ending::Retry | Ending::Requeue)) => {
                self.with_job(id, |job| job.ending = Some(Ending::Cancelled));
                self.move_job(id, JobState::Completing, reason);
            }
            JobState::Completing if job.ending == Some(Ending::Cancelled) => {}
            JobState::Starting | JobState::Running | JobState::Suspending | JobState::Moving => {
                self.wind_up(id, Ending::Cancelled, reason);
            }
            _ => return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "cancelled" }),
        }
        Ok(Outcome::Done)
    }

    /// Ends a job that ran longer than its time limit, as if its agent had.
    pub(super) fn expire_job(&mut self, id: JobId, allocation: AllocationId) -> Applied {
        let job = self.known_job(id)?;
        if job.state != JobState::Running || job.allocation != Some(allocation) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "ended at a time limit" });
        }
        self.wind_up(id, Ending::Timeout, Reason::TimeLimit);
        Ok(Outcome::Done)
    }

    pub(super) fn hold_job(&mut self, id: JobId) -> Applied {
        let job = self.known_job(id)?;
        if !matches!(job.state, JobState::Pending | JobState::Suspended) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "held; suspend it instead" });
        }
        if !job.held {
            self.with_job(id, |job| job.held = true);
            self.move_job(id, job.state, Reason::Held);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn release_job(&mut self, id: JobId) -> Applied {
        let job = self.known_job(id)?;
        if !matches!(job.state, JobState::Pending | JobState::Suspended) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "released" });
        }
        if job.held {
            self.with_job(id, |job| job.held = false);
            self.move_job(id, job.state, if job.parked { job.parked_for() } else { Reason::Queued });
        }
        Ok(Outcome::Done)
    }

    pub(super) fn suspend_job(&mut self, id: JobId) -> Applied {
        let job = self.known_job(id)?;
        match job.state {
            JobState::Starting | JobState::Running | JobState::Moving => {
                self.with_job(id, |job| job.parked = true);
                self.begin_suspension(id, Reason::SuspendedByUser);
            }
            JobState::Suspending | JobState::Suspended => {
                self.set_idle(id, None);
                self.with_job(id, |job| job.parked = true);
                self.move_job(id, job.state, Reason::SuspendedByUser);
            }
            _ => return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "suspended" }),
        }
        Ok(Outcome::Done)
    }

    pub(super) fn resume_job(&mut self, id: JobId) -> Applied {
        let job = self.known_job(id)?;
        if !matches!(job.state, JobState::Suspending | JobState::Suspended) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "resumed" });
        }
        if job.parked {
            self.set_idle(id, None);
            self.with_job(id, |job| job.parked = false);
            self.move_job(id, job.state, if job.held { Reason::Held } else { Reason::Queued });
        }
        Ok(Outcome::Done)
    }

    /// Tells a job to give its blocks back so that it can be resumed (law L5). An allocation that never got its blocks
    /// is given up and the job waits as before.
    pub(super) fn begin_suspension(&mut self, id: JobId, reason: Reason) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        self.leave_move(&job);
        let Some(allocation) = job.allocation else {
            // The source of a move has stopped, and its target is given up: nothing of it runs any more.
            if job.state == JobState::Moving {
                self.move_job(id, JobState::Suspended, reason);
            }
            return;
        };
        self.move_job(id, JobState::Suspending, reason.clone());
        self.begin_stop(allocation);
        self.settle_if_over(id, allocation, reason);
    }

    /// Gives up a move that a job is in: what becomes of it is said of the allocation that it computes under.
    fn leave_move(&mut self, job: &Job) {
        if let Some(movement) = job.moving.and_then(|id| self.moves.get(&id)).cloned() {
            if movement.phase != MovePhase::Resuming {
                self.begin_stop(movement.target);
            }
            self.end_move(movement.id);
        }
    }

    /// Ends the present attempt: workers are told to stop, and the job ends as `ending` says when all have.
    pub(super) fn wind_up(&mut self, id: JobId, ending: Ending, reason: Reason) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        self.with_job(id, |job| job.ending = Some(ending));
        self.move_job(id, JobState::Completing, reason.clone());
        self.leave_move(&job);
        match job.allocation {
            Some(allocation) => {
                self.begin_stop(allocation);
                self.settle_if_over(id, allocation, reason);
            }
            None => self.end_attempt(id, reason),
        }
    }

    /// Writes the end of an attempt into the job's history.
    pub(super) fn close_attempt(&mut self, allocation: &Allocation, reason: &Reason) {
        let now = self.time;
        let Some(job) = self.jobs.get(&allocation.job).cloned() else { return };
        let card = &job.spec.virtual_card;
        let decisive = job.attempt_under(allocation).and_then(|attempt| allocation.worker(attempt.decisive?));
        let failed = |worker: &&Worker| worker.exit.as_ref().is_some_and(|exit| !exit.succeeded());
        let told = decisive.or_else(|| allocation.programs(card).find(failed)).or_else(|| allocation.workers.first());
        let exit = told.and_then(|worker| worker.exit.as_ref());
        self.skip_partial_checkpoint(allocation.job);
        self.with_job(allocation.job, |job| {
            job.allocation = None;
            job.checkpoints.close();
            if let Some(attempt) = job.attempt_under_mut(allocation) {
                attempt.ended_at = Some(now);
                attempt.exit_code = exit.and_then(|exit| exit.code);
                attempt.signal = exit.and_then(|exit| exit.signal);
                attempt.reason = Some(reason.clone());
                let served = attempt.served(now);
                job.attained = job.attained.saturating_add(served);
            }
            let surplus = job.history.len().saturating_sub(HISTORY_LIMIT);
            job.history.drain(..surplus);
        });
    }

    /// Moves a job whose attempt is over to where its ending leads.
    pub(super) fn end_attempt(&mut self, id: JobId, reason: Reason) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        let (state, not_before, reason) = match job.ending {
            Some(Ending::Completed) => (JobState::Completed, LogTime(0), reason),
            Some(Ending::Cancelled) => (JobState::Cancelled, LogTime(0), job.reason.clone()),
            Some(Ending::Timeout) => (JobState::Timeout, LogTime(0), reason),
            Some(Ending::Failed) | None => (JobState::Failed, LogTime(0), reason),
            Some(Ending::Retry) => {
                let wait = job.spec.retry.wait_before(job.retries + 1);
                self.with_job(id, |job| job.retries += 1);
                (JobState::Pending, self.time.after(wait), Reason::Backoff)
            }
            // A node that keeps losing work must not be asked again at once, and for ever.
            Some(Ending::Requeue) => {
                let wait = job.spec.retry.wait_before(job.restores_failed().max(job.ports_taken()).max(1));
                (JobState::Pending, self.time.after(wait), reason)
            }
        };
        if let Some(checkpoint) = self.jobs.get(&id).and_then(|job| job.cannot_be_restored()) {
            let tried = format!("{RESTORES_UNTIL_GIVEN_UP} attempts in a row could not restore it");
            self.give_up_checkpoint(id, checkpoint, tried);
        }
        self.with_job(id, |job| {
            job.ending = None;
            job.not_before = not_before;
        });
        self.move_job(id, state, reason);
    }
}
