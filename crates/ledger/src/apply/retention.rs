//! Forgetting: ended jobs, answered requests and events leave the ledger after a bounded time, by log time and in log
//! order, so that every member forgets the same at the same index.

use crate::event::{Event, Touched};
use crate::ids::{JobId, REQUEST_AHEAD, RequestId};
use crate::job::JobState;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::LogTime;

/// Most requests, and most ended jobs, that one entry forgets, besides two for each of its commands.
const BASE_BATCH: usize = 64;

impl State {
    /// Removes what is due, at most in proportion to what an entry adds: forgetting never stalls applying.
    pub(super) fn remove_expired(&mut self, commands: usize) {
        let batch = BASE_BATCH + 2 * commands;
        let oldest: Vec<_> = self.request_times.into_iter().take(batch).map(|(key, ())| *key).collect();
        for (at, id) in oldest {
            if !self.is_due(at, self.config.request_retention, self.requests_held, self.config.request_limit) {
                break;
            }
            // Few are ahead of their answers: those behind them do not wait for that.
            if !self.is_of_now(id) {
                self.forget_request(at, id);
            }
        }
        for _ in 0..batch {
            let Some((at, id)) = self.ended.into_iter().next().map(|(key, ())| *key) else { break };
            let due = self.is_due(at, self.config.job_retention, self.ended_jobs(), self.config.ended_job_limit);
            if !due && self.spec_bytes <= self.config.limits.spec_bytes {
                break;
            }
            self.forget_job(at, id);
        }
    }

    /// Makes room for a job of so many bytes: ended jobs go, the oldest first, as far as is needed. When even all of
    /// them would not be enough none goes, and the job is refused.
    pub(super) fn make_room_for(&mut self, bytes: u64) -> Result<(), Rejection> {
        let limit = self.config.limits.spec_bytes;
        let live = self.spec_bytes - self.ended_spec_bytes;
        if live.saturating_add(bytes) > limit {
            return Err(Rejection::SpecBudgetExhausted { bytes, used: live, limit });
        }
        while self.spec_bytes.saturating_add(bytes) > limit {
            let Some((at, id)) = self.ended.into_iter().next().map(|(key, ())| *key) else { break };
            self.forget_job(at, id);
        }
        Ok(())
    }

    /// Forgets the oldest events when there are too many, but never those of the newest entry.
    pub(super) fn forget_events(&mut self) {
        let (entries, events) = (self.config.event_limit, self.config.limits.events);
        while self.history.len() as u64 > entries || (self.events_held > events && self.history.len() > 1) {
            let Some((oldest, entry)) = self.history.into_iter().next().map(|(at, entry)| (*at, entry.clone())) else {
                break;
            };
            self.history.remove_cow(&oldest);
            self.events_held -= entry.events.len() as u64;
            self.compacted = oldest;
        }
    }

    fn is_due(&self, at: LogTime, retention: std::time::Duration, held: u64, limit: u64) -> bool {
        held > limit || self.time.since(at) > retention
    }

    fn ended_jobs(&self) -> u64 {
        JobState::ALL.iter().filter(|state| state.is_terminal()).map(|state| self.job_count(*state)).sum()
    }

    /// Returns whether a request with this id, which is not remembered, may have been answered before. A floor beyond
    /// all clocks comes from a client whose clock was wrong, and is ignored.
    pub(super) fn may_be_forgotten(&self, id: RequestId) -> bool {
        let floor = self.request_floor;
        let says_something = floor != LogTime(0) && floor <= self.time.after(REQUEST_AHEAD);
        says_something && id.made_at().is_some_and(|made| made <= floor)
    }

    /// Returns whether an id was made within `REQUEST_AHEAD` of now, so that ids to come may be older. Such an id is
    /// remembered whatever the limits say: if it were forgotten, those ids would look old.
    fn is_of_now(&self, id: RequestId) -> bool {
        let lately = |made: LogTime| self.time.since(made) < REQUEST_AHEAD && made <= self.time.after(REQUEST_AHEAD);
        id.made_at().is_some_and(lately)
    }

    fn forget_request(&mut self, at: LogTime, id: RequestId) {
        self.request_times.remove_cow(&(at, id));
        self.requests.remove_cow(&id);
        self.requests_held -= 1;
        self.request_floor = self.request_floor.max(id.made_at().unwrap_or_default());
    }

    fn forget_job(&mut self, at: LogTime, id: JobId) {
        self.ended.remove_cow(&(at, id));
        if let Some(job) = self.jobs.remove_cow(&id) {
            self.count_job(job.state, false);
            self.spec_bytes -= job.spec.bytes();
            self.ended_spec_bytes -= job.spec.bytes();
            self.touched.push(Touched::Job(id));
            self.pending_events.push(Event::JobRemoved { job: id });
        }
    }
}
