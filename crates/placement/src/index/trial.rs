//! Trials: changes of the index that can be undone. What each changes is written to a journal; what a plan keeps of it is
//! stale until the ledger has answered.

use tessera_ledger::{CardId, HostRequest, NodeId};

use super::Index;
use super::card::CardEntry;
use super::node::Host;
use super::run::{FreeRuns, Run};

/// A point in the journal to which a trial can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(usize);

/// Something as it was before a change.
#[derive(Clone, Debug)]
pub(super) enum Before {
    /// A card.
    Card(CardId, CardEntry),
    /// What a host had left.
    Host(NodeId, Option<Host>),
}

impl Index {
    /// Changes a card for a trial.
    pub(crate) fn change(&mut self, id: CardId, change: impl FnOnce(&mut CardEntry)) {
        let Some(known) = self.card(id).cloned() else { return };
        self.unlink(known.room());
        let node = &mut self.nodes[id.node.0 as usize];
        let position = node.position(id).expect("the card was just read from this node");
        change(&mut node.cards[position]);
        let room = node.cards[position].room();
        self.link(room);
        self.touch(id.node);
        self.journal.push(Before::Card(id, known));
    }

    /// Changes what a host has left, for a trial.
    fn change_host(&mut self, id: NodeId, change: impl FnOnce(Host) -> Host) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        let Some(left) = node.host else { return };
        node.host = Some(change(left));
        self.touch(id);
        self.journal.push(Before::Host(id, Some(left)));
    }

    /// Takes a worker's part of a host.
    pub(crate) fn take_host(&mut self, id: NodeId, request: HostRequest) {
        if !request.is_zero() {
            self.change_host(id, |left| left.less(request));
        }
    }

    /// Gives a worker's part of a host back.
    pub(crate) fn give_host_back(&mut self, id: NodeId, request: HostRequest) {
        if !request.is_zero() {
            self.change_host(id, |left| left.more(request));
        }
    }

    /// Where the journal stands.
    pub(crate) const fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// Undoes everything since the mark.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            match self.journal.pop() {
                Some(Before::Card(id, before)) => self.place_entry(id, Some(before)),
                Some(Before::Host(id, before)) => {
                    self.nodes[id.0 as usize].host = before;
                    self.touch(id);
                }
                None => {}
            }
        }
    }

    /// Keeps everything in the journal as part of the plan.
    pub(crate) fn keep(&mut self) {
        for before in self.journal.drain(..) {
            match before {
                Before::Card(id, _) => drop(self.stale.insert(id)),
                Before::Host(id, _) => drop(self.stale_hosts.insert(id)),
            }
        }
    }

    /// A card as it was at the mark.
    pub(crate) fn card_at(&self, mark: Mark, id: CardId) -> Option<&CardEntry> {
        let earlier = self.journal[mark.0..].iter().find_map(|before| match before {
            Before::Card(card, entry) if *card == id => Some(entry),
            Before::Card(..) | Before::Host(..) => None,
        });
        earlier.or_else(|| self.card(id))
    }

    /// Moves everything in use on a card to its front, as the ledger will (P7, P10).
    pub(crate) fn renumber(&mut self, id: CardId) {
        self.change(id, |card| {
            card.free = FreeRuns::single(card.used, card.free.total());
        });
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
