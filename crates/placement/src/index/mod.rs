//! The index of the pool: every card by class and by what it has left, kept current card by card.
//!
//! Trials change the index itself, because that keeps every search a range query; what they change is written to a
//! journal and can be undone. What a finished plan took stays taken until the ledger has answered: the cards concerned
//! are *stale* and are read again before the next plan.

pub(crate) mod card;
mod carriers;
pub(crate) mod changes;
pub(crate) mod class;
pub(crate) mod columns;
mod followed;
mod holdings;
pub(crate) mod node;
pub(crate) mod outline;
pub(crate) mod outlines;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod surroundings;
mod trial;
mod worth;
pub(crate) mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{CardId, HostCapacity, HostRequest, Node, NodeId, State};

use card::{CardEntry, Room};
use carriers::Carriers;
use changes::Changes;
use class::Classes;
use columns::Columns;
use followed::Followed;
use node::{Host, NodeEntry, id_at};
use outlines::Outlines;
use surroundings::Surroundings;
use trial::Before;
pub(crate) use trial::Mark;
use zones::Zones;

/// Every card of the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(crate) classes: Classes,
    /// What is on nodes beside cards.
    pub(crate) surroundings: Surroundings,
    nodes: Vec<NodeEntry>,
    /// Nodes whose cards are of several classes.
    assorted: BTreeSet<NodeId>,
    /// Cards and hosts as they were before each change of the plan being made.
    journal: Vec<Before>,
    /// Cards that a plan changed and the ledger has not confirmed.
    stale: BTreeSet<CardId>,
    /// Nodes whose hosts a plan changed and the ledger has not confirmed.
    stale_hosts: BTreeSet<NodeId>,
    /// Nodes by labels and data.
    pub(crate) carriers: Carriers,
    /// The labels that tell nodes apart.
    followed: Followed,
    /// Nodes that look the same to every request.
    pub(crate) outlines: Outlines,
    /// What placements would cost.
    columns: Columns,
    /// What nodes have left by the value of a label.
    pub(crate) zones: Zones,
    /// Nodes in the order of their changes.
    changes: Changes,
    /// Nodes that were looked at one by one.
    looked_at: u64,
    /// How often the pool has changed so that cards might be found to keep for a job for which there were none.
    prospects: u64,
}

fn labels_of(node: Option<&Node>) -> Option<&BTreeMap<String, String>> {
    node.map(|node| &node.description.labels)
}

fn host_of(node: Option<&Node>) -> Option<HostCapacity> {
    node.and_then(|node| node.description.host)
}

impl Index {
    /// Reads a node and all its cards; answers the cards that have more room than before.
    pub(crate) fn read_node(&mut self, state: &State, id: NodeId) -> Vec<CardId> {
        let position = id.0 as usize;
        if self.nodes.len() <= position {
            self.nodes.resize_with(position + 1, NodeEntry::default);
        }
        self.forget_schedule(id);
        if let Some(freed) = self.read_host_alone(state, id) {
            return freed;
        }
        let node = state.node(id).cloned();
        let now = node.as_ref().and_then(|node| Host::read(state, node));
        let known = &mut self.nodes[position];
        let (host, before) = (known.host, std::mem::replace(&mut known.node, node));
        known.host = now;
        self.carriers.update(id, before.as_deref(), known.node.as_deref());
        let relabelled = labels_of(before.as_deref()) != labels_of(known.node.as_deref());
        let resized = host_of(before.as_deref()) != host_of(known.node.as_deref());
        self.prospects += u64::from(relabelled || resized);
        let more = host.is_some_and(|host| now.is_none_or(|now| now.has_more_than(host)));
        let changed = before.is_some() && (more || relabelled);
        if relabelled {
            self.read_followed(position);
        }
        self.stale_hosts.remove(&id);
        let mut cards: Vec<CardId> = state.cards_of(id).map(|(id, _)| id).collect();
        cards.extend(self.nodes[position].cards.iter().map(|card| card.id));
        cards.sort_unstable();
        cards.dedup();
        let mut freed: Vec<CardId> = cards.iter().filter_map(|card| self.read_card(state, *card)).collect();
        if changed {
            let usable = self.nodes[position].cards.iter().filter(|card| card.usable);
            freed = usable.map(|card| card.id).collect();
        }
        freed
    }

    /// Reads what the host of a node has left when nothing else of the node has changed; answers its cards if that is
    /// more than before. `None` when the whole node must be read.
    fn read_host_alone(&mut self, state: &State, id: NodeId) -> Option<Vec<CardId>> {
        let known = &mut self.nodes[id.0 as usize];
        let node = state.node(id)?;
        if !known.node.as_ref().is_some_and(|known| Arc::ptr_eq(known, node)) {
            return None;
        }
        let (before, now) = (known.host, Host::read(state, node));
        known.host = now;
        self.stale_hosts.remove(&id);
        let more = now.zip(before).is_some_and(|(now, before)| now.has_more_than(before));
        let cards = known.cards.iter().filter(|card| more && card.usable);
        Some(cards.map(|card| card.id).collect())
    }

    /// Reads a card; answers whether it has more room than before.
    pub(crate) fn read_card(&mut self, state: &State, id: CardId) -> Option<CardId> {
        self.stale.remove(&id);
        self.forget_schedule(id.node);
        let node = self.nodes.get(id.node.0 as usize)?.node.clone();
        let fresh = match (node, state.card(id)) {
            (Some(node), Some(card)) => {
                let class = self.classes.intern(card, self.card(id).map(|known| known.class));
                Some(CardEntry::read(id, &node, card, class))
            }
            _ => None,
        };
        let more = fresh.as_ref().is_some_and(|fresh| fresh.has_more_than(self.card(id)));
        self.prospects += u64::from(fresh.as_ref().map(CardEntry::prospect) != self.card(id).map(CardEntry::prospect));
        self.place_entry(id, fresh);
        more.then_some(id)
    }

    fn place_entry(&mut self, id: CardId, fresh: Option<CardEntry>) {
        self.touch(id.node);
        let known = self.card(id).map(CardEntry::room);
        let linked = fresh.as_ref().map(CardEntry::room);
        let moved = known != linked;
        if let Some(room) = known.filter(|_| moved) {
            self.unlink(room);
        }
        let node = &mut self.nodes[id.node.0 as usize];
        let (count, class) = (node.cards.len(), node.card(id).map(|card| card.class));
        let reclassed = class != linked.map(|room| room.class);
        match (node.cards.binary_search_by_key(&id, |card| card.id), fresh) {
            (Ok(position), Some(entry)) => node.cards[position] = entry,
            (Err(position), Some(entry)) => node.cards.insert(position, entry),
            (Ok(position), None) => drop(node.cards.remove(position)),
            (Err(_), None) => {}
        }
        if let Some(room) = linked.filter(|_| moved) {
            self.link(room);
        }
        if reclassed || self.nodes[id.node.0 as usize].cards.len() != count {
            self.sort_node(id.node);
        }
    }

    /// Notes whether a node's cards are of several classes.
    fn sort_node(&mut self, id: NodeId) {
        let node = &self.nodes[id.0 as usize];
        let assorted = node.cards.windows(2).any(|pair| pair[0].class != pair[1].class);
        if assorted {
            self.assorted.insert(id)
        } else {
            self.assorted.remove(&id)
        };
    }

    /// Takes a card out of the ordered sets.
    fn unlink(&mut self, room: Room) {
        if room.offered == 0 {
            return;
        }
        let class = self.classes.get_mut(room.class);
        class.cards.remove(&(room.offered, room.memory, room.id));
        class.free -= u64::from(room.offered);
        class.memory -= room.memory;
        let total = self.nodes[room.id.node.0 as usize].total_mut(room.class);
        class.nodes.remove(&(total.free, room.id.node));
        total.free -= room.offered;
        total.memory -= room.memory;
        if total.free > 0 {
            class.nodes.insert((total.free, room.id.node));
        }
    }

    /// Puts a card into the ordered sets.
    fn link(&mut self, room: Room) {
        if room.offered == 0 {
            return;
        }
        let class = self.classes.get_mut(room.class);
        class.cards.insert((room.offered, room.memory, room.id));
        class.free += u64::from(room.offered);
        class.memory += room.memory;
        let total = self.nodes[room.id.node.0 as usize].total_mut(room.class);
        class.nodes.remove(&(total.free, room.id.node));
        total.free += room.offered;
        total.memory += room.memory;
        class.nodes.insert((total.free, room.id.node));
    }

    /// A card.
    pub(crate) fn card(&self, id: CardId) -> Option<&CardEntry> {
        self.nodes.get(id.node.0 as usize)?.card(id)
    }

    /// A node.
    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(id.0 as usize)
    }

    /// The cards of a node that can be granted.
    pub(crate) fn usable_cards(&self, id: NodeId) -> Vec<CardId> {
        let cards = self.node(id).into_iter().flat_map(|node| &node.cards);
        cards.filter(|card| card.usable).map(|card| card.id).collect()
    }

    /// The ledger's node.
    pub(crate) fn ledger_node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.node(id)?.node.as_ref()
    }

    /// All nodes in order of registration.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
        (0u32..).map(NodeId).zip(&self.nodes)
    }

    /// Counts nodes that were looked at one by one.
    pub(crate) fn count_looks(&mut self, nodes: u64) {
        self.looked_at += nodes;
    }

    /// How many nodes were looked at one by one.
    pub(crate) const fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// How often cards might have come that could be kept for a job for which there were none.
    pub(crate) const fn prospects(&self) -> u64 {
        self.prospects
    }

    /// Number of nodes that were ever registered.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes whose cards are of several classes, in order of registration.
    pub(crate) fn assorted_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.assorted.iter().copied()
    }

    /// Keeps cards from the jobs that are considered next, or shows them again. Not part of any trial.
    pub(crate) fn set_hidden(&mut self, cards: &[CardId], hidden: bool) {
        for id in cards {
            let Some(room) = self.card(*id).map(CardEntry::room) else { continue };
            self.unlink(room);
            self.touch(id.node);
            let node = &mut self.nodes[id.node.0 as usize];
            if let Some(position) = node.position(*id) {
                node.cards[position].hidden = hidden;
                let room = node.cards[position].room();
                self.link(room);
            }
        }
    }

    /// Keeps room on a host from the jobs that are considered next, or lets them use it again. Not part of any trial.
    pub(crate) fn set_host_hidden(&mut self, id: NodeId, kept: HostRequest, hidden: bool) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        node.host = node.host.map(|left| if hidden { left.less(kept) } else { left.more(kept) });
        node.host_kept = if hidden { node.host_kept.plus(kept) } else { node.host_kept.minus(kept) };
        self.touch(id);
    }

    /// Notes that something of a node has changed.
    fn touch(&mut self, id: NodeId) {
        self.changes.push(id.0 as usize);
    }

    /// The nodes that have changed since a reader of changes was here last.
    pub(crate) fn changed_since(&mut self, seen: &mut usize) -> Vec<NodeId> {
        self.changes.take(seen, self.nodes.len()).map(id_at).collect()
    }

    /// Reads the cards and hosts again that plans have changed; answers the cards that have more room than the plans
    /// left them.
    pub(crate) fn read_stale(&mut self, state: &State) -> Vec<CardId> {
        let hosts: Vec<NodeId> = self.stale_hosts.iter().copied().collect();
        let mut freed: Vec<CardId> = hosts.into_iter().flat_map(|id| self.read_node(state, id)).collect();
        let stale: Vec<CardId> = self.stale.iter().copied().collect();
        freed.extend(stale.into_iter().filter_map(|id| self.read_card(state, id)));
        freed
    }
}
