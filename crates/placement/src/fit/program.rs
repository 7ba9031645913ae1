//! Placement of the program of a virtual card whose workers only serve it: on the node that holds most of its blocks,
//! if its host has room; else on one that holds a smaller part; else on a host beside the card, hosts without any cards
//! first, because no other work needs them as much.
//!
//! Slices ask for nothing of their hosts then, and programs for nothing of cards: which cards back a virtual card does
//! not depend on where its program is.

use std::cmp::Reverse;

use tessera_ledger::{NodeId, PlannedWorker};

use crate::demand::Demand;
use crate::index::Index;
use crate::index::node::{Host, NodeEntry};

/// Puts the worker with the program in front of those of its virtual card, and takes what that asks for from the index.
/// `None`: no host has room for it.
pub(super) fn put_first(index: &mut Index, demand: &Demand, workers: &mut Vec<PlannedWorker>) -> Option<()> {
    let Some(request) = demand.program else { return Some(()) };
    let node = node_of(index, demand, workers)?;
    index.change_host(node, request, Host::less);
    match workers.iter().position(|worker| worker.node == node) {
        Some(place) => workers[..=place].rotate_right(1),
        None => {
            workers.insert(0, PlannedWorker { virtual_card: workers.first()?.virtual_card, node, slices: Vec::new() })
        }
    }
    Some(())
}

fn node_of(index: &mut Index, demand: &Demand, workers: &[PlannedWorker]) -> Option<NodeId> {
    let blocks = |worker: &PlannedWorker| worker.slices.iter().map(|slice| u64::from(slice.length.0)).sum::<u64>();
    let mut own: Vec<_> = workers.iter().map(|worker| (Reverse(blocks(worker)), worker.node)).collect();
    own.sort_unstable();
    let with_its_card = own.iter().map(|(_, node)| *node).find(|id| has_room(index, demand, *id));
    with_its_card.or_else(|| beside(index, demand, own.first()?.1))
}

/// Returns whether a node may have a program of a job, and its host has room for one.
fn has_room(index: &Index, demand: &Demand, id: NodeId) -> bool {
    index.node(id).is_some_and(|node| demand.may_have_program(index, id, node) && demand.fits_program(node))
}

/// The first host with room that the job may use beside the nodes of its card, of which `with` is one.
fn beside(index: &mut Index, demand: &Demand, with: NodeId) -> Option<NodeId> {
    let all = index.nodes().len() as u64;
    index.looked_at += all;
    let may = demand.may_be_beside(index, Some(with));
    let with_room = index.nodes().filter(|(id, node)| demand.fits_program(node) && may(*id, node));
    with_room.map(|(id, node)| (!node.cards.is_empty(), id)).min().map(|(_, id)| id)
}

impl Demand {
    /// Returns whether a node may have a program of the job, regardless of the room left on its host.
    pub(crate) fn may_have_program(&self, index: &Index, id: NodeId, node: &NodeEntry) -> bool {
        let avoid = &self.affinity.avoid;
        node.is_grantable() && self.is_labelled(node) && (avoid.is_empty() || !index.surroundings.has(id, avoid))
    }

    /// The same where the program is to be together with a node of its card as the job wants that.
    pub(crate) fn may_be_beside<'a>(
        &'a self,
        index: &'a Index,
        with: Option<NodeId>,
    ) -> impl Fn(NodeId, &NodeEntry) -> bool {
        let together = self.affinity.together.as_str();
        let wanted = with.and_then(|node| index.label(node, together));
        let is_with = move |id: NodeId| together.is_empty() || index.label(id, together) == wanted;
        move |id, node| self.may_have_program(index, id, node) && is_with(id)
    }

    /// Returns whether a host has room for the program of a virtual card whose workers only serve it.
    fn fits_program(&self, node: &NodeEntry) -> bool {
        node.host.is_none_or(|host| self.programs_in(host.left) > 0)
    }
}
