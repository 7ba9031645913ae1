//! A job that is moved has one place: the old one or the new one.
//!
//! * As long as the source has not stopped, nothing is started at the target, and the job is held by the source. Once
//!   it has, nothing of it is left in the ledger.
//! * When a move is over the job is at its source or its target, or nowhere because it waits or has ended; the other
//!   place is given back, or told to stop.

use tessera_ledger::{Allocation, AllocationId, AllocationPhase, Event, Job, JobState, Move, MoveId, MovePhase, State};

use super::{Oracle, first_of};
use crate::journal::Applied;

pub struct Moves;

fn phase_of(state: &State, id: AllocationId) -> Option<AllocationPhase> {
    state.allocation(id).map(|held| held.phase)
}

/// Explains what is wrong with a move at its step.
fn astray(state: &State, movement: &Move, job: &Job) -> Option<&'static str> {
    let (source, target) = (phase_of(state, movement.source), phase_of(state, movement.target));
    let holds = |id: AllocationId| job.allocation == Some(id);
    match movement.phase {
        MovePhase::Reserved | MovePhase::Suspending => first_of([
            (target != Some(AllocationPhase::Reserved), "its target is more than reserved, or is gone"),
            (source.is_none() || !holds(movement.source), "its source does not hold the job"),
        ]),
        MovePhase::Transferring => first_of([
            (target != Some(AllocationPhase::Reserved), "its target is more than reserved, or is gone"),
            (source.is_some(), "its source has stopped, and is there"),
            (job.allocation.is_some(), "something holds the job, and nothing of it runs"),
        ]),
        MovePhase::Resuming => first_of([
            (target != Some(AllocationPhase::Active), "its target is not in force"),
            (source.is_some(), "its source has stopped, and is there"),
            (!holds(movement.target), "its target does not hold the job"),
        ]),
    }
}

/// Explains what is wrong with where a move has left its job. An entry may grant it another place by the time that it
/// is over.
fn left_wrong(entry: &Applied, movement: &Move) -> Option<&'static str> {
    let state = &entry.after;
    let job = state.job(movement.job)?;
    let in_force = |held: &Allocation| {
        held.job == job.id && matches!(held.phase, AllocationPhase::Active | AllocationPhase::Waiting)
    };
    let places: Vec<&Allocation> = state.allocations().map(|held| &**held).filter(|held| in_force(held)).collect();
    let own = [movement.source, movement.target];
    let elsewhere = |held: &&Allocation| !own.contains(&held.id) && held.epoch.0 < entry.at.revision.0;
    first_of([
        (job.moving == Some(movement.id), "its job is still said to be moved"),
        (places.len() > 1, "its job has two places"),
        (places.iter().any(elsewhere), "its job is where it was not and was not meant to be"),
        (job.state == JobState::Running && places.is_empty(), "its job is said to run, and has no place"),
        (places.iter().any(|held| job.allocation != Some(held.id)), "its job is held by another place"),
    ])
}

const fn moved(event: &Event) -> Option<MoveId> {
    match event {
        Event::Move { id, .. } => Some(*id),
        _ => None,
    }
}

impl Oracle for Moves {
    fn name(&self) -> &'static str {
        "a job that is moved has one place"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for id in entry.events.iter().filter_map(moved) {
            let (before, after) = (entry.before.move_in_progress(id), entry.after.move_in_progress(id));
            let Some(movement) = after.or(before) else { continue };
            let Some(job) = entry.after.job(movement.job) else { continue };
            let wrong = match after {
                Some(movement) => astray(&entry.after, movement, job),
                None => left_wrong(entry, movement),
            };
            if let Some(what) = wrong {
                return Err(format!("revision {}: move {} of job {}: {what}", entry.at.revision, id.0, job.id));
            }
        }
        Ok(())
    }
}
