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
    /// Since when a grant may give way to a larger one of the same job; `None`: it may not, or not yet.
    #[must_use]
    pub fn may_grow_since(&self, grant: &Allocation, now: LogTime) -> Option<LogTime> {
        let job =
            self.job(grant.job).filter(|job| job.state == JobState::Running && job.allocation == Some(grant.id))?;
        let since = grant.started_at?.after(job.spec.grow_after?);
        let may = grant.phase == AllocationPhase::Active && grant.members() < job.spec.gang && since <= now;
        may.then_some(since)
    }

    /// Stops a gang that is to be started again with more virtual cards. What it gets is decided as for any job.
    pub(super) fn grow_job(&mut self, id: JobId, allocation: AllocationId) -> Applied {
        let job = self.known_job(id)?;
        let grant = job.allocation.filter(|held| *held == allocation).and_then(|id| self.allocation(id));
        if grant.is_none_or(|grant| self.may_grow_since(grant, self.time).is_none()) {
            return Err(Rejection::IllegalTransition { job: id, state: job.state, action: "started again with more" });
        }
        self.begin_suspension(id, Reason::Growing);
        Ok(Outcome::Done)
    }
}
