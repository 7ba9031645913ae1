//! Elastic gangs grow: one that began with fewer virtual cards than it would like is stopped once there is room for
//! more.

use super::Applied;
use crate::allocation::{Allocation, AllocationPhase};
use crate::command::Outcome;
use crate::ids::{AllocationId, JobId};
use crate::job::JobState;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::LogTime;

impl State {
    /// Since when an allocation may give way to a larger one of the same job; `None`: it may not, or not yet.
    #[must_use]
    pub fn may_grow_since(&self, allocation: &Allocation, now: LogTime) -> Option<LogTime> {
        let job = self
            .job(allocation.job)
            .filter(|job| job.state == JobState::Running && job.allocation == Some(allocation.id))?;
        let since = allocation.started_at?.after(job.spec.grow_after?);
        let may =
            allocation.phase == AllocationPhase::Active && allocation.virtual_cards() < job.spec.gang && since <= now;
        may.then_some(since)
    }

    /// Stops a gang that is to be started again with more virtual cards. What it gets is decided as for any job.
    pub(super) fn grow_job(&mut self, id: JobId, of: AllocationId) -> Applied {
        let job = self.known_job(id)?;
        let allocation = job.allocation.filter(|held| *held == of).and_then(|id| self.allocation(id));
        if allocation.is_none_or(|held| self.may_grow_since(held, self.time).is_none()) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "started again with more" });
        }
        self.begin_suspension(id, Reason::Growing);
        Ok(Outcome::Done)
    }
}
