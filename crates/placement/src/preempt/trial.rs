//! Trials on the index: a gang is placed as if some jobs had given back what they hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{Allocation, CardId, HostRequest, NodeId};

use super::Victim;
use crate::fit::Placement;
use crate::index::Index;
use crate::index::run::Run;
use crate::victims::{live_slices, live_workers};

/// Gives a victim's blocks back in a trial. Its cards cannot be renumbered meanwhile: it still holds what it gives.
fn give_back(index: &mut Index, victim: &Victim) {
    vacate(index, &victim.allocation, victim.host);
}

/// Gives back in a trial what a grant holds.
pub(crate) fn vacate(index: &mut Index, allocation: &Allocation, host: HostRequest) {
    for slice in live_slices(allocation) {
        index.change(slice.card, |card| {
            card.free.give(Run { start: slice.start, length: slice.length });
            card.used = card.used.saturating_sub(slice.length.0);
            card.memory_free = card.memory_free.saturating_add(slice.memory.0).min(card.memory);
            card.slices = card.slices.saturating_sub(1);
            card.pinned = true;
        });
    }
    for worker in live_workers(allocation) {
        index.give_host_back(worker.node, host);
    }
}

/// Places a gang as if these victims were gone, and undoes it.
pub(super) fn attempt<T>(index: &mut Index, victims: &[Arc<Victim>], place: impl FnOnce(&mut Index) -> T) -> T {
    let mark = index.mark();
    for victim in victims {
        give_back(index, victim);
    }
    let placed = place(index);
    index.undo_to(mark);
    placed
}

/// The victims that hold something on the cards, or of the hosts, that are granted; the others would be preempted
/// in vain.
pub(super) fn useful_for(placement: &Placement, host: HostRequest, victims: &[Arc<Victim>]) -> Vec<Arc<Victim>> {
    let cards: BTreeSet<CardId> = placement.slices().map(|slice| slice.card).collect();
    let nodes: BTreeSet<NodeId> = placement.workers.iter().map(|worker| worker.node).collect();
    let gives = |victim: &Arc<Victim>| {
        let on_hosts = !host.is_zero() && !victim.host.is_zero();
        live_slices(&victim.allocation).any(|slice| cards.contains(&slice.card))
            || on_hosts && live_workers(&victim.allocation).any(|worker| nodes.contains(&worker.node))
    };
    victims.iter().filter(|victim| gives(victim)).cloned().collect()
}

/// Takes a grant with victims from the index: what was free is gone, and what the victims hold is spoken for.
pub(crate) fn take(index: &mut Index, placement: &Placement, host: HostRequest) {
    for worker in &placement.workers {
        index.take_host(worker.node, host);
    }
    for card in &placement.renumbered {
        index.renumber(*card);
    }
    for slice in placement.slices() {
        index.change(slice.card, |card| {
            card.free.remove(Run { start: slice.start, length: slice.length });
            card.memory_free = card.memory_free.saturating_sub(slice.memory.0);
            card.slices = card.slices.saturating_add(1);
            card.pinned = true;
        });
    }
}
