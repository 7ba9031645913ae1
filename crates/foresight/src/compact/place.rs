//! Writing moves down: which blocks of its target cards a job gets, and the move of a single job that an operator
//! asks for.

use std::collections::BTreeMap;

use tessera_check::Problem;
use tessera_ledger::{
    BlockCount, BlockIndex, BlockState, CardId, JobId, JobState, LogTime, Mebibytes, NodeId, Plan, PlannedWorker,
    Slice, State, WorkerState,
};
use tessera_placement::{Loss, PlannedMove, Pool, has_company};

use super::view::{Piece, can_renumber};

/// The reason why a job cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveRefusal {
    #[error("there is no job {0}")]
    UnknownJob(JobId),
    /// It does not run, or not all of it.
    #[error("job {job} is {}: only a job all of whose workers run can be moved", .state.name())]
    NotRunning { job: JobId, state: JobState },
    /// It asks for places that depend on its other workers or on other jobs.
    #[error("job {0} is bound to its place by affinity: suspend the job instead, it resumes where it fits")]
    Bound(JobId),
    /// No other card that it may go on with has room for it.
    #[error("no other card that it may go on with{} has room for job {job} while it still holds its place", .node.map(|node| format!(" on {node}")).unwrap_or_default())]
    NoRoom {
        job: JobId,
        /// The node that it was to go to; `None`: any.
        node: Option<NodeId>,
    },
    /// The ledger would not take it.
    #[error("job {job} cannot be moved: {problem}")]
    Refused { job: JobId, problem: Box<Problem> },
}

/// Plans the move of one job to other cards, on a given node or wherever it costs least: by the same mover that makes
/// room for waiting jobs.
///
/// # Errors
/// [`MoveRefusal`], which says what to do instead where there is something.
pub fn move_job(state: &State, now: LogTime, id: JobId, to: Option<NodeId>) -> Result<PlannedMove, MoveRefusal> {
    let job = state.job(id).ok_or(MoveRefusal::UnknownJob(id))?;
    if job.state != JobState::Running {
        return Err(MoveRefusal::NotRunning { job: id, state: job.state });
    }
    let allocation = job.allocation.and_then(|id| state.allocation(id));
    if !allocation
        .is_some_and(|allocation| allocation.workers.iter().all(|worker| worker.state == WorkerState::Running))
    {
        return Err(MoveRefusal::NotRunning { job: id, state: job.state });
    }
    if has_company(job) {
        return Err(MoveRefusal::Bound(id));
    }
    let planned = Pool::new(state).move_one(state, now, id, to).ok_or(MoveRefusal::NoRoom { job: id, node: to })?;
    let plan = Plan { revision: state.revision(), parts: planned.parts() };
    match tessera_check::check(state, &plan) {
        Ok(()) => Ok(planned),
        Err(violations) => match violations.into_iter().next() {
            Some(violation) => Err(MoveRefusal::Refused { job: id, problem: Box::new(violation.problem) }),
            None => Ok(planned),
        },
    }
}

/// Gives each piece blocks of its target card; cards without a long enough run are renumbered first. `None` when that
/// cannot be.
pub(super) fn write_down(state: &State, id: JobId, pieces: &[Piece], targets: &[CardId]) -> Option<PlannedMove> {
    let job = state.job(id)?;
    let source = state.allocation(job.allocation?)?;
    let mut asked: BTreeMap<CardId, Vec<u32>> = BTreeMap::new();
    for (piece, target) in pieces.iter().zip(targets) {
        asked.entry(*target).or_default().push(piece.blocks);
    }
    let mut renumbered = Vec::new();
    let mut starts: BTreeMap<CardId, std::vec::IntoIter<u32>> = BTreeMap::new();
    for (card, lengths) in asked {
        let given = match runs(state, card, &lengths) {
            Some(given) => given,
            None => {
                renumbered.push(card);
                behind(state, card, &lengths)?
            }
        };
        starts.insert(card, given.into_iter());
    }
    let mut workers = Vec::with_capacity(pieces.len());
    for ((piece, target), worker) in pieces.iter().zip(targets).zip(source.workers.iter()) {
        let slice = Slice {
            card: *target,
            start: BlockIndex(starts.get_mut(target)?.next()?),
            length: BlockCount(piece.blocks),
            memory: Mebibytes(piece.memory),
            isolation: worker.slices.first()?.isolation,
        };
        workers.push(PlannedWorker { virtual_card: piece.virtual_card, node: target.node, slices: vec![slice] });
    }
    let from = source.workers.iter().flat_map(|worker| worker.slices.iter().copied()).collect();
    Some(PlannedMove { job: id, from, workers, renumbered, loss: Loss::default(), makes_room_for: None })
}

/// The first free runs of a card that are long enough, one after the other.
fn runs(state: &State, card: CardId, lengths: &[u32]) -> Option<Vec<u32>> {
    let card = state.card(card)?;
    let free = card.extents.as_slice().iter().filter(|extent| extent.state == BlockState::Free);
    let mut free: Vec<(u32, u32)> = free.map(|extent| (extent.start.0, extent.length.0)).collect();
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let run = free.iter_mut().filter(|(_, left)| left >= length).min_by_key(|(start, left)| (*left, *start))?;
        starts.push(run.0);
        *run = (run.0 + length, run.1 - length);
    }
    Some(starts)
}

/// Places behind everything in use, once the card is renumbered.
fn behind(state: &State, card: CardId, lengths: &[u32]) -> Option<Vec<u32>> {
    let card = state.card(card).filter(|card| can_renumber(card))?;
    let in_use = card.extents.as_slice().iter().filter(|extent| extent.state.owner().is_some());
    let mut next: u32 = in_use.map(|extent| extent.length.0).sum();
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        starts.push(next);
        next = next.checked_add(*length).filter(|end| *end <= card.blocks.0)?;
    }
    Some(starts)
}

/// The cards whose free blocks are not one run and could be.
pub(super) fn scattered(state: &State) -> impl Iterator<Item = CardId> {
    state.cards().filter_map(|(id, card)| {
        let free = card.extents.as_slice().iter().filter(|extent| extent.state == BlockState::Free).count();
        (free > 1 && can_renumber(card)).then_some(id)
    })
}
