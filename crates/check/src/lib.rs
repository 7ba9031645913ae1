//! Validates plans independently of the code that makes them: a plain model of the cards concerned, block by block, on
//! which the parts are carried out one after the other. It shares nothing with the index, so that a mistake in one is
//! seen by the other: it knows the ledger alone, and neither placement nor whoever else plans.

mod affinity;
mod grant;
mod host;
mod victims;
mod whole;
mod world;

use tessera_ledger::{AllocationId, CardId, Eligibility, HostRequest, JobId, JobState, NodeId, Plan, PlanPart, State};

use world::World;

/// A violation in one part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("part {part}: {problem}")]
pub struct Violation {
    /// Position of the part in the plan, from 0.
    pub part: usize,
    pub problem: Problem,
}

/// A way in which a part of a plan is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The job is not in a state in which this can be done, or another part has dealt with it.
    #[error("job {0} is not in a state for this, or another part of the plan deals with it")]
    JobNotReady(JobId),
    /// The gang is not whole, or its workers are not in order.
    #[error("job {0}: the gang is not whole, or its workers are not in order")]
    GangBroken(JobId),
    /// A virtual card has too little compute or memory.
    #[error("job {job}: virtual card {virtual_card} has too little compute or memory")]
    TooLittle { job: JobId, virtual_card: u32 },
    /// A virtual card spreads further than asked for, or mixes kinds.
    #[error("job {job}: virtual card {virtual_card} spreads further than asked for, or mixes kinds")]
    SpreadTooFar { job: JobId, virtual_card: u32 },
    /// A card is not of a class that the job accepts, or isolates too weakly.
    #[error("job {job} does not accept {card}")]
    CardNotAccepted { job: JobId, card: CardId },
    /// A node takes no new work, or lacks labels that the job asks for.
    #[error("job {job} cannot go to {node}")]
    NodeNotAccepted { job: JobId, node: NodeId },
    /// Blocks are neither free nor given back by a victim of the same part.
    #[error("blocks {start} to {end} of {card} are not free")]
    BlocksTaken {
        card: CardId,
        start: u32,
        /// Block after the last.
        end: u32,
    },
    /// A card has too little memory, or holds too many slices.
    #[error("{0} has too little memory left, or takes no further slice")]
    CardFull(CardId),
    /// A host has too little processor time or memory left.
    #[error("{node} has {} and {} of its host left, and job {job} asks for {} and {}", left.cpu, left.memory, asked.cpu, asked.memory)]
    HostFull {
        job: JobId,
        node: NodeId,
        /// The host resources that its workers there ask for.
        asked: HostRequest,
        left: HostRequest,
    },
    /// A card is not taken whole by a job that takes whole cards, or is shared with one.
    #[error("{card} is not taken whole, or somebody else has it whole: job {job}")]
    NotWhole { job: JobId, card: CardId },
    /// Workers that must share the value of a node label do not.
    #[error("the workers of job {0} are not together as it asks for")]
    NotTogether(JobId),
    /// A worker goes to a node that runs a job which its own avoids.
    #[error("job {job} avoids a job that runs on {node}")]
    BesideAvoided { job: JobId, node: NodeId },
    /// A queue would exceed its maximum.
    #[error("queue {0:?} would exceed its maximum")]
    QueueExceeded(String),
    /// A job must not be preempted for this one (law L4).
    #[error("job {victim} must not be preempted for job {beneficiary}")]
    NotPreemptible {
        /// The job that would be preempted.
        victim: JobId,
        /// For whom.
        beneficiary: JobId,
    },
    /// A job is preempted that gives nothing which the beneficiary gets (law L4).
    #[error("job {victim} would be preempted for job {beneficiary} in vain")]
    PreemptedInVain {
        /// The job that would be preempted.
        victim: JobId,
        /// For whom.
        beneficiary: JobId,
    },
    #[error("job {job} need not leave {node}")]
    NeedNotLeave { job: JobId, node: NodeId },
    /// Something on the card cannot be moved.
    #[error("{0} cannot be renumbered now")]
    CardPinned(CardId),
}

/// The holder of a block in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Granted(AllocationId),
    Planned(JobId),
}

/// Checks every part of a plan against the state and the parts before it.
///
/// # Errors
/// Everything that is wrong, in order of parts.
pub fn check(state: &State, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut world = World::new(state);
    let mut violations = Vec::new();
    for (part, planned) in plan.parts.iter().enumerate() {
        let problems = match planned {
            PlanPart::Grant { job, workers, victims } => grant::check(&mut world, *job, workers, victims),
            PlanPart::Move { job, workers } => grant::check_move(&mut world, *job, workers),
            PlanPart::Renumber { card } => world.renumber(*card),
            PlanPart::Evict { job, node } => check_evict(&mut world, *job, *node),
        };
        violations.extend(problems.err().into_iter().flatten().map(|problem| Violation { part, problem }));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn check_evict(world: &mut World<'_>, id: JobId, node: NodeId) -> Result<(), Vec<Problem>> {
    let state = world.state;
    let Some(job) = state.job(id) else { return Err(vec![Problem::JobNotReady(id)]) };
    let draining = state.node(node).is_some_and(|node| node.eligibility == Eligibility::Draining);
    let allocation = job.allocation.and_then(|id| state.allocation(id));
    let there = allocation.is_some_and(|allocation| allocation.workers.iter().any(|worker| worker.node == node));
    if !draining || !there {
        return Err(vec![Problem::NeedNotLeave { job: id, node }]);
    }
    let active = matches!(job.state, JobState::Starting | JobState::Running);
    if !active || !world.leaving.insert(id) {
        return Err(vec![Problem::JobNotReady(id)]);
    }
    victims::leave(world, job);
    Ok(())
}
