//! Time windows: outside of them nothing of a queue or job is granted, and what ran there is told to stop and stops;
//! inside of them nobody is stopped for them.
//!
//! When windows are open is reckoned here from the seconds of log time alone, without a calendar: those of these pools
//! open at the beginning of each minute. What nobody was there to do in time is not asked for: it counts from when the
//! same member leads and can write. One that is new, or was without a quorum, may grant something before it has looked
//! at the windows.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::{Command, Event, Job, JobId, JobState, LogTime, OnDisconnect, Reason, State, WindowOf};

use super::leader::Leader;
use super::wishes::granted;
use super::{Oracle, View, first_of};
use crate::journal::Applied;
use crate::workload::{OWN_WINDOW, SHIFT, SHIFT_WINDOW, Window};

/// Within so long of the edge of a window, and of its own election, a leader tells the ledger of it, whatever slow
/// disks and lost messages do.
const TOLD_WITHIN: Duration = Duration::from_secs(6);
/// Tolerance for the end of a worker beside its grace: its lease may have to end, its kill may hang, and nobody may
/// look for what it forked.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Period at which windows open, in milliseconds.
const MINUTE: u64 = 60_000;

/// A grant outside of the windows.
struct Grant {
    job: JobId,
    closed_for: Duration,
    seen: Duration,
}

#[derive(Default)]
pub struct Windows {
    leader: Leader,
    /// Grants outside of windows that are to be looked at.
    granted: Vec<Grant>,
    /// Since when each job is seen to hold blocks outside of its windows, without having been told.
    untold: BTreeMap<JobId, Duration>,
    /// Time at which each job was told to stop because a window closed.
    told: BTreeMap<JobId, Duration>,
}

/// For how long a window has been closed; `None`: it is open.
fn closed_for(window: &Window, now: LogTime) -> Option<Duration> {
    Duration::from_millis(now.0 % MINUTE).checked_sub(window.lasts)
}

/// For how long a job has been outside of its own windows or its queue's; `None`: it may run.
fn outside_for(job: &Job, now: LogTime) -> Option<Duration> {
    let of_queue = (job.spec.queue == SHIFT).then_some(&SHIFT_WINDOW);
    let own = (!job.spec.windows.is_empty()).then_some(&OWN_WINDOW);
    of_queue.into_iter().chain(own).filter_map(|window| closed_for(window, now)).max()
}

/// Explains what is wrong with a report to the ledger of the windows of a queue or job.
fn wrong_word(whose: &WindowOf, time: LogTime, now: LogTime) -> Option<&'static str> {
    let window = match whose {
        WindowOf::Queue(name) if name == SHIFT => &SHIFT_WINDOW,
        WindowOf::Queue(_) => return Some("it has none"),
        WindowOf::Job(_) => &OWN_WINDOW,
    };
    if time <= now {
        return None;
    }
    let wrong = [
        (closed_for(window, now).is_none(), "they are open"),
        (!time.0.is_multiple_of(MINUTE) || time.0 - now.0 > MINUTE, "they open at another time"),
    ];
    first_of(wrong)
}

impl Windows {
    fn note_words(entry: &Applied) -> Result<(), String> {
        for command in entry.done() {
            if let Command::CloseUntil { whose, time, .. } = command
                && let Some(why) = wrong_word(whose, *time, entry.at.time)
            {
                return Err(format!("revision {}: the windows of {whose:?} close, and {why}", entry.at.revision));
            }
        }
        Ok(())
    }

    fn note_stops(&mut self, entry: &Applied) -> Result<(), String> {
        for event in entry.events.iter() {
            let Event::Job { job, to, reason, .. } = event else { continue };
            if *to != JobState::Suspending {
                self.told.remove(job);
            } else if *reason == Reason::OutsideWindow {
                self.told.entry(*job).or_insert(entry.seen);
                if entry.after.job(*job).is_some_and(|job| outside_for(job, entry.at.time).is_none()) {
                    return Err(format!("revision {}: job {job} is stopped inside of its windows", entry.at.revision));
                }
            }
        }
        Ok(())
    }

    fn note_grants(&mut self, entry: &Applied) {
        for allocation in granted(entry) {
            let job = entry.after.job(allocation.job);
            if let Some(closed_for) = job.and_then(|job| outside_for(job, entry.at.time)) {
                self.granted.push(Grant { job: allocation.job, closed_for, seen: entry.seen });
            }
        }
    }

    /// Whoever leads for long enough grants nothing outside of windows.
    fn wrong_grant(&mut self) -> Option<String> {
        let (granted, led_since) = (std::mem::take(&mut self.granted), self.leader.since());
        granted.into_iter().find_map(|Grant { job, closed_for, seen }| {
            let knew = closed_for > TOLD_WITHIN && seen > led_since + TOLD_WITHIN;
            knew.then(|| format!("job {job} is granted blocks at {seen:?}, outside of its windows for {closed_for:?}"))
        })
    }

    /// Whoever leads for long enough has told every job that is outside of its windows.
    fn not_told(&mut self, state: &State, now: Duration) -> Option<String> {
        let holds = |job: &&std::sync::Arc<Job>| {
            matches!(job.state, JobState::Starting | JobState::Running | JobState::Moving)
                && outside_for(job, state.time()).is_some()
        };
        let holders = state.allocations().filter_map(|held| state.job(held.job)).filter(holds);
        let before = std::mem::take(&mut self.untold);
        let since = |job: JobId| before.get(&job).copied().unwrap_or(now);
        self.untold = holders.map(|job| (job.id, since(job.id))).collect();
        let led_since = self.leader.since();
        let late = self.untold.iter().find(|(_, since)| now > led_since.max(**since) + TOLD_WITHIN);
        late.map(|(job, since)| format!("job {job} runs outside of its windows since {since:?}, and is not stopped"))
    }

    /// Finds a job that was told to stop long enough ago and still computes.
    fn not_stopped(&self, view: &View<'_>, state: &State) -> Option<String> {
        view.world.live().into_iter().find_map(|computation| {
            let job = state.job(JobId(computation.job))?;
            let told = *self.told.get(&job.id)?;
            // One that goes on without a lease cannot be told.
            let obeys = job.spec.on_disconnect == OnDisconnect::Stop;
            let late = obeys && view.now > told + job.spec.checkpoint.grace + ENDS_WITHIN;
            late.then(|| format!("job {} was stopped at {told:?}, its windows being closed, and computes", job.id))
        })
    }
}

impl Oracle for Windows {
    fn name(&self) -> &'static str {
        "work keeps to its time windows"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        Self::note_words(entry)?;
        self.note_stops(entry)?;
        self.note_grants(entry);
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        self.leader.look(view);
        let Some(newest) = view.newest() else { return Ok(()) };
        let wrong = self.wrong_grant().or_else(|| self.not_told(newest, view.now));
        wrong.or_else(|| self.not_stopped(view, newest)).map_or(Ok(()), Err)
    }
}
