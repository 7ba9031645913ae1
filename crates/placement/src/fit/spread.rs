//! Virtual cards over several cards: of one node, or of as few nodes as possible.

use std::cmp::Reverse;

use tessera_ledger::{CardKind, NodeId};

use super::share::{Candidate, Share, candidates, divide};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::node::NodeEntry;

/// The sets of classes that may back one virtual card together: each kind for itself, then all if kinds may mix.
fn teams(demand: &Demand) -> Vec<&[Offer]> {
    let mut teams: Vec<&[Offer]> = demand.by_kind().collect();
    if demand.mixed && teams.len() > 1 {
        teams.push(&demand.offers);
    }
    teams
}

/// Compute and memory that a node has left for a team.
fn left_on(node: &NodeEntry, team: &[Offer]) -> (u64, u64) {
    team.iter().filter_map(|offer| Some((offer, node.total(offer.class)?))).fold(
        (0, 0),
        |sum: (u64, u64), (offer, total)| {
            (sum.0.saturating_add(offer.compute_of(total.free)), sum.1.saturating_add(total.memory))
        },
    )
}

/// Shares on one given node.
pub(crate) fn on_node(index: &Index, demand: &Demand, id: NodeId) -> Option<Vec<Share>> {
    let node = index.node(id)?;
    if !demand.fits_host(node, 1) || !node.node.as_ref().is_some_and(|node| demand.accepts(node)) {
        return None;
    }
    teams(demand).into_iter().find_map(|team| divide(index, candidates(node, team, demand), demand))
}

/// How good a node is; less is better: the processors of hosts last, then few cards, then little left afterwards.
type Score = (bool, usize, u64, NodeId);

/// Shares on the node that suits best.
pub(crate) fn on_best_node(index: &Index, demand: &Demand) -> Option<Vec<Share>> {
    teams(demand).into_iter().find_map(|team| {
        let of_one_class = team.iter().filter_map(|offer| on_node_of_class(index, demand, offer));
        let assorted = on_assorted_node(index, demand, team);
        of_one_class.chain(assorted).min_by_key(|(score, _)| *score).map(|(_, shares)| shares)
    })
}

fn attempt(index: &Index, id: NodeId, demand: &Demand, team: &[Offer]) -> Option<(Score, Vec<Share>)> {
    let node = index.node(id)?;
    let (compute, memory) = left_on(node, team);
    if compute < demand.compute
        || memory < demand.memory
        || !demand.fits_host(node, 1)
        || !node.node.as_ref().is_some_and(|node| demand.accepts(node))
    {
        return None;
    }
    let shares = divide(index, candidates(node, team, demand), demand)?;
    let last_resort = team.iter().all(|offer| offer.kind == CardKind::Cpu);
    Some(((last_resort, shares.len(), compute - demand.compute, id), shares))
}

/// The first node, by what its cards of the class have left, on which they are enough.
fn on_node_of_class(index: &Index, demand: &Demand, offer: &Offer) -> Option<(Score, Vec<Share>)> {
    let mut nodes = index.classes.get(offer.class).nodes.range((offer.need, NodeId(0))..);
    nodes.find_map(|(_, id)| attempt(index, *id, demand, std::slice::from_ref(offer)))
}

/// The best of the nodes on which only several classes together are enough.
fn on_assorted_node(index: &Index, demand: &Demand, team: &[Offer]) -> Option<(Score, Vec<Share>)> {
    if team.len() < 2 {
        return None;
    }
    index.assorted_nodes().filter_map(|id| attempt(index, id, demand, team)).min_by_key(|(score, _)| *score)
}

/// Shares over as few nodes as possible: the nodes with the most left first, the last one as small as will do.
pub(crate) fn over_nodes(index: &Index, demand: &Demand) -> Option<Vec<Share>> {
    teams(demand).into_iter().find_map(|team| {
        let mut chosen: Vec<Candidate> = Vec::new();
        let (mut compute, mut memory) = (0u64, 0u64);
        for (id, left) in nodes_by_room(index, demand, team) {
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
    })
}

/// The nodes that have something for a team, those with the most compute first; where one more node is enough, the smallest
/// such node comes at that place.
fn nodes_by_room(index: &Index, demand: &Demand, team: &[Offer]) -> Vec<(NodeId, (u64, u64))> {
    let mut nodes: Vec<(NodeId, (u64, u64))> = match team {
        [offer] => {
            let set = &index.classes.get(offer.class).nodes;
            let needed = largest_needed(set.iter().rev().map(|(free, _)| *free), offer, demand);
            let largest = set.iter().rev().take(needed).map(|(_, id)| *id);
            largest.filter_map(|id| Some((id, left_on(index.node(id)?, team)))).collect()
        }
        _ => index.nodes().map(|(id, node)| (id, left_on(node, team))).filter(|(_, left)| left.0 > 0).collect(),
    };
    nodes.retain(|(id, _)| {
        let fits =
            |node: &NodeEntry| demand.fits_host(node, 1) && node.node.as_ref().is_some_and(|node| demand.accepts(node));
        index.node(*id).is_some_and(fits)
    });
    nodes.sort_unstable_by_key(|(id, left)| (Reverse(left.0), *id));
    let mut missing = demand.compute;
    let mut large = 0;
    while large < nodes.len() && nodes[large].1.0 < missing {
        missing -= nodes[large].1.0;
        large += 1;
    }
    let fits = |(_, (compute, memory)): &(NodeId, (u64, u64))| *compute >= missing && *memory > 0;
    if let Some(last) = nodes[large..].iter().rposition(fits) {
        let node = nodes.remove(large + last);
        nodes.insert(large, node);
    }
    nodes
}

/// How many of the largest nodes are looked at when labels and memory do not matter; all of them otherwise.
fn largest_needed(free: impl Iterator<Item = u32>, offer: &Offer, demand: &Demand) -> usize {
    if demand.memory > 0 || demand.whole || !demand.host.is_zero() || !demand.labels.is_empty() {
        return usize::MAX;
    }
    let mut missing = demand.compute;
    let mut count = 0;
    for blocks in free {
        count += 1;
        missing = missing.saturating_sub(offer.compute_of(blocks));
        if missing == 0 {
            return count + 1;
        }
    }
    count
}
