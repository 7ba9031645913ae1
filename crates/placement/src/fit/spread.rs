//! Virtual cards over several cards of one node.

use std::collections::BTreeSet;

use tessera_ledger::{CardKind, NodeId};

use super::by_room;
use super::share::{Share, candidates, divide};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::node::NodeEntry;

/// The sets of classes that may back one virtual card together: each kind for itself, then all if kinds may mix.
pub(super) fn teams(demand: &Demand) -> Vec<&[Offer]> {
    let mut teams: Vec<&[Offer]> = demand.offers.chunk_by(|left, right| left.kind == right.kind).collect();
    if demand.mixed && teams.len() > 1 {
        teams.push(&demand.offers);
    }
    teams
}

/// Compute and memory that a node has left for a team.
pub(super) fn left_on(node: &NodeEntry, team: &[Offer]) -> (u64, u64) {
    team.iter().filter_map(|offer| Some((offer, node.total(offer.class)?))).fold(
        (0, 0),
        |sum: (u64, u64), (offer, total)| {
            (sum.0.saturating_add(offer.compute_of(total.free)), sum.1.saturating_add(total.memory))
        },
    )
}

pub(crate) fn on_node(index: &Index, demand: &Demand, id: NodeId) -> Option<Vec<Share>> {
    let node = index.node(id)?;
    if !demand.fits_node(node, 1) {
        return None;
    }
    teams(demand).into_iter().find_map(|team| divide(index, candidates(node, team, demand), demand))
}

/// Score of a node; less is better: the processors of hosts last, then few cards, then little left afterwards.
type Score = (bool, usize, u64, NodeId);

pub(crate) fn on_best_node(index: &Index, demand: &Demand) -> Option<Vec<Share>> {
    teams(demand).into_iter().find_map(|team| {
        // The first node, by what its cards of a class have left, on which they are enough.
        let of_one_class = team.iter().filter_map(|offer| {
            let of_class = std::slice::from_ref(offer);
            by_room(index, demand, offer, offer.need).find_map(|(_, id)| attempt(index, id, demand, of_class))
        });
        // And the nodes on which only several classes together are enough.
        let assorted = index.assorted.iter().filter(|_| team.len() > 1);
        let assorted = assorted.filter_map(|id| attempt(index, *id, demand, team));
        of_one_class.chain(assorted).min_by_key(|(score, _)| *score).map(|(_, shares)| shares)
    })
}

fn attempt(index: &Index, id: NodeId, demand: &Demand, team: &[Offer]) -> Option<(Score, Vec<Share>)> {
    let node = index.node(id)?;
    let (compute, memory) = left_on(node, team);
    if compute < demand.compute || memory < demand.memory || !demand.fits_node(node, 1) {
        return None;
    }
    let shares = divide(index, candidates(node, team, demand), demand)?;
    let last_resort = team.iter().all(|offer| offer.kind == CardKind::Cpu);
    Some(((last_resort, shares.len(), compute - demand.compute, id), shares))
}

/// The only nodes to look at: those that the demand is confined to (`within`), else the carriers of the rarest label
/// asked for; `None`: all.
pub(super) fn given_nodes<'a>(index: &'a Index, demand: &'a Demand) -> Option<&'a BTreeSet<NodeId>> {
    demand.within.as_deref().or_else(|| index.carriers.of_rarest(&demand.node_labels))
}
