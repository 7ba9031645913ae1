//! Idle jobs go up the ladder of their queue, and down again: see [`idle`](crate::idle).

use std::sync::Arc;

use super::Applied;
use crate::allocation::AllocationPhase;
use crate::command::Outcome;
use crate::event::Touched;
use crate::idle::{Idle, IdleStep};
use crate::ids::{AllocationId, JobId};
use crate::job::{Job, JobState};
use crate::queue::QueueAmount;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::LogTime;

impl State {
    /// A job has come to a step of its ladder, or is busy again (`None`). What was measured of another attempt counts
    /// for nothing.
    pub(super) fn note_idle(&mut self, id: JobId, attempt: u32, since: LogTime, step: Option<IdleStep>) -> Applied {
        let job = self.known_job(id)?;
        let refused = |action| Err(Rejection::IllegalTransition { job: id, state: job.state, action });
        if job.attempts != attempt {
            return refused("judged by what another attempt used");
        }
        let Some(step) = step else {
            if job.idle.is_none() || job.state != JobState::Running {
                return refused("called busy again");
            }
            self.set_idle(id, None);
            if matches!(job.reason, Reason::IdleNoticed | Reason::IdlePreemptible) {
                self.move_job(id, job.state, Reason::Started);
            }
            return Ok(Outcome::Done);
        };
        if !self.is_idle_step_due(&job, since, step) {
            return refused("taken a step further for being idle");
        }
        // What the job has been told counts from when it was told first.
        let since = job.idle.map_or(since, |idle| idle.since);
        self.set_idle(id, Some(Idle { since, step }));
        match step {
            IdleStep::Noticed | IdleStep::Preemptible => self.move_job(id, job.state, step.reason()),
            IdleStep::Suspended => {
                self.with_job(id, |job| job.parked = true);
                self.begin_suspension(id, step.reason());
            }
            IdleStep::Released => self.move_job(id, JobState::Cancelled, step.reason()),
        }
        Ok(Outcome::Done)
    }

    /// Returns whether `step` follows the steps already taken, and is due for a job that is idle `since`.
    fn is_idle_step_due(&self, job: &Job, since: LogTime, step: IdleStep) -> bool {
        if step == IdleStep::Released {
            return self.release_due(job, self.time).is_some();
        }
        let allocation = job.allocation.and_then(|id| self.allocation(id));
        let ran_then = allocation.and_then(|allocation| allocation.started_at).is_some_and(|started| started <= since);
        let after = self.idle_policy(job).and_then(|policy| policy.after(step));
        let is_over = after.is_some_and(|after| since.after(after) <= self.time);
        job.state == JobState::Running && ran_then && job.idle_step() < Some(step) && is_over
    }

    /// Changes how far a job has come, and with it what its queues count as preemptible.
    pub(super) fn set_idle(&mut self, id: JobId, idle: Option<Idle>) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        if job.idle == idle {
            return;
        }
        self.with_job(id, |job| job.idle = idle);
        let is_preemptible = self.jobs.get(&id).is_some_and(|job| job.is_preemptible());
        if job.is_preemptible() == is_preemptible {
            return;
        }
        let staying = self.staying_amount(&job);
        for name in self.queue_line(&job.spec.queue) {
            self.with_queue(&name, |queue| {
                queue.firm = if is_preemptible { queue.firm.minus(staying) } else { queue.firm.plus(staying) };
            });
        }
        self.touched.extend(job.allocation.map(Touched::Allocation));
    }

    /// The amount that a job holds and that is not on its way back.
    fn staying_amount(&self, job: &Arc<Job>) -> QueueAmount {
        let movement = job.moving.and_then(|id| self.moves.get(&id));
        let places = movement.into_iter().flat_map(|movement| [movement.source, movement.target]);
        let mut allocations: Vec<AllocationId> = job.allocation.into_iter().chain(places).collect();
        allocations.sort_unstable();
        allocations.dedup();
        let held = allocations.into_iter().filter_map(|id| self.allocations.get(&id));
        let staying =
            held.filter(|allocation| allocation.phase != AllocationPhase::Ending && !self.is_leaving(allocation));
        staying.fold(QueueAmount::default(), |sum, allocation| sum.plus(self.held_by(allocation)))
    }
}
