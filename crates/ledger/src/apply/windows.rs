//! Time windows close: see [`window`](crate::window).

use std::sync::Arc;

use super::Applied;
use crate::command::Outcome;
use crate::event::Event;
use crate::queue::QueueSettings;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::LogTime;
use crate::window::{UNKNOWN, WindowOf, opening};

/// Until when something is closed whose windows are new.
pub(super) fn closed_at_first(windows: &[String]) -> LogTime {
    if windows.is_empty() { LogTime::default() } else { UNKNOWN }
}

/// The same of a queue whose settings change: what its windows were judged to be holds for as long as they are the
/// same.
pub(super) fn closed_after(known: &QueueSettings, closed_until: LogTime, settings: &QueueSettings) -> LogTime {
    if known.windows == settings.windows { closed_until } else { closed_at_first(&settings.windows) }
}

impl State {
    /// Nothing of a queue or job is granted before `time`, and what runs of it is suspended if that is yet to come.
    /// What was judged of other `windows` than those that it has now counts for nothing.
    pub(super) fn close_until(&mut self, whose: &WindowOf, windows: &[String], time: LogTime) -> Applied {
        let now = self.time;
        let check = |has: &[String]| match has == windows && !has.is_empty() {
            true => Ok(()),
            false => Err(Rejection::invalid("windows", "are not those that it has now; judge them again")),
        };
        match whose {
            WindowOf::Queue(name) => {
                let queue = self.queues.get(name).ok_or_else(|| Rejection::UnknownQueue(name.clone()))?;
                check(&queue.settings.windows)?;
                self.with_queue(name, |queue| queue.closed_until = time);
                self.pending_events.push(Event::Queue { name: name.clone() });
            }
            WindowOf::Job(id) => {
                let job = self.known_job(*id)?;
                check(if job.has_windows() { &job.spec.windows } else { &[] })?;
                self.with_job(*id, |job| {
                    job.closed_until = time;
                    if job.is_waiting() {
                        let opens = Some(opening(time)).filter(|opens| *opens > now);
                        job.queued_at = opens.unwrap_or_else(|| job.waiting_since().min(now));
                    }
                });
            }
        }
        // That nobody knows when it opens keeps work from starting, and stops none.
        if time > now && time != UNKNOWN {
            for job in self.running_within(whose) {
                self.begin_suspension(job, Reason::OutsideWindow);
            }
        }
        Ok(Outcome::Done)
    }

    /// Refuses blocks to a job that is closed.
    pub(super) fn validate_windows(&self, job: &Arc<crate::job::Job>) -> Result<(), Rejection> {
        if self.queue_closed_until(&job.spec.queue) > self.time {
            let action = "granted blocks now: its queue is outside of its time windows";
            return Err(Rejection::IllegalTransition { job: job.id, state: job.state, action });
        }
        Ok(())
    }
}
