//! Judges since when each job is idle, and which step follows: readings in, commands out.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Command, IdlePolicy, IdleStep, Job, JobId, JobState, LogTime, State};
use tokio::time::Instant;

/// Most that the ledger is told after one look: whoever looks does so again soon.
const AT_ONCE: usize = 256;

/// The use of a job, every part of which is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// The arrival time of its oldest part.
    pub at: Instant,
    /// Share of what it may compute that it computed.
    pub utilization_ratio: f64,
}

/// The time of a look, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub now: Instant,
    pub log_now: LogTime,
}

impl Look {
    /// A moment before it, as the ledger dates it.
    fn dated(self, moment: Instant) -> LogTime {
        let ago = self.now.saturating_duration_since(moment);
        LogTime(self.log_now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// An attempt that was idle whenever it was looked at since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    attempt: u32,
    since: Instant,
}

/// The judgement on a job after a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Busy,
    IdleSince(Instant),
    /// Nobody knows, or it is neither: it stays where it is, and its time does not count.
    Neither,
}

/// The jobs observed so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    watched: BTreeMap<JobId, Watched>,
}

impl Judge {
    /// The commands that are due to the ledger, at most `AT_ONCE` of them; a later call returns the rest. `read`
    /// returns the use of a job, if that is known.
    pub(super) fn due(&mut self, state: &State, look: Look, read: impl Fn(&Job) -> Option<Reading>) -> Vec<Command> {
        let before = std::mem::take(&mut self.watched);
        let mut due: Vec<Command> = Vec::new();
        for (job, started) in running(state) {
            let Some(policy) = state.idle_policy(job) else {
                due.extend(job.idle.is_some().then(|| note(job, look.log_now, None)));
                continue;
            };
            // What was measured while it was prepared says nothing of what it does.
            let ran_then = |reading: &Reading| look.dated(reading.at) >= started;
            let reading = read(job).filter(|reading| reading.utilization_ratio.is_finite() && ran_then(reading));
            let known = before.get(&job.id).filter(|watched| watched.attempt == job.attempts);
            match (reading, seen(&policy, reading, known.map(|watched| watched.since))) {
                (_, Seen::Busy) => due.extend(job.idle.is_some().then(|| note(job, look.log_now, None))),
                (Some(reading), Seen::IdleSince(since)) => {
                    self.watched.insert(job.id, Watched { attempt: job.attempts, since });
                    // Only what lies between two readings was seen.
                    let idle_for = reading.at.saturating_duration_since(since);
                    let next = IdleStep::ALL.into_iter().filter(|step| *step < IdleStep::Released);
                    let next = next.filter(|step| Some(*step) > job.idle_step());
                    let step = next.filter_map(|step| Some((step, policy.after(step)?))).next();
                    let is_due = step.filter(|(_, after)| *after <= idle_for);
                    // Log time may go slower than the clock here; the job is no older than the ledger says.
                    let dated = look.dated(since).max(started);
                    due.extend(is_due.map(|(step, _)| note(job, dated, Some(step))));
                }
                (_, Seen::Neither | Seen::IdleSince(_)) => {}
            }
        }
        let released = |job: &Arc<Job>| {
            let since = state.release_due(job, look.log_now)?;
            Some(note(job, since, Some(IdleStep::Released)))
        };
        due.extend(state.idle_jobs().filter_map(released));
        due.truncate(AT_ONCE);
        due
    }
}

/// The jobs that run, each with the time since when all of it does.
fn running(state: &State) -> impl Iterator<Item = (&Arc<Job>, LogTime)> {
    state.allocations().filter_map(|allocation| {
        let job = state.job(allocation.job)?;
        let runs = job.state == JobState::Running && job.allocation == Some(allocation.id);
        runs.then_some(job).zip(allocation.started_at)
    })
}

/// Judges a job by its newest reading; `since`: the time since when it is idle, if it is.
fn seen(policy: &IdlePolicy, reading: Option<Reading>, since: Option<Instant>) -> Seen {
    let Some(Reading { at, utilization_ratio }) = reading else { return Seen::Neither };
    let percent = utilization_ratio * 100.0;
    if percent >= f64::from(policy.busy_from().0) {
        Seen::Busy
    } else if percent < f64::from(policy.below.0) {
        Seen::IdleSince(since.unwrap_or(at))
    } else {
        since.map_or(Seen::Neither, Seen::IdleSince)
    }
}

fn note(job: &Job, since: LogTime, step: Option<IdleStep>) -> Command {
    Command::NoteIdle { job: job.id, attempt: job.attempts, since, step }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
