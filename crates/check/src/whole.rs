//! Checks the cards that are taken whole: all of each, and nobody beside.

use std::collections::BTreeSet;

use tessera_ledger::{AllocationId, Job, JobId, PlannedWorker, Slice};

use crate::Problem;
use crate::world::{Block, World};

/// Checks before the blocks are taken: whoever has blocks of a card then, and does not give them back, shares it.
pub(crate) fn check(
    world: &mut World<'_>,
    job: &Job,
    workers: &[PlannedWorker],
    victims: &[JobId],
    problems: &mut Vec<Problem>,
) {
    let state = world.state;
    let whole = job.spec.virtual_card.whole_cards;
    let given: BTreeSet<AllocationId> = victims.iter().filter_map(|id| state.job(*id)?.allocation).collect();
    let slices: Vec<Slice> = workers.iter().flat_map(|worker| worker.slices.iter().copied()).collect();
    for (place, slice) in slices.iter().enumerate() {
        let twice = slices[..place].iter().any(|other| other.card == slice.card);
        let held_whole = world.taken_whole.contains(&slice.card)
            || state.allocations_on(slice.card.node).filter(|other| !given.contains(&other.id)).any(|other| {
                let takes = state.job(other.job).is_some_and(|holder| holder.spec.virtual_card.whole_cards);
                let live = other.workers.iter().filter(|worker| worker.exit.is_none());
                takes && live.flat_map(|worker| &worker.slices).any(|held| held.card == slice.card)
            });
        let Some(card) = world.card(slice.card) else { continue };
        let all = slice.start.0 == 0 && slice.length.0 == card.offered;
        let alone = card.blocks.iter().all(|block| match block {
            Block::Free | Block::Offline => true,
            Block::Movable(crate::Holder::Granted(holder)) => given.contains(holder),
            Block::Movable(crate::Holder::Planned(_)) | Block::Fixed => false,
        });
        if held_whole || whole && (twice || !all || !alone) {
            problems.push(Problem::NotWhole { job: job.id, card: slice.card });
        }
    }
    if whole {
        world.taken_whole.extend(slices.iter().map(|slice| slice.card));
    }
}
