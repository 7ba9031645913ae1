//! Gangs have as many virtual cards as they said that they can do with: never more than `gang`, never fewer than
//! `gang_min`. One is stopped to grow only when its job says that it may, while it has fewer than it would like, and
//! after it has run for as long as it asked to be left alone.

use tessera_ledger::{Command, Event, Job, JobId, JobState, Reason, State};

use super::wishes::granted;
use super::{Oracle, first_of};
use crate::journal::Applied;

pub struct Growth;

/// The jobs that an entry tells to grow.
fn told(entry: &Applied) -> impl Iterator<Item = JobId> {
    entry.done().filter_map(|command| match command {
        Command::GrowJob { job, .. } => Some(*job),
        _ => None,
    })
}

/// Explains what is wrong with stopping a job so that it grows, by the state before.
fn unasked(before: &State, entry: &Applied, job: &Job) -> Option<&'static str> {
    let Some(after) = job.spec.grow_after else { return Some("its job does not say that it may grow") };
    let Some(held) = job.allocation.and_then(|id| before.allocation(id)) else { return Some("it holds nothing") };
    let started = held.started_at;
    let wrong = [
        (job.spec.gang_min.is_none(), "its job takes a whole gang or nothing"),
        (held.virtual_cards() >= job.spec.gang, "it has all that it would like"),
        (started.is_none_or(|started| started.after(after) > entry.at.time), "it has not run for so long"),
    ];
    first_of(wrong)
}

impl Oracle for Growth {
    fn name(&self) -> &'static str {
        "gangs have as many virtual cards as they may"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        let revision = entry.at.revision;
        for allocation in granted(entry) {
            let Some(job) = entry.after.job(allocation.job) else { continue };
            let (has, most) = (allocation.virtual_cards(), job.spec.gang);
            let least = job.spec.gang_min.unwrap_or(most);
            if has < least || has > most {
                return Err(format!(
                    "revision {revision}: job {} gets {has} virtual cards of {least} to {most}",
                    job.id
                ));
            }
        }
        let grows: Vec<JobId> = told(entry).collect();
        for id in &grows {
            let job = entry.before.job(*id);
            if let Some(why) = job.and_then(|job| unasked(&entry.before, entry, job)) {
                return Err(format!("revision {revision}: job {id} is stopped to grow, and {why}"));
            }
        }
        for event in entry.events.iter() {
            if let Event::Job { job, to: JobState::Suspending, reason: Reason::Growing, .. } = event
                && entry.before.job(*job).is_none_or(|before| before.state != JobState::Suspending)
                && !grows.contains(job)
            {
                return Err(format!("revision {revision}: job {job} is stopped to grow, and nobody said so"));
            }
        }
        Ok(())
    }
}
