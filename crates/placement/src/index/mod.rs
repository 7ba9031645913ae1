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
pub(crate) mod node;
pub(crate) mod outlines;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod surroundings;
mod worth;
pub(crate) mod zones;

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, Node, NodeId, State};

use card::CardEntry;
use carriers::Carriers;
use changes::Changes;
use class::{ClassId, Classes};
use columns::Columns;
use node::{Host, NodeEntry, id_at};
use outlines::Outlines;
use run::{FreeRuns, Run};
use surroundings::Surroundings;
use zones::Zones;

/// Every card of the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(crate) classes: Classes,
    /// Properties of nodes beside their cards.
    pub(crate) surroundings: Surroundings,
    /// By number, which is the order of registration.
    nodes: Vec<NodeEntry>,
    /// Nodes whose cards are of several classes.
    pub(crate) assorted: BTreeSet<NodeId>,
    /// Cards and hosts as they were before each change of the plan being made.
    journal: Vec<Before>,
    /// Cards that a plan changed and the ledger has not confirmed, and nodes whose hosts it changed.
    stale: BTreeSet<CardId>,
    stale_hosts: BTreeSet<NodeId>,
    pub(crate) carriers: Carriers,
    pub(crate) outlines: Outlines,
    pub(crate) columns: Columns,
    pub(crate) zones: Zones,
    /// Nodes in the order of their changes.
    changes: Changes,
    /// Nodes that were looked at one by one.
    pub(crate) looked_at: u64,
    /// True if hosts may have come, got more room or taken new work again since that was asked last.
    hosts_freed: bool,
    /// Number of changes of the pool by which cards to keep might be found for a job for which there were none.
    pub(crate) prospects: u64,
}

/// A point in the journal to which a trial can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(usize);

/// Something as it was before a change.
#[derive(Clone, Debug)]
enum Before {
    Card(CardEntry),
    Host(NodeId, Host),
}

impl Index {
    /// Reads a node and all its cards; answers the cards that have more room than before.
    pub(crate) fn read_node(&mut self, state: &State, id: NodeId) -> Vec<CardId> {
        let position = id.0 as usize;
        if self.nodes.len() <= position {
            self.nodes.resize_with(position + 1, NodeEntry::default);
        }
        self.forget_schedule(id);
        self.stale_hosts.remove(&id);
        let (known, node) = (&mut self.nodes[position], state.node(id));
        let host = node.and_then(|node| Host::read(state, node));
        let before = std::mem::replace(&mut known.host, host);
        let mut more = before.is_some_and(|before| host.is_none_or(|now| now.has_more_than(before)));
        self.hosts_freed |= more;
        let lost = [before, host].map(|host| host.map(|host| host.lost));
        self.prospects += u64::from(lost[0] != lost[1]);
        let (mut freed, was_known) = (Vec::new(), known.node.is_some());
        // Often nothing else of a node has changed than what its host has left.
        if !known.node.as_ref().zip(node).is_some_and(|(known, node)| Arc::ptr_eq(known, node)) {
            let before = std::mem::replace(&mut known.node, node.cloned());
            let takes_work = [before.as_ref(), node].map(|node| node.is_some_and(|node| node.grantable()));
            self.hosts_freed |= takes_work[1];
            self.carriers.update(id, before.as_deref(), node.map(|node| &**node));
            let labels = [before.as_ref(), node].map(|node| node.map(|node| &node.description.labels));
            let hosts = [before.as_ref(), node].map(|node| node.and_then(|node| node.description.host));
            let relabelled = labels[0] != labels[1];
            self.prospects += u64::from(relabelled || hosts[0] != hosts[1] || takes_work[0] != takes_work[1]);
            more |= relabelled;
            let mut cards: Vec<CardId> = state.cards_of(id).map(|(id, _)| id).collect();
            cards.extend(known.cards.iter().map(|card| card.id));
            cards.sort_unstable();
            cards.dedup();
            freed = cards.iter().filter_map(|card| self.read_card(state, *card)).collect();
        }
        if was_known && more { self.usable_cards(id) } else { freed }
    }

    /// Reads a card; answers whether it has more room than before.
    pub(crate) fn read_card(&mut self, state: &State, id: CardId) -> Option<CardId> {
        self.stale.remove(&id);
        self.forget_schedule(id.node);
        let known = self.nodes.get(id.node.0 as usize)?;
        let before = known.card(id);
        let fresh = known.node.as_ref().zip(state.card(id)).map(|(node, card)| {
            let class = self.classes.intern(card, before.map(|before| before.class));
            CardEntry::read(id, node, card, class)
        });
        let more = fresh.as_ref().is_some_and(|fresh| fresh.has_more_than(before));
        self.prospects += u64::from(fresh.as_ref().map(CardEntry::prospect) != before.map(CardEntry::prospect));
        let other_class = fresh.as_ref().map(|fresh| fresh.class) != before.map(|before| before.class);
        let cards = &mut self.nodes[id.node.0 as usize].cards;
        match (cards.binary_search_by_key(&id, |card| card.id), fresh) {
            (Ok(_), Some(fresh)) => self.edit(id, |card| *card = fresh),
            (Err(position), Some(fresh)) => {
                let room = fresh.room();
                cards.insert(position, fresh);
                self.file(id, room, true);
            }
            (Ok(position), None) => {
                let room = cards.remove(position).room();
                self.file(id, room, false);
            }
            (Err(_), None) => {}
        }
        if other_class {
            let cards = &self.nodes[id.node.0 as usize].cards;
            let assorted = cards.windows(2).any(|pair| pair[0].class != pair[1].class);
            put(&mut self.assorted, id.node, assorted);
        }
        more.then_some(id)
    }

    /// Changes a card and keeps the ordered sets current.
    fn edit(&mut self, id: CardId, edit: impl FnOnce(&mut CardEntry)) {
        let Some(node) = self.nodes.get_mut(id.node.0 as usize) else { return };
        let Some(position) = node.position(id) else { return };
        let card = &mut node.cards[position];
        let before = card.room();
        edit(card);
        let now = card.room();
        if now != before {
            self.file(id, before, false);
            self.file(id, now, true);
        }
        self.touch(id.node);
    }

    /// Puts a card into the ordered sets, or takes it out of them.
    fn file(&mut self, id: CardId, (class_id, offered, memory): (ClassId, u32, u64), enter: bool) {
        if offered == 0 {
            return;
        }
        let class = self.classes.get_mut(class_id);
        let total = self.nodes[id.node.0 as usize].total_mut(class_id);
        put(&mut class.cards, (offered, memory, id), enter);
        class.nodes.remove(&(total.free, id.node));
        if enter {
            (class.free, class.memory) = (class.free + u64::from(offered), class.memory + memory);
            (total.free, total.memory) = (total.free + offered, total.memory + memory);
        } else {
            (class.free, class.memory) = (class.free - u64::from(offered), class.memory - memory);
            (total.free, total.memory) = (total.free - offered, total.memory - memory);
        }
        if total.free > 0 {
            class.nodes.insert((total.free, id.node));
        }
    }

    pub(crate) fn card(&self, id: CardId) -> Option<&CardEntry> {
        self.node(id.node)?.card(id)
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(id.0 as usize)
    }

    /// All nodes in order of registration.
    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &NodeEntry)> {
        self.nodes.iter().enumerate().map(|(position, node)| (id_at(position), node))
    }

    /// Returns whether programs that are not with each worker might find more room on hosts than at the last call.
    pub(crate) fn take_hosts_freed(&mut self) -> bool {
        std::mem::take(&mut self.hosts_freed)
    }

    pub(crate) fn usable_cards(&self, id: NodeId) -> Vec<CardId> {
        let cards = self.node(id).into_iter().flat_map(|node| &node.cards);
        cards.filter(|card| card.usable).map(|card| card.id).collect()
    }

    pub(crate) fn ledger_node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.node(id)?.node.as_ref()
    }

    /// The value of a label of a node; each carries its name as one.
    pub(crate) fn label(&self, id: NodeId, key: &str) -> Option<&str> {
        self.ledger_node(id)?.description.label(key)
    }

    /// Keeps cards from the jobs that are considered next, or shows them again. Not part of any trial.
    pub(crate) fn set_hidden(&mut self, cards: &[CardId], hidden: bool) {
        cards.iter().for_each(|id| self.edit(*id, |card| card.hidden = hidden));
    }

    /// Does something while these cards are closed to everybody.
    pub(crate) fn beside_closed<T>(
        &mut self,
        cards: impl IntoIterator<Item = CardId>,
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let is_shown = |card: &CardId| self.card(*card).is_some_and(|card| !card.hidden);
        let closed: Vec<CardId> = cards.into_iter().filter(is_shown).collect();
        self.set_hidden(&closed, true);
        let done = act(self);
        self.set_hidden(&closed, false);
        done
    }

    /// Keeps room on a host from the jobs that are considered next, or lets them use it again. Not part of any trial.
    pub(crate) fn set_host_hidden(&mut self, id: NodeId, kept: HostRequest, hidden: bool) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        node.host = node.host.map(|left| if hidden { left.less(kept) } else { left.more(kept) });
        node.host_kept = if hidden { node.host_kept.plus(kept) } else { node.host_kept.minus(kept) };
        self.touch(id);
    }

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
        let hosts = std::mem::take(&mut self.stale_hosts);
        let mut freed: Vec<CardId> = hosts.into_iter().flat_map(|id| self.read_node(state, id)).collect();
        let stale = std::mem::take(&mut self.stale);
        freed.extend(stale.into_iter().filter_map(|id| self.read_card(state, id)));
        freed
    }

    /// Changes a card for a trial.
    pub(crate) fn change(&mut self, id: CardId, change: impl FnOnce(&mut CardEntry)) {
        self.journal.extend(self.card(id).cloned().map(Before::Card));
        self.edit(id, change);
    }

    /// Changes for a trial what a host has left, if so much makes any difference.
    pub(crate) fn change_host(&mut self, id: NodeId, part: HostRequest, by: fn(Host, HostRequest) -> Host) {
        let Some(left) = self.node(id).and_then(|node| node.host).filter(|_| !part.is_zero()) else { return };
        self.journal.push(Before::Host(id, left));
        self.nodes[id.0 as usize].host = Some(by(left, part));
        self.touch(id);
    }

    pub(crate) const fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    pub(crate) fn undo_to(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            match self.journal.pop() {
                Some(Before::Card(before)) => self.edit(before.id, |card| *card = before),
                Some(Before::Host(id, before)) => {
                    self.nodes[id.0 as usize].host = Some(before);
                    self.touch(id);
                }
                None => {}
            }
        }
    }

    /// Does something and undoes it.
    pub(crate) fn try_out<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.mark();
        let done = act(self);
        self.undo_to(mark);
        done
    }

    /// Does something, or changes nothing when it fails.
    pub(crate) fn all_or_nothing<T, E>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let mark = self.mark();
        act(self).inspect_err(|_| self.undo_to(mark))
    }

    /// Keeps everything in the journal as part of the plan.
    pub(crate) fn keep(&mut self) {
        for before in self.journal.drain(..) {
            match before {
                Before::Card(card) => drop(self.stale.insert(card.id)),
                Before::Host(id, _) => drop(self.stale_hosts.insert(id)),
            }
        }
    }

    pub(crate) fn card_at(&self, mark: Mark, id: CardId) -> Option<&CardEntry> {
        let earlier = self.journal[mark.0..].iter().find_map(|before| match before {
            Before::Card(card) if card.id == id => Some(card),
            Before::Card(..) | Before::Host(..) => None,
        });
        earlier.or_else(|| self.card(id))
    }

    /// Moves everything in use on a card to its front, as the ledger will (P7, P10).
    pub(crate) fn renumber(&mut self, id: CardId) {
        self.change(id, |card| card.free = FreeRuns::single(card.used, card.free.total()));
    }

    /// Takes one worker's share of a card: blocks in one run if there is one, and memory.
    pub(crate) fn take(&mut self, id: CardId, blocks: u32, memory: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        self.change(id, |card| {
            runs = card.free.take_scattered(blocks);
            card.used = card.used.saturating_add(blocks);
            card.memory_free = card.memory_free.saturating_sub(memory);
            card.slices = card.slices.saturating_add(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        });
        runs
    }
}

/// Puts something into a set, or takes it out.
pub(crate) fn put<T: Ord>(set: &mut BTreeSet<T>, value: T, enter: bool) {
    if enter {
        set.insert(value)
    } else {
        set.remove(&value)
    };
}
