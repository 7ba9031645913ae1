//! Whoever computes is never taken for idle, and whoever is idle for long does not stay.
//!
//! Each step of idleness that the ledger takes is held against what the programs of the job really did: none is taken
//! for a job that computes all the time, that has the label which keeps it, or whose queue has no ladder; and none
//! before the programs have computed nothing for as long as the ladder says. Programs here stand still once in their
//! life, so that no work lies between two readings of idleness.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_agent::worker::WorkerId;
use tessera_ledger::{Command, IdleStep, Job, JobId, JobState, LogTime, Rank};

use super::leader::Leader;
use super::{Oracle, View, first_of};
use crate::journal::Applied;
use crate::workload::{KEPT, Ladder, WITH_LADDER};

/// Longest time after the end of its standing still at which a job may be reported idle: for so long a reading counts,
/// and for so long a command may be under way.
const LATE: Duration = Duration::from_secs(20);
/// Upper bound of the rate by which a member's clock goes faster than the others, in percent.
const DRIFT_PERCENT: u32 = 3;
/// Time for which everything must have been whole before a job that stands still has to be suspended in time.
const CALM: Duration = Duration::from_secs(15);
/// Tolerance of that suspension beyond the ladder: readings come with heartbeats and steps one after the other.
const SLACK: Duration = Duration::from_secs(6);

/// A step that was taken.
struct Step {
    job: JobId,
    step: IdleStep,
    workers: Vec<WorkerId>,
    seen: Duration,
}

#[derive(Default)]
pub struct Idle {
    /// Not yet held against the world.
    taken: Vec<Step>,
    leader: Leader,
    /// Since when each job is seen to run, or until when it was seen to compute, by any of its programs.
    running: BTreeMap<(JobId, u32), Duration>,
}

/// Returns whether a job may be reported idle at all.
fn may_be_told(job: &Job) -> bool {
    job.spec.queue == WITH_LADDER && job.spec.labels.get(KEPT.0).is_none_or(|value| value != KEPT.1)
}

/// Explains what is wrong with ending a job that is said to be idle since `since`.
fn released_too_soon(job: &Job, since: LogTime, now: LogTime) -> Option<&'static str> {
    let wrong = [
        (job.state != JobState::Suspended, "it is not suspended"),
        (job.idle_step() != Some(IdleStep::Suspended), "it was not suspended for being idle"),
        (job.idle.is_none_or(|idle| idle.since != since), "it was not idle since then"),
        (since.after(Ladder::AFTER_ALL) > now, "it has not been idle for so long"),
    ];
    first_of(wrong)
}

/// After how long each step may be taken that is taken while a job runs.
const fn due_after(step: IdleStep) -> Duration {
    match step {
        IdleStep::Noticed => Ladder::TOLD_AFTER,
        IdleStep::Preemptible => Ladder::GIVES_WAY_AFTER,
        IdleStep::Suspended | IdleStep::Released => Ladder::SUSPENDED_AFTER,
    }
}

impl Idle {
    fn note(&mut self, entry: &Applied, id: JobId, since: LogTime, step: IdleStep) -> Result<(), String> {
        let Some(job) = entry.before.job(id) else { return Ok(()) };
        let told = |why: &str| {
            Err(format!("revision {}: job {id} is {} for idleness, and {why}", entry.at.revision, step.name()))
        };
        if !may_be_told(job) {
            return told("nobody said that it may be");
        }
        if step == IdleStep::Released {
            return released_too_soon(job, since, entry.at.time).map_or(Ok(()), told);
        }
        let Some(held) = job.allocation.and_then(|own| entry.before.allocation(own)) else {
            return told("it holds nothing");
        };
        let worker = |worker: &tessera_ledger::Worker| WorkerId {
            allocation: held.id,
            epoch: held.epoch,
            rank: Rank(worker.rank.0),
        };
        let workers = held.workers.iter().map(worker).collect();
        self.taken.push(Step { job: id, step, workers, seen: entry.seen });
        Ok(())
    }

    /// Explains what is wrong with a step, by what the programs really did.
    fn untrue(view: &View<'_>, taken: &Step) -> Option<String> {
        // Nor does one compute that has ended, until its supervisor has confirmed that and its agent told it.
        let stood_still = taken.workers.iter().flat_map(|worker| {
            let fate = view.world.fate(*worker);
            fate.stands_still.into_iter().chain(fate.ended.map(|ended| (ended, view.now)))
        });
        let (began, ended): (Vec<Duration>, Vec<Duration>) = stood_still.unzip();
        let Some((began, ended)) = began.into_iter().min().zip(ended.into_iter().max()) else {
            return Some("it computes".to_owned());
        };
        let due = due_after(taken.step) * (100 - DRIFT_PERCENT) / 100;
        if taken.seen < began + due {
            return Some(format!("it computed until {began:?}"));
        }
        (taken.seen > ended + LATE).then(|| format!("it has been computing since {ended:?}"))
    }

    /// A job that has been standing still for so long that it must have been suspended.
    fn overlooked(&mut self, view: &View<'_>) -> Option<String> {
        let newest = view.newest()?;
        let runs = |job: &JobId| newest.job(*job).filter(|job| job.state == JobState::Running && may_be_told(job));
        let mut still: BTreeMap<(JobId, u32), Duration> = BTreeMap::new();
        for computation in view.world.live() {
            let Some(job) = runs(&JobId(computation.job)) else { continue };
            let since = computation.stands_still.filter(|(from, to)| (*from..*to).contains(&view.now));
            let since = since.map_or(view.now, |(from, _)| from);
            let last = still.entry((job.id, job.attempts)).or_default();
            *last = since.max(*last);
        }
        self.running.retain(|attempt, _| still.contains_key(attempt));
        still.into_iter().find_map(|(attempt, since)| {
            // One that computed may be gone since, and others go on standing still.
            let last = self.running.entry(attempt).or_insert(view.now);
            *last = since.max(*last);
            let since = (*last).max(self.leader.since());
            let (job, too_long) = (attempt.0, Ladder::SUSPENDED_AFTER + SLACK);
            (view.now > since + too_long).then(|| format!("job {job} computes nothing since {since:?}, and runs on"))
        })
    }
}

impl Oracle for Idle {
    fn name(&self) -> &'static str {
        "whoever computes is not idle, and whoever is idle does not stay"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for command in entry.done() {
            if let Command::NoteIdle { job, since, step: Some(step), .. } = command {
                self.note(entry, *job, *since, *step)?;
            }
        }
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        self.leader.look(view);
        for taken in std::mem::take(&mut self.taken) {
            if let Some(why) = Self::untrue(view, &taken) {
                let Step { job, step, seen, .. } = taken;
                return Err(format!("job {job} is {} for idleness at {seen:?}, and {why}", step.name()));
            }
        }
        if view.healed_for.is_none_or(|time| time < CALM) {
            return Ok(());
        }
        self.overlooked(view).map_or(Ok(()), Err)
    }
}
