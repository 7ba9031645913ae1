//! Trials on the index: a gang is placed as if some jobs had given back what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{Allocation, CardId, JobSpec, NodeId};

use super::Victim;
use crate::demand::Demand;
use crate::fit::Placement;
use crate::index::Index;
use crate::index::node::{Host, NodeEntry};
use crate::index::run::Run;
use crate::index::schedule::Held;
use crate::victims::live_slices;

/// Gives back in a trial what an allocation holds. Cards cannot be renumbered while it still holds what it gives.
pub(crate) fn vacate(index: &mut Index, allocation: &Allocation, spec: &JobSpec, still_holds: bool) {
    for slice in live_slices(allocation) {
        index.change(slice.card, |card| {
            card.free.give(Run { start: slice.start, length: slice.length });
            card.used = card.used.saturating_sub(slice.length.0);
            card.memory_free = card.memory_free.saturating_add(slice.memory.0).min(card.memory);
            card.slices = card.slices.saturating_sub(1);
            card.pinned |= still_holds;
        });
    }
    allocation.held_of_hosts(spec).for_each(|(node, held)| index.change_host(node, held, Host::more));
}

/// Returns the number of workers that the host of a node has room for once the allocations `gone`, of jobs with such
/// specs, have left; `u32::MAX`: not limited.
pub(crate) fn workers_without<'v>(
    node: &NodeEntry,
    demand: &Demand,
    gone: impl Iterator<Item = (&'v Allocation, &'v JobSpec)>,
) -> u32 {
    let host = node.host.filter(|_| !demand.host.is_zero());
    let Some((left, known)) = host.zip(node.node.as_ref()) else { return u32::MAX };
    let held = gone.flat_map(|(allocation, spec)| allocation.held_of_hosts(spec));
    let left = held.filter(|(of, _)| *of == known.id).fold(left, |left, (_, held)| left.more(held));
    demand.workers_in(left.left)
}

/// The blocks, memory and slices of a card that the allocations `gone` give back.
pub(super) fn given_on<'v>(card: CardId, gone: impl Iterator<Item = &'v Allocation>) -> Held {
    let mut sum = Held::default();
    for slice in gone.flat_map(live_slices).filter(|slice| slice.card == card) {
        sum.blocks = sum.blocks.saturating_add(slice.length.0.into());
        sum.memory = sum.memory.saturating_add(slice.memory.0);
        sum.slices = sum.slices.saturating_add(1);
    }
    sum
}

/// Places a gang as if these victims were gone, and undoes it.
pub(super) fn attempt<T>(index: &mut Index, victims: &[Arc<Victim>], place: impl FnOnce(&mut Index) -> T) -> T {
    index.try_out(|index| {
        victims.iter().for_each(|victim| vacate(index, &victim.allocation, &victim.job.spec, true));
        place(index)
    })
}

/// The victims that hold something on the cards, or of the hosts, that are granted; the others would be preempted
/// in vain.
pub(super) fn useful_for(placement: &Placement, spec: &JobSpec, victims: &[Arc<Victim>]) -> Vec<Arc<Victim>> {
    let cards: BTreeSet<CardId> = placement.slices().map(|slice| slice.card).collect();
    let hosts: BTreeSet<NodeId> = spec.asked_of_hosts(&placement.workers).map(|(node, _)| node).collect();
    let gives = |victim: &&Arc<Victim>| {
        live_slices(&victim.allocation).any(|slice| cards.contains(&slice.card))
            || victim.allocation.held_of_hosts(&victim.job.spec).any(|(node, _)| hosts.contains(&node))
    };
    victims.iter().filter(gives).cloned().collect()
}

/// Takes a grant with victims from the index: what was free is gone, and what the victims hold is spoken for.
pub(crate) fn take(index: &mut Index, placement: &Placement, spec: &JobSpec) {
    let asked = spec.asked_of_hosts(&placement.workers);
    asked.for_each(|(node, request)| index.change_host(node, request, Host::less));
    placement.renumbered.iter().for_each(|card| index.renumber(*card));
    for slice in placement.slices() {
        index.change(slice.card, |card| {
            card.free.remove(Run { start: slice.start, length: slice.length });
            card.memory_free = card.memory_free.saturating_sub(slice.memory.0);
            card.slices = card.slices.saturating_add(1);
            card.pinned = true;
        });
    }
}
