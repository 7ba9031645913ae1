//! What placement knows of one node: its cards and what they have left together.

use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, Mebibytes, MilliCpus, Node, NodeId, State};

use super::card::CardEntry;
use super::class::ClassId;
use super::followed::LabelId;
use super::holdings::Holdings;
use super::schedule::Schedule;

/// What the cards of one class on a node have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTotal {
    /// The class.
    pub(crate) class: ClassId,
    /// Free blocks.
    pub(crate) free: u32,
    /// Free MiB of the cards that have free blocks.
    pub(crate) memory: u64,
}

/// What a host has left for workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    /// Thousandths of a processor.
    pub(crate) cpu: u64,
    /// MiB.
    pub(crate) memory: u64,
    /// What is held beyond what the host offers: it offers less than it did, or a grant waits for its victims to stop.
    /// Given back first.
    over: HostRequest,
}

impl Host {
    /// What a node has left; `None` when it is not known and not limited.
    pub(crate) fn read(state: &State, node: &Node) -> Option<Self> {
        let (host, held) = (node.description.host?, state.host_use(node.id));
        let (left, offered) = (held.left_of(host), host.whole());
        let over = held.used.plus(held.promised).minus(offered);
        Some(Self { cpu: left.cpu.0, memory: left.memory.0, over })
    }

    /// What is left.
    pub(crate) const fn left(self) -> HostRequest {
        HostRequest { cpu: MilliCpus(self.cpu), memory: Mebibytes(self.memory) }
    }

    /// Whether so much is left.
    pub(crate) fn holds(self, request: HostRequest) -> bool {
        request.fits_in(self.left())
    }

    /// With so much less; what is not there is owed, as long as the victims of a grant hold it.
    pub(crate) fn less(self, request: HostRequest) -> Self {
        let left = self.left();
        let (rest, owed) = (left.minus(request), request.minus(left));
        Self { cpu: rest.cpu.0, memory: rest.memory.0, over: self.over.plus(owed) }
    }

    /// With so much more.
    pub(crate) fn more(self, request: HostRequest) -> Self {
        let more = request.minus(self.over);
        let (cpu, memory) = (self.cpu.saturating_add(more.cpu.0), self.memory.saturating_add(more.memory.0));
        Self { cpu, memory, over: self.over.minus(request) }
    }

    /// Whether there is more of anything than in `before`.
    pub(crate) fn has_more_than(self, before: Self) -> bool {
        self.cpu > before.cpu || self.memory > before.memory
    }
}

/// A node as placement sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEntry {
    /// The ledger's node.
    pub(crate) node: Option<Arc<Node>>,
    /// What its host has left; `None`: not limited.
    pub(crate) host: Option<Host>,
    /// What of its host is kept from the jobs that are considered now, because earlier ones wait for it.
    pub(crate) host_kept: HostRequest,
    /// Those of the labels that it carries that are followed, in order.
    pub(super) followed: Vec<LabelId>,
    /// Its cards in order of index.
    pub(crate) cards: Vec<CardEntry>,
    /// What is held on it, as far as that was asked for.
    pub(super) holdings: Holdings,
    /// When what is held on it comes back, if that was asked for since it changed.
    pub(super) schedule: Option<Arc<Schedule>>,
    /// Totals of the classes that have been seen on it.
    pub(crate) totals: Vec<NodeTotal>,
}

/// The node at a position of the index: nodes are numbered from zero in order of registration.
pub(super) fn id_at(position: usize) -> NodeId {
    NodeId(u32::try_from(position).expect("positions of nodes are their numbers"))
}

impl NodeEntry {
    /// A card.
    pub(crate) fn card(&self, id: CardId) -> Option<&CardEntry> {
        self.position(id).map(|position| &self.cards[position])
    }

    /// When what is held on it comes back; `None` when that has to be read first.
    pub(crate) fn known_schedule(&self) -> Option<&Schedule> {
        self.schedule.as_deref()
    }

    /// Where a card stands in the list.
    pub(crate) fn position(&self, id: CardId) -> Option<usize> {
        let guess = id.index as usize;
        if self.cards.get(guess).is_some_and(|card| card.id == id) {
            return Some(guess);
        }
        self.cards.binary_search_by_key(&id, |card| card.id).ok()
    }

    /// What the cards of a class have left.
    pub(crate) fn total(&self, class: ClassId) -> Option<&NodeTotal> {
        self.totals.iter().find(|total| total.class == class)
    }

    /// The same, to be changed.
    pub(crate) fn total_mut(&mut self, class: ClassId) -> &mut NodeTotal {
        if let Some(position) = self.totals.iter().position(|total| total.class == class) {
            return &mut self.totals[position];
        }
        self.totals.push(NodeTotal { class, free: 0, memory: 0 });
        let last = self.totals.len() - 1;
        &mut self.totals[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_given_back_before_anything_is_left() {
        let cpus = |cpu| HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) };
        let host = Host { cpu: 2000, ..Host::default() };
        let owing = host.less(cpus(2500));
        assert_eq!(owing.more(cpus(400)).cpu, 0);
        assert_eq!(owing.more(cpus(1000)).cpu, 500);
        assert_eq!(owing.more(cpus(2500)), host);
    }
}
