//! Checks who gives way for a grant (law L4): lower priorities of the same queue, or what another queue holds above its
//! guarantee for one whose branch stays within its own. Nobody in vain.

use std::collections::BTreeSet;
use std::time::Duration;

use tessera_ledger::standing::{self, HEAD_START};
use tessera_ledger::{
    AllocationPhase, AttainedOrder, CardId, CheckpointMode, Job, JobId, JobState, LogTime, PlannedWorker, QueueAmount,
    WorkerState,
};

use crate::Problem;
use crate::grant::{amount, held_by};
use crate::host;
use crate::world::World;

pub(crate) fn check(
    world: &mut World<'_>,
    job: &Job,
    workers: &[PlannedWorker],
    victims: &[JobId],
    problems: &mut Vec<Problem>,
) {
    let state = world.state;
    let granted: BTreeSet<CardId> = workers.iter().flat_map(|worker| &worker.slices).map(|slice| slice.card).collect();
    let hosts = host::asked_by(&job.spec, workers);
    let asked = amount(world, workers.iter().flat_map(|worker| worker.slices.iter().copied()));
    let mine = without_victims(world, job, victims);
    for id in victims {
        let refused = Problem::NotPreemptible { victim: *id, beneficiary: job.id };
        let Some(victim) = state.job(*id) else {
            problems.push(refused);
            continue;
        };
        let allocation = victim.allocation.and_then(|id| state.allocation(id));
        let active = allocation.is_some_and(|allocation| allocation.phase == AllocationPhase::Active)
            && matches!(victim.state, JobState::Starting | JobState::Running);
        let allowed = match victim.spec.queue == job.spec.queue {
            true => gives_way_to(world, victim, job),
            false => may_be_recalled(world, victim, asked, &mine),
        };
        let short = allocation.is_some_and(|allocation| {
            let since = allocation.started_at.unwrap_or(allocation.granted_at);
            ran_too_short(world, victim, since, victim.spec.queue != job.spec.queue)
        });
        if !allowed || !active || short || is_spared(world, victim, job) || !world.leaving.insert(*id) {
            problems.push(refused);
            continue;
        }
        let workers_held = allocation.into_iter().flat_map(|allocation| allocation.workers.iter());
        let held = || workers_held.clone().filter(|worker| worker.state != WorkerState::Stopped);
        let on_hosts = allocation
            .is_some_and(|allocation| host::held_by(&victim.spec, allocation).any(|node| hosts.contains(&node)));
        if !on_hosts && !held().flat_map(|worker| &worker.slices).any(|slice| granted.contains(&slice.card)) {
            problems.push(Problem::PreemptedInVain { victim: *id, beneficiary: job.id });
        }
        leave(world, victim);
    }
}

/// Within a queue: a lower priority, where waiting for grants counts for the one that holds blocks; or, where the order
/// is by attained service, what [`falls_behind`] says.
fn gives_way_to(world: &World<'_>, victim: &Job, job: &Job) -> bool {
    if let Some(order) = world.state.queue(&job.spec.queue).and_then(|queue| queue.settings.attained) {
        return victim.is_preemptible() && falls_behind(world, order, victim, job);
    }
    let seniority = victim.waited.as_millis() / HEAD_START.as_millis();
    victim.is_preemptible() && u128::from(victim.spec.priority) + seniority < u128::from(job.spec.priority)
}

/// By attained service: a job of a lower priority; or, for one that is guarded, any that is not; or one of the same
/// priority in a higher band, where neither is guarded. The latter two only if it goes on later, has run for five
/// minutes and was not suspended within the hour.
fn falls_behind(world: &World<'_>, order: AttainedOrder, victim: &Job, job: &Job) -> bool {
    let band = |job: &Job| {
        let attained = job.attained(world.state.time()).as_millis();
        let end = |band: u32| order.first_band.as_millis().saturating_mul(u128::from(order.ratio).saturating_pow(band));
        (0..order.bands - 1).take_while(|band| attained >= end(*band)).count()
    };
    let lower = victim.spec.priority < job.spec.priority;
    let allowed = match (job.guarded, victim.guarded) {
        (true, false) => true,
        (false, true) => false,
        (true, true) => lower,
        (false, false) => lower || victim.spec.priority == job.spec.priority && band(victim) > band(job),
    };
    if lower {
        return allowed;
    }
    let goes_on = victim.spec.checkpoint.mode != CheckpointMode::Requeue;
    let started = victim.history.last().map(|attempt| attempt.started_at.unwrap_or(attempt.granted_at));
    let has_run = started.is_some_and(|started| world.state.time().since(started) >= Duration::from_secs(300));
    let lately = victim.preempted_at.iter().any(|at| world.state.time().since(*at) < Duration::from_secs(3600));
    allowed && goes_on && (has_run || victim.gives_way_for_idleness()) && !lately
}

/// Returns whether the victim has not run as long as it asked to; when it is recalled from another queue, at most an
/// hour of that counts.
fn ran_too_short(world: &World<'_>, victim: &Job, since: LogTime, recalled: bool) -> bool {
    let hour = Duration::from_secs(3600);
    if victim.gives_way_for_idleness() {
        return false;
    }
    let asked = if recalled { victim.spec.min_runtime.min(hour) } else { victim.spec.min_runtime };
    world.state.time().since(since) < asked
}

/// Returns whether the victim gave way too often within the last hour.
fn is_spared(world: &World<'_>, victim: &Job, job: &Job) -> bool {
    let hour = |at: &&LogTime| world.state.time().since(**at) < Duration::from_secs(3600);
    let recent = victim.preempted_at.iter().filter(hour).count();
    let limit = world.state.config().preemptions_per_hour as usize;
    recent >= if victim.spec.queue == job.spec.queue { limit } else { limit.max(1) }
}

/// The amount that the queue of the job, and each queue above it, holds once all victims are gone.
fn without_victims(world: &World<'_>, job: &Job, victims: &[JobId]) -> Vec<(String, QueueAmount)> {
    let left = |name: String| {
        let below = victims.iter().filter_map(|id| world.state.job(*id));
        let below = below.filter(|victim| world.queue_line(&victim.spec.queue).contains(&name));
        let held = world.queues.get(&name).copied().unwrap_or_default().standing;
        let left = below.fold(held, |left, victim| left.minus(held_by(world, victim)));
        (name, left)
    };
    world.queue_line(&job.spec.queue).into_iter().map(left).collect()
}

/// Between queues, by the ledger's rule: what the job's highest queue that is not above the victim too holds when all
/// victims are gone, and, those victims gone that come before this one, what the jobs hold that name the victim's
/// queue, and all of its queues that are not above the job.
fn may_be_recalled(world: &World<'_>, victim: &Job, asked: QueueAmount, mine: &[(String, QueueAmount)]) -> bool {
    let theirs = world.queue_line(&victim.spec.queue);
    let guaranteed = |name: &String| world.state.queue(name).map(|queue| queue.settings.guaranteed).unwrap_or_default();
    let highest_apart = mine.iter().rfind(|(name, _)| !theirs.contains(name));
    let branch = highest_apart.map(|(name, left)| standing::Held {
        all: *left,
        firm: QueueAmount::default(),
        guaranteed: guaranteed(name),
    });
    let apart = theirs.iter().filter(|name| mine.iter().all(|(other, _)| other != *name));
    let own = std::iter::once(beside_those_below(world, &victim.spec.queue));
    let lenders = own.chain(apart.map(|name| held_in(world, name)));
    standing::may_recall(asked, branch, lenders, held_by(world, victim), victim.is_preemptible()).is_ok()
}

/// The amount that a queue holds, and its guarantee.
fn held_in(world: &World<'_>, name: &str) -> standing::Held {
    let held = world.queues.get(name).copied().unwrap_or_default();
    let guaranteed = world.state.queue(name).map(|queue| queue.settings.guaranteed).unwrap_or_default();
    standing::Held { all: held.standing, firm: held.firm, guaranteed }
}

/// The same of the jobs that name a queue: what its guarantee leaves beside those of the queues below it.
fn beside_those_below(world: &World<'_>, name: &str) -> standing::Held {
    let below = world.state.queues().filter(|below| below.settings.parent == *name);
    below.fold(held_in(world, name), |own, below| {
        let theirs = held_in(world, &below.settings.name);
        standing::Held { guaranteed: own.guaranteed.minus(theirs.guaranteed), ..own.without(theirs.all, theirs.firm) }
    })
}

/// A job is told to stop: its queues are counted without it at once.
pub(crate) fn leave(world: &mut World<'_>, victim: &Job) {
    let amount = held_by(world, victim);
    for name in world.queue_line(&victim.spec.queue) {
        let held = world.queues.entry(name).or_default();
        held.standing = held.standing.minus(amount);
        if !victim.is_preemptible() {
            held.firm = held.firm.minus(amount);
        }
    }
}
