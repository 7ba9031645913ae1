//! Virtual cards over several cards: of one node, or of as few nodes as possible.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{CardKind, NodeId};

use super::by_room;
use super::closeness::RACK_KEY;
use super::share::{Candidate, Share, candidates, divide, largest_below};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::node::NodeEntry;
use crate::index::zones::Value;

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

/// How good a node is; less is better: the processors of hosts last, then few cards, then little left afterwards.
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

/// Racks that are tried for one virtual card.
const RACKS_TRIED: usize = 8;

/// Shares over as few nodes as possible, of one rack if that takes no more slices.
pub(crate) fn over_nodes(index: &mut Index, demand: &Demand) -> Option<Vec<Share>> {
    index.settle_zones(RACK_KEY);
    let index = &*index;
    teams(demand).into_iter().find_map(|team| {
        let anywhere = divide_over(index, demand, team, None)?;
        Some(in_one_rack(index, demand, team, &anywhere).unwrap_or(anywhere))
    })
}

/// Shares in one rack, no more than these, unless these are in one.
fn in_one_rack(index: &Index, demand: &Demand, team: &[Offer], anywhere: &[Share]) -> Option<Vec<Share>> {
    let rack = |share: &Share| index.label(share.card.node, RACK_KEY).map(Arc::from);
    let racks: BTreeSet<Value> = anywhere.iter().map(rack).collect();
    if racks.len() < 2 {
        return None;
    }
    let enough = team.iter().flat_map(|offer| index.zones.of(RACK_KEY, offer.class).with(offer.need.into()));
    let enough = enough.map(|(_, rack)| rack).filter(|rack| rack.is_some()).take(RACKS_TRIED);
    let mut tried = enough.chain(racks.iter().filter(|rack| rack.is_some()).take(RACKS_TRIED));
    tried.find_map(|rack| divide_over(index, demand, team, Some(rack)).filter(|shares| shares.len() <= anywhere.len()))
}

/// Shares over the nodes with the most left first, the last one as small as will do; of one rack, if one is given.
fn divide_over(index: &Index, demand: &Demand, team: &[Offer], rack: Option<&Value>) -> Option<Vec<Share>> {
    let mut chosen: Vec<Candidate> = Vec::new();
    let (mut compute, mut memory) = (0u64, 0u64);
    for (id, left) in nodes_by_room(index, demand, team, rack) {
        let Some(node) = index.node(id) else { continue };
        chosen.extend(candidates(node, team, demand));
        compute = compute.saturating_add(left.0);
        memory = memory.saturating_add(left.1);
        if compute < demand.compute || memory < demand.memory {
            continue;
        }
        // Sums of nodes round less than sums of cards: a further node may still be needed.
        if let Some(shares) = divide(index, chosen.clone(), demand) {
            return Some(shares);
        }
    }
    None
}

/// Where only some nodes are considered, or carry the labels asked for: those, so that no others are looked at.
pub(super) fn given_nodes<'a>(index: &'a Index, demand: &'a Demand) -> Option<&'a BTreeSet<NodeId>> {
    demand.within.as_deref().or_else(|| index.carriers.of_rarest(&demand.node_labels))
}

/// The nodes that have something for a team, those with the most compute first; where one more node is enough, the
/// smallest such node comes at that place.
fn nodes_by_room(index: &Index, demand: &Demand, team: &[Offer], rack: Option<&Value>) -> Vec<(NodeId, (u64, u64))> {
    let ids: Vec<NodeId> = match (team, rack, given_nodes(index, demand)) {
        (team, Some(rack), _) => {
            let nodes = |offer: &Offer| index.zones.of(RACK_KEY, offer.class).nodes_with(rack, 1).map(|(_, id)| id);
            let ids: BTreeSet<NodeId> = team.iter().flat_map(nodes).collect();
            ids.into_iter().collect()
        }
        (_, None, Some(given)) => given.iter().copied().collect(),
        ([offer], None, None) => index.classes.get(offer.class).nodes.iter().map(|(_, id)| *id).collect(),
        _ => index.nodes().map(|(id, _)| id).collect(),
    };
    let left =
        |id: NodeId| Some((id, left_on(index.node(id)?, team))).filter(|(_, left)| left.0 > 0 || team.len() == 1);
    let mut nodes: Vec<(NodeId, (u64, u64))> = ids.into_iter().filter_map(left).collect();
    nodes.retain(|(id, _)| index.node(*id).is_some_and(|node| demand.fits_node(node, 1)));
    nodes.sort_unstable_by_key(|(id, left)| (Reverse(left.0), *id));
    let (large, missing) = largest_below(nodes.iter().map(|(_, (compute, _))| *compute), demand.compute);
    let fits = |(_, (compute, memory)): &(NodeId, (u64, u64))| *compute >= missing && *memory > 0;
    if let Some(last) = nodes[large..].iter().rposition(fits) {
        let node = nodes.remove(large + last);
        nodes.insert(large, node);
    }
    nodes
}
