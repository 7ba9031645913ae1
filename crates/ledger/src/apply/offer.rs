//! The blocks that cards offer when the pool's policy makes them offer more than they are rated for (oversubscription).
//!
//! The policy is a setting, a change of it a log entry (law L6): free blocks come and go at once, held ones stay as
//! they are. A card on which a slice relies on more than isolation `shared` is not oversubscribed before that slice is
//! given back; and a card that still holds blocks which it does not offer any more promises nothing but `shared` until
//! they are given back. So no job ever gets less than what it was promised.

use std::sync::Arc;

use crate::allocation::WorkerState;
use crate::card::{CardDescription, CardKind, Isolation};
use crate::event::Event;
use crate::extent::BlockState;
use crate::host::HostCapacity;
use crate::ids::CardId;
use crate::state::State;
use crate::units::{BlockCount, Percent};

impl State {
    /// Blocks that a card may offer now, in percent of those that it is rated for.
    pub(crate) fn oversubscription_of(&self, id: CardId, kind: CardKind) -> Percent {
        let policy = self.config.oversubscribed(kind);
        if policy > Percent::WHOLE && self.has_isolated_slice(id) { Percent::WHOLE } else { policy }
    }

    /// Returns whether a worker relies on more than isolation `shared` on a card.
    pub(crate) fn has_isolated_slice(&self, id: CardId) -> bool {
        self.allocations_on(id.node).any(|allocation| {
            let live = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
            live.flat_map(|worker| &worker.slices).any(|slice| slice.card == id && slice.isolation > Isolation::Shared)
        })
    }

    pub(super) fn offered_blocks(&self, description: &CardDescription, percent: Percent) -> BlockCount {
        let rated = description.block_count(self.config.reference_precision, self.config.block_size);
        BlockCount(u32::try_from(percent.of(u64::from(rated.0))).unwrap_or(u32::MAX))
    }

    /// Makes a card offer what the policy says, as far as what it holds allows.
    pub(super) fn settle_offer(&mut self, id: CardId) {
        let Some(card) = self.cards.get(&id).cloned() else { return };
        if self.config.oversubscription.is_empty() && !card.shared_only {
            return;
        }
        let percent = self.oversubscription_of(id, card.description.kind);
        let blocks = self.offered_blocks(&card.description, percent);
        let resized = (percent, blocks) != (card.oversubscription, card.blocks);
        if !resized && card.shared_only == (percent > Percent::WHOLE || card.is_overfull()) {
            return;
        }
        let before = self.numbered_blocks(id.node);
        self.count_capacity_out(id);
        self.with_card(id, |card| {
            card.oversubscription = percent;
            card.blocks = blocks;
            card.extents.grow(blocks.saturating_sub(card.extents.length()), BlockState::Free);
        });
        self.mark_isolation(id);
        self.count_capacity_in(id);
        self.rest_card(id);
        self.number_blocks(id.node, before);
        self.pending_events.push(Event::Card { card: id });
    }

    /// Counts what a card offers in, on its host as it is now.
    pub(super) fn count_capacity_in(&mut self, id: CardId) {
        let host = self.host_of(id);
        if let Some(card) = self.cards.get(&id) {
            Arc::make_mut(&mut self.capacity).add(card, host);
        }
    }

    /// Counts what a card offers out, before it or its host changes.
    pub(super) fn count_capacity_out(&mut self, id: CardId) {
        let host = self.host_of(id);
        if let Some(card) = self.cards.get(&id) {
            Arc::make_mut(&mut self.capacity).remove(card, host);
        }
    }

    /// The capacity that the host of a card offers to workers; `None`: not known, and not limited.
    pub(super) fn host_of(&self, id: CardId) -> Option<HostCapacity> {
        self.nodes.get(&id.node).and_then(|node| node.description.host)
    }

    /// Makes every card offer what the policy says.
    pub(super) fn settle_offers(&mut self) {
        let cards: Vec<CardId> = self.cards().map(|(id, _)| id).collect();
        for id in cards {
            self.settle_offer(id);
        }
    }

    /// Notes what isolation a card can promise.
    pub(super) fn mark_isolation(&mut self, id: CardId) {
        self.with_card(id, |card| {
            card.shared_only = card.oversubscription > Percent::WHOLE || card.is_overfull();
        });
    }

    /// Computes what snapshots do not say of cards.
    pub(super) fn rebuild_offers(&mut self) {
        let cards: Vec<CardId> = self.cards().map(|(id, _)| id).collect();
        for id in cards {
            let Some(card) = self.cards.get(&id) else { continue };
            let percent = self.oversubscription_of(id, card.description.kind);
            let shared_only = percent > Percent::WHOLE || card.is_overfull();
            if (percent, shared_only) != (card.oversubscription, card.shared_only)
                && let Some(card) = self.cards.get_mut_cow(&id)
            {
                let card = Arc::make_mut(card);
                (card.oversubscription, card.shared_only) = (percent, shared_only);
            }
        }
    }
}
