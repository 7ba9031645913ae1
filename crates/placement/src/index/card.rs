//! Placement's view of one card: a digest of the ledger's card, small enough to copy before each trial.

use std::sync::Arc;

use tessera_ledger::{AllocationId, BlockState, Card, CardHealth, CardId, LinkKind, Node};

use super::class::ClassId;
use super::run::{FreeRuns, Run};

/// A card as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardEntry {
    pub(crate) id: CardId,
    pub(crate) class: ClassId,
    /// True if blocks of it may be granted: its node takes new work and it is healthy.
    pub(crate) usable: bool,
    /// True while it is kept from the jobs that are considered now, because an earlier one waits for it.
    pub(crate) hidden: bool,
    pub(crate) free: FreeRuns,
    /// Blocks that somebody holds, in whatever state.
    pub(crate) used: u32,
    /// Blocks that are free or come back when their holders stop; lost and offline ones do not.
    pub(crate) recoverable: u32,
    /// Blocks that the card offers.
    pub(crate) blocks: u32,
    /// True if its extents cannot be renumbered now.
    pub(crate) pinned: bool,
    /// Memory in MiB.
    pub(crate) memory: u64,
    /// Memory that nobody holds or was promised, in MiB.
    pub(crate) memory_free: u64,
    pub(crate) slices: u32,
    /// Most slices at once; 0 when only the blocks limit it.
    pub(crate) max_slices: u32,
    /// The allocations that hold blocks of it, and how many.
    pub(crate) holders: Arc<[(AllocationId, u32)]>,
    /// Its links to other cards of the node: their index and how close they are.
    pub(crate) links: Arc<[(u32, LinkKind)]>,
}

impl CardEntry {
    pub(crate) fn read(id: CardId, node: &Node, card: &Card, class: ClassId) -> Self {
        let mut free = FreeRuns::default();
        let (mut used, mut stuck) = (0u32, 0u32);
        let mut holders: Vec<(AllocationId, u32)> = Vec::new();
        for extent in card.extents.as_slice() {
            if let Some(owner) = extent.state.owner() {
                used = used.saturating_add(extent.length.0);
                match holders.iter_mut().find(|(holder, _)| *holder == owner.allocation) {
                    Some((_, blocks)) => *blocks = blocks.saturating_add(extent.length.0),
                    None => holders.push((owner.allocation, extent.length.0)),
                }
            }
            if extent.state == BlockState::Free {
                free.give(Run { start: extent.start, length: extent.length });
            }
            if matches!(extent.state, BlockState::Lost(_)) {
                let inside = extent.end().min(card.blocks.0).saturating_sub(extent.start.0);
                stuck = stuck.saturating_add(inside);
            }
        }
        let blocks = card.blocks.0;
        Self {
            id,
            class,
            usable: node.grantable() && card.description.health == CardHealth::Healthy,
            hidden: false,
            free,
            used,
            recoverable: blocks.saturating_sub(stuck),
            blocks,
            pinned: !can_renumber(card),
            memory: card.description.memory.0,
            memory_free: card.memory_free().0,
            slices: card.slices,
            max_slices: card.description.max_slices,
            holders: holders.into(),
            links: card.description.links.iter().map(|link| (link.peer_index, link.kind)).collect(),
        }
    }

    /// The attributes that decide whether it could be kept for a job; what is free of it now is not among them.
    pub(super) fn prospect(&self) -> impl PartialEq + use<> {
        (self.id, self.class, self.usable, self.recoverable, self.memory, self.max_slices)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.usable && !self.hidden
    }

    pub(crate) fn slices_left(&self) -> u32 {
        if self.max_slices == 0 { u32::MAX } else { self.max_slices.saturating_sub(self.slices) }
    }

    /// Blocks that one worker could be given now, in as many slices as the card takes.
    pub(crate) fn offered(&self) -> u32 {
        let slices = self.slices_left();
        if !self.is_open() || slices == 0 {
            0
        } else if !self.pinned {
            self.free.total()
        } else {
            self.free.reach_of(slices)
        }
    }

    /// Returns whether all of it could be granted now.
    pub(crate) fn is_empty(&self) -> bool {
        self.slices == 0 && self.memory_free == self.memory && self.offered() == self.blocks
    }

    /// Its key in the ordered sets: class, blocks that one worker could be given now, and free MiB.
    pub(super) fn room(&self) -> (ClassId, u32, u64) {
        (self.class, self.offered(), self.memory_free)
    }

    /// Returns whether something fits now, if only by preemption, that did not fit when the card was as `before`.
    pub(crate) fn has_more_than(&self, before: Option<&Self>) -> bool {
        let Some(before) = before.filter(|before| before.usable) else { return self.usable };
        self.usable
            && (self.offered() > before.offered()
                || self.free.total() > before.free.total()
                || self.memory_free > before.memory_free
                || self.slices_left() > before.slices_left()
                || before.pinned && !self.pinned
                || self.class != before.class)
    }

    /// The number of workers of `need` blocks and `memory` MiB each that it could hold now.
    pub(crate) fn room_for(&self, need: u32, memory: u64) -> u32 {
        let by_memory = self.memory_free.checked_div(memory).unwrap_or(u64::MAX);
        let by_blocks = self.offered() / need.max(1);
        by_blocks.min(u32::try_from(by_memory).unwrap_or(u32::MAX)).min(self.slices_left())
    }
}

/// Returns whether the ledger would renumber the card and all its free blocks would then be one run (P7, P10).
fn can_renumber(card: &Card) -> bool {
    let inside = |end: u32| end <= card.blocks.0;
    card.memory_promised.0 == 0
        && card.extents.as_slice().iter().all(|extent| extent.state.owner().is_none() || inside(extent.end()))
        && card.extents.as_slice().iter().all(|extent| match extent.state {
            BlockState::Held(_) | BlockState::Running(_) | BlockState::Free => true,
            BlockState::Draining { next, .. } => next.is_none(),
            BlockState::Offline => extent.end() == card.extents.length().0,
            BlockState::Lost(_) => false,
        })
}
