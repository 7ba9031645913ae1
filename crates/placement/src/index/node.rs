//! Placement's view of one node: its cards and what they have left together.

use std::sync::Arc;

use tessera_ledger::{CardId, HostRequest, Node, NodeId, State};

use super::card::CardEntry;
use super::class::ClassId;
use super::schedule::{Holdings, Schedule};

/// Free blocks and memory of the cards of one class on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeTotal {
    class: ClassId,
    pub(crate) free: u32,
    /// Free MiB of the cards that have free blocks.
    pub(crate) memory: u64,
}

/// Resources of a host that are left for workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) left: HostRequest,
    /// Resources held beyond what the host offers: it offers less than it did, or an allocation waits for its victims
    /// to stop. Given back first.
    over: HostRequest,
    /// Resources that lost workers hold: nobody knows whether they come back.
    pub(crate) lost: HostRequest,
}

impl Host {
    /// Reads what a node's host has left; `None`: it is not known and not limited.
    pub(crate) fn read(state: &State, node: &Node) -> Option<Self> {
        let (host, held) = (node.description.host?, state.host_use(node.id));
        let over = held.used.plus(held.promised).minus(host.whole());
        Some(Self { left: held.left_of(host), over, lost: held.lost })
    }

    /// With so much less; what is not there is owed, as long as the victims of an allocation hold it.
    pub(crate) fn less(self, request: HostRequest) -> Self {
        let over = self.over.plus(request.minus(self.left));
        Self { left: self.left.minus(request), over, ..self }
    }

    pub(crate) fn more(self, request: HostRequest) -> Self {
        Self { left: self.left.plus(request.minus(self.over)), over: self.over.minus(request), ..self }
    }

    /// Returns whether there is more of anything than in `before`.
    pub(crate) fn has_more_than(self, before: Self) -> bool {
        !self.left.fits_in(before.left)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEntry {
    pub(crate) node: Option<Arc<Node>>,
    /// Resources that its host has left; `None`: not limited.
    pub(crate) host: Option<Host>,
    /// Resources of its host that are kept from the jobs considered now, because earlier ones wait for them.
    pub(crate) host_kept: HostRequest,
    /// Its cards in order of index.
    pub(crate) cards: Vec<CardEntry>,
    /// Holdings on it, as far as they were asked for.
    pub(super) holdings: Holdings,
    /// The times at which holdings on it come back; `None`: not asked for since it changed.
    pub(crate) schedule: Option<Arc<Schedule>>,
    /// Totals of the classes that have been seen on it.
    pub(super) totals: Vec<NodeTotal>,
}

/// The node at a position of the index: nodes are numbered from zero in order of registration.
pub(super) fn id_at(position: usize) -> NodeId {
    NodeId(u32::try_from(position).expect("positions of nodes are their numbers"))
}

impl NodeEntry {
    pub(crate) fn card(&self, id: CardId) -> Option<&CardEntry> {
        self.position(id).map(|position| &self.cards[position])
    }

    /// The position of a card in the list.
    pub(crate) fn position(&self, id: CardId) -> Option<usize> {
        let guess = id.index as usize;
        if self.cards.get(guess).is_some_and(|card| card.id == id) {
            return Some(guess);
        }
        self.cards.binary_search_by_key(&id, |card| card.id).ok()
    }

    /// Returns whether it takes new work.
    pub(crate) fn is_grantable(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.grantable())
    }

    /// Resources that its host has for workers once everything has ended that can, less those kept for others; `None`:
    /// not limited.
    pub(crate) fn returning_host(&self) -> Option<HostRequest> {
        let (capacity, host) = self.node.as_ref()?.description.host.zip(self.host)?;
        Some(capacity.whole().minus(host.lost).minus(self.host_kept))
    }

    pub(crate) fn total(&self, class: ClassId) -> Option<&NodeTotal> {
        self.totals.iter().find(|total| total.class == class)
    }

    pub(super) fn total_mut(&mut self, class: ClassId) -> &mut NodeTotal {
        let position = self.totals.iter().position(|total| total.class == class).unwrap_or_else(|| {
            self.totals.push(NodeTotal { class, free: 0, memory: 0 });
            self.totals.len() - 1
        });
        &mut self.totals[position]
    }

    /// The classes of which it has anything left, and how many blocks.
    pub(super) fn free_by_class(&self) -> Vec<(ClassId, u32)> {
        self.totals.iter().filter(|total| total.free > 0).map(|total| (total.class, total.free)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{Mebibytes, MilliCpus};

    use super::*;

    #[test]
    fn what_is_owed_is_given_back_before_anything_is_left() {
        let cpus = |cpu| HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) };
        let host = Host { left: cpus(2000), ..Host::default() };
        let owing = host.less(cpus(2500));
        assert_eq!(owing.more(cpus(400)).left, cpus(0));
        assert_eq!(owing.more(cpus(1000)).left, cpus(500));
        assert_eq!(owing.more(cpus(2500)), host);
    }
}
