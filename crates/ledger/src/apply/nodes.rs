//! Nodes and cards: registration and numbering (P2, P3), health and ratings (law L6), and who may take new work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Applied;
use crate::allocation::AllocationPhase;
use crate::card::{Card, CardDescription, CardHealth};
use crate::checks::{check_cached, check_cards, check_node};
use crate::command::Outcome;
use crate::event::{Event, Touched};
use crate::extent::{BlockState, ExtentMap};
use crate::ids::{AllocationId, CardId, JobId, NodeId};
use crate::node::{Eligibility, FAULTS_UNTIL_CORDON, Node, NodeDescription, NodeState};
use crate::rejection::Rejection;
use crate::state::State;
use crate::units::{BlockNumber, Epoch, Mebibytes};

impl State {
    /// A node registers: a new one gets the next number and the next block numbers (P2); a known one brings its news.
    pub(super) fn register_node(&mut self, description: &NodeDescription, cards: &[CardDescription]) -> Applied {
        check_node(description)?;
        check_cards(cards)?;
        let Some(known) = self.node_by_name(&description.name).cloned() else {
            let limit = self.config.limits.nodes;
            if self.nodes.len() as u64 >= limit {
                return Err(Rejection::TooManyNodes { limit });
            }
            self.check_card_count(0, cards)?;
            return Ok(self.add_node(description, cards));
        };
        if known.description.uid != description.uid {
            return Err(Rejection::NodeNameTaken {
                name: description.name.clone(),
                owner: known.description.uid.clone(),
            });
        }
        if description.incarnation < known.description.incarnation {
            return Err(Rejection::NodeChanged { node: known.id });
        }
        let (said, before) = (&description.start.nonce, &known.description.start.nonce);
        if description.incarnation == known.description.incarnation && !before.is_empty() && said != before {
            return Err(Rejection::NodeCloned { node: known.id });
        }
        self.check_card_count(self.card_ids(known.id).len(), cards)?;
        let epoch = Epoch(self.revision.0);
        let other_host = known.description.host != description.host;
        let rehosted = if other_host { self.card_ids(known.id) } else { Vec::new() };
        rehosted.iter().for_each(|card| self.count_capacity_out(*card));
        self.with_node(known.id, |node| {
            node.description = description.clone();
            node.epoch = epoch;
        });
        rehosted.iter().for_each(|card| self.count_capacity_in(*card));
        if other_host {
            self.host_changed(known.id);
        }
        self.declare_cards(known.id, cards, true);
        Ok(Outcome::Registered { node: known.id, epoch })
    }

    /// Refuses a node that would bring more cards into the pool than it holds; `present`: those that the node has in
    /// it. Cards that are in the pool already are never refused.
    fn check_card_count(&self, present: usize, cards: &[CardDescription]) -> Result<(), Rejection> {
        let (limit, added) = (self.config.limits.cards, cards.len().saturating_sub(present) as u64);
        if added > 0 && self.cards.len() as u64 + added > limit {
            return Err(Rejection::TooManyCards { added, present: self.cards.len() as u64, limit });
        }
        Ok(())
    }

    /// A host offers more or less than before: what waits for a part of it may start now, or may never.
    fn host_changed(&mut self, node: NodeId) {
        let waiting: Vec<AllocationId> = self
            .allocations_on(node)
            .filter(|allocation| allocation.phase == AllocationPhase::Waiting && self.waits_for_host(allocation, node))
            .map(|allocation| allocation.id)
            .collect();
        for id in waiting {
            self.activate_if_complete(id);
            if !self.host_keeps_promises(node) {
                self.abandon_waiting(id);
            }
        }
    }

    /// The data on a node's disks changed.
    pub(super) fn update_cached(&mut self, node: NodeId, cached: &BTreeSet<String>) -> Applied {
        check_cached(cached)?;
        if self.known_node(node)?.description.cached != *cached {
            self.with_node(node, |node| node.description.cached.clone_from(cached));
        }
        Ok(Outcome::Done)
    }

    fn add_node(&mut self, description: &NodeDescription, cards: &[CardDescription]) -> Outcome {
        let (id, epoch) = (self.next_node, Epoch(self.revision.0));
        self.next_node = NodeId(id.0 + 1);
        // A machine that was declared dead and is back may still run what it ran: nothing is granted on it before its
        // agent has shown that it does not (law L2).
        let was_forgotten =
            self.nodes().any(|node| node.state == NodeState::Forgotten && node.description.uid == description.uid);
        let node = Node {
            id,
            description: description.clone(),
            state: if was_forgotten { NodeState::Lost } else { NodeState::Ready },
            eligibility: Eligibility::Eligible,
            eligibility_reason: String::new(),
            drain_by: None,
            base: self.next_block,
            cards: 0,
            epoch,
            changed_at: self.time,
            faults: 0,
        };
        self.node_names.insert_cow(description.name.clone(), id);
        self.nodes.insert_cow(id, Arc::new(node));
        self.note_node(id);
        self.declare_cards(id, cards, true);
        Outcome::Registered { node: id, epoch }
    }

    pub(super) fn update_cards(&mut self, node: NodeId, cards: &[CardDescription]) -> Applied {
        let known = self.known_node(node)?;
        for card in cards {
            check_cards(&[CardDescription { index: 0, ..card.clone() }])?;
            let id = CardId { node, index: card.index };
            if card.index >= known.cards {
                return Err(Rejection::UnknownCard(id));
            }
        }
        self.declare_cards(node, cards, false);
        Ok(Outcome::Done)
    }

    /// Takes over what an agent says of its cards. With `all`, cards that it no longer names are gone.
    fn declare_cards(&mut self, node: NodeId, cards: &[CardDescription], all: bool) {
        let blocks_before = self.numbered_blocks(node);
        for description in cards {
            self.declare_card(CardId { node, index: description.index }, description);
        }
        if all {
            let named = u32::try_from(cards.len()).unwrap_or(u32::MAX);
            for id in self.card_ids(node).into_iter().rev().filter(|id| id.index >= named) {
                self.withdraw_card(id);
            }
        }
        let count = u32::try_from(self.card_ids(node).len()).unwrap_or(u32::MAX);
        self.with_node(node, |node| node.cards = count);
        self.number_blocks(node, blocks_before);
    }

    fn declare_card(&mut self, id: CardId, description: &CardDescription) {
        let percent = self.oversubscription_of(id, description.kind);
        let blocks = self.offered_blocks(description, percent);
        let known = self.cards.get(&id).cloned();
        let same_card = known.as_ref().is_some_and(|card| is_same_card(&card.description, description));
        let busy = known.as_ref().is_some_and(|card| card.slices > 0);
        match known {
            Some(card) if same_card => {
                if card.description == *description && card.blocks == blocks && card.oversubscription == percent {
                    return;
                }
                self.count_capacity_out(id);
                self.with_card(id, |card| {
                    card.description = description.clone();
                    card.blocks = blocks;
                    card.oversubscription = percent;
                    let missing = blocks.saturating_sub(card.extents.length());
                    card.extents.grow(missing, BlockState::Free);
                });
            }
            Some(_) if busy => {
                // Another card in the place of one that is still held: the old one stays, unusable, until it is given
                // back and the agent declares its cards again.
                self.count_capacity_out(id);
                self.with_card(id, |card| card.description.health = CardHealth::Unhealthy);
            }
            known => {
                if let Some(card) = known {
                    self.count_capacity_out(id);
                    self.counts = self.counts.minus(card.extents.counts());
                }
                let extents = ExtentMap::new(blocks, BlockState::Free);
                self.counts = self.counts.plus(extents.counts());
                let mut description = description.clone();
                if self.is_held_elsewhere(id, &description) {
                    // The same hardware under its old place is still held: nothing of it is free (law L2). The agent
                    // declares it again when it is.
                    description.health = CardHealth::Unhealthy;
                }
                let card = Card {
                    description,
                    blocks,
                    oversubscription: percent,
                    shared_only: false,
                    offset: 0,
                    extents,
                    memory_used: Mebibytes::ZERO,
                    memory_promised: Mebibytes::ZERO,
                    slices: 0,
                };
                self.cards.insert_cow(id, Arc::new(card));
                self.touched.push(Touched::Card(id));
            }
        }
        self.mark_isolation(id);
        self.count_capacity_in(id);
        self.rest_card(id);
        self.pending_events.push(Event::Card { card: id });
    }

    /// Returns whether a worker still holds the same hardware under the index that it had on the node before.
    fn is_held_elsewhere(&self, id: CardId, description: &CardDescription) -> bool {
        self.cards_of(id.node)
            .any(|(other, card)| other != id && card.slices > 0 && is_same_card(&card.description, description))
    }

    /// A card that its agent no longer names: gone when nobody holds it, else unusable until it is given back.
    fn withdraw_card(&mut self, id: CardId) {
        let Some(card) = self.cards.get(&id).cloned() else { return };
        if card.slices > 0 {
            self.count_capacity_out(id);
            self.with_card(id, |card| card.description.health = CardHealth::Unhealthy);
            self.count_capacity_in(id);
            self.rest_card(id);
        } else {
            self.count_capacity_out(id);
            self.counts = self.counts.minus(card.extents.counts());
            self.cards.remove_cow(&id);
            self.touched.push(Touched::Card(id));
        }
        self.pending_events.push(Event::Card { card: id });
    }

    pub(super) fn numbered_blocks(&self, node: NodeId) -> u64 {
        self.cards_of(node).map(|(_, card)| u64::from(card.extents.length().0)).sum()
    }

    /// Numbers the blocks of a node: card after card from its base (P2). A node that has grown gets a new base, so that
    /// its numbers stay contiguous and no two blocks of the pool have the same.
    pub(super) fn number_blocks(&mut self, node: NodeId, blocks_before: u64) {
        let mut offset = 0u32;
        for id in self.card_ids(node) {
            let (old, length) = self.cards.get(&id).map_or((0, 0), |card| (card.offset, card.extents.length().0));
            if old != offset {
                self.with_card(id, |card| card.offset = offset);
            }
            offset = offset.saturating_add(length);
        }
        let blocks = self.numbered_blocks(node);
        if blocks > blocks_before {
            let base = self.next_block;
            self.next_block = BlockNumber(base.0 + blocks);
            self.with_node(node, |node| node.base = base);
        }
    }

    pub(super) fn set_eligibility(&mut self, node: NodeId, eligibility: Eligibility, reason: &str) -> Applied {
        self.known_node(node)?;
        let now = self.time;
        self.with_node(node, |node| {
            node.eligibility = eligibility;
            node.drain_by = None;
            reason.clone_into(&mut node.eligibility_reason);
            node.changed_at = now;
            if eligibility == Eligibility::Eligible {
                // Whoever brings it back into service says that it is mended.
                node.faults = 0;
            }
        });
        for id in self.card_ids(node) {
            self.rest_card(id);
        }
        Ok(Outcome::Done)
    }

    /// A node takes no new work, and has to be left when so much time has passed.
    pub(super) fn drain_node(&mut self, node: NodeId, reason: &str, within: Duration) -> Applied {
        let drained = self.set_eligibility(node, Eligibility::Draining, reason)?;
        let by = self.time.after(within);
        self.with_node(node, |node| node.drain_by = Some(by));
        Ok(drained)
    }

    /// A node could not start a worker, for a reason of its own. After a few in a row it gets no new work: a sick node
    /// would otherwise draw job after job, since it is always free.
    pub(super) fn count_fault(&mut self, node: NodeId, job: JobId, message: &str) {
        self.with_job(job, |job| job.node_faults = job.node_faults.saturating_add(1));
        // That the parts of a card over several nodes do not find each other may be the fault of any of them.
        if self.jobs.get(&job).is_some_and(|job| job.spec.virtual_card.serves_across_nodes()) {
            return;
        }
        let Some(known) = self.nodes.get(&node).cloned() else { return };
        let faults = known.faults.saturating_add(1);
        self.with_node(node, |node| node.faults = faults);
        if faults >= FAULTS_UNTIL_CORDON && known.eligibility == Eligibility::Eligible {
            let reason = format!("{faults} workers in a row could not be started here: {message}");
            // Not refused: the node is known.
            let cordoned = self.set_eligibility(node, Eligibility::Cordoned, &reason);
            debug_assert!(cordoned.is_ok(), "{cordoned:?}");
        }
    }

    /// A worker runs: neither its node nor its job stands in the way of that.
    pub(super) fn forget_faults(&mut self, node: NodeId, job: JobId) {
        if self.nodes.get(&node).is_some_and(|node| node.faults > 0) {
            self.with_node(node, |node| node.faults = 0);
        }
        if self.jobs.get(&job).is_some_and(|job| job.node_faults > 0) {
            self.with_job(job, |job| job.node_faults = 0);
        }
    }

    pub(super) fn known_node(&self, id: NodeId) -> Result<Arc<Node>, Rejection> {
        self.nodes.get(&id).cloned().ok_or(Rejection::UnknownNode(id))
    }

    pub(super) fn with_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut_cow(&id) {
            change(Arc::make_mut(node));
        }
        self.note_node(id);
    }

    pub(super) fn set_node_state(&mut self, id: NodeId, state: NodeState) {
        let (epoch, now) = (Epoch(self.revision.0), self.time);
        self.with_node(id, |node| {
            node.state = state;
            node.epoch = epoch;
            node.changed_at = now;
        });
    }

    fn note_node(&mut self, id: NodeId) {
        self.touched.push(Touched::Node(id));
        if let Some(node) = self.nodes.get(&id) {
            let event = Event::Node { node: id, state: node.state, eligibility: node.eligibility };
            if self.pending_events.last() != Some(&event) {
                self.pending_events.push(event);
            }
        }
    }
}

/// Returns whether two declarations describe the same piece of hardware.
fn is_same_card(one: &CardDescription, other: &CardDescription) -> bool {
    one.uuid == other.uuid && one.kind == other.kind && one.vendor == other.vendor && one.model == other.model
}
