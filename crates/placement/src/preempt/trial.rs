//! Trials on the index: a gang is placed as if some jobs had given back what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{Allocation, CardId, HostRequest, NodeId};

use super::Victim;
use crate::demand::Demand;
use crate::fit::Placement;
use crate::index::Index;
use crate::index::node::{Host, NodeEntry};
use crate::index::run::Run;
use crate::index::schedule::Held;
use crate::victims::{live_slices, live_workers};

/// Gives back in a trial what an allocation holds. Cards cannot be renumbered while it still holds what it gives.
pub(crate) fn vacate(index: &mut Index, allocation: &Allocation, host: HostRequest, still_holds: bool) {
    for slice in live_slices(allocation) {
        index.change(slice.card, |card| {
            card.free.give(Run { start: slice.start, length: slice.length });
            card.used = card.used.saturating_sub(slice.length.0);
            card.memory_free = card.memory_free.saturating_add(slice.memory.0).min(card.memory);
            card.slices = card.slices.saturating_sub(1);
            card.pinned |= still_holds;
        });
    }
    live_workers(allocation).for_each(|worker| index.change_host(worker.node, host, Host::more));
}

/// How many workers the host of a node has room for once these are gone, of whom each worker holds so much.
pub(crate) fn workers_without<'v>(
    node: &NodeEntry,
    demand: &Demand,
    gone: impl Iterator<Item = (&'v Allocation, HostRequest)>,
) -> u32 {
    let Some((left, known)) = node.host.zip(node.node.as_ref()) else { return u32::MAX };
    let left = gone.fold(left, |left, (allocation, host)| {
        let there = live_workers(allocation).filter(|worker| worker.node == known.id).count();
        left.more(host.times(u32::try_from(there).unwrap_or(u32::MAX)))
    });
    demand.workers_in(left.left)
}

/// What these give back of a card.
pub(crate) fn given_on<'v>(card: CardId, gone: impl Iterator<Item = &'v Allocation>) -> Held {
    let there = gone.flat_map(live_slices).filter(|slice| slice.card == card);
    there.fold(Held::default(), |sum, slice| Held {
        blocks: sum.blocks.saturating_add(slice.length.0.into()),
        memory: sum.memory.saturating_add(slice.memory.0),
        slices: sum.slices.saturating_add(1),
    })
}

/// Places a gang as if these victims were gone, and undoes it.
pub(super) fn attempt<T>(index: &mut Index, victims: &[Arc<Victim>], place: impl FnOnce(&mut Index) -> T) -> T {
    index.try_out(|index| {
        victims.iter().for_each(|victim| vacate(index, &victim.allocation, victim.job.spec.host, true));
        place(index)
    })
}

/// The victims that hold something on the cards, or of the hosts, that are granted; the others would be preempted
/// in vain.
pub(super) fn useful_for(placement: &Placement, host: HostRequest, victims: &[Arc<Victim>]) -> Vec<Arc<Victim>> {
    let cards: BTreeSet<CardId> = placement.slices().map(|slice| slice.card).collect();
    let nodes: BTreeSet<NodeId> = placement.workers.iter().map(|worker| worker.node).collect();
    let gives = |victim: &&Arc<Victim>| {
        let on_hosts = !host.is_zero() && !victim.job.spec.host.is_zero();
        live_slices(&victim.allocation).any(|slice| cards.contains(&slice.card))
            || on_hosts && live_workers(&victim.allocation).any(|worker| nodes.contains(&worker.node))
    };
    victims.iter().filter(gives).cloned().collect()
}

/// Takes a grant with victims from the index: what was free is gone, and what the victims hold is spoken for.
pub(crate) fn take(index: &mut Index, placement: &Placement, host: HostRequest) {
    placement.workers.iter().for_each(|worker| index.change_host(worker.node, host, Host::less));
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
