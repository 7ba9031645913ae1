//! Wishes: where a job's workers would rather be, and must not be, and whether they are stacked or spread.
//!
//! A job with wishes is placed node by node, in an order that its wishes make, instead of by the price of room alone.
//! `together` and `avoid` hold in any case: they take nodes away. Among the nodes that are left, `spread` goes first
//! (the value of its label with the fewest of the gang's workers), then the sum of `preferred` and `data`, then
//! packing, then how busy nodes are.
//!
//! Wishes decide among the nodes of short lists (`shortlist`). Where these hold no place, all nodes are looked at for
//! wishes that must be met, so that nobody waits who could start. A wish that only prefers never keeps a job from
//! starting either: then the plain search is tried.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{Affinity, Node, NodeId, Packing, Percent, Span};

use super::{Placement, Short, Trial, best_card, place_each, shortlist, spread};
use crate::demand::Demand;
use crate::index::Index;
use crate::index::node::NodeEntry;

/// What all data together count.
const DATA: u32 = 100;

impl Demand {
    /// Whether it has wishes that must be met.
    pub(crate) fn has_hard_wishes(&self) -> bool {
        !self.affinity.together.is_empty() || !self.affinity.avoid.is_empty()
    }

    /// Whether its virtual cards go where the most room is.
    pub(crate) fn spreads(&self, index: &Index) -> bool {
        index.surroundings.packing(self.packing, &self.queue) == Packing::Spread
    }

    /// Whether a gang is placed by its wishes, rather than by the price of room.
    pub(crate) fn goes_by_wishes(&self, index: &Index) -> bool {
        self.affinity != Affinity::default() || self.spreads(index)
    }
}

/// What a node has of the labels that are preferred: the sum of their weights.
pub(crate) fn preferred(affinity: &Affinity, node: &Node) -> u32 {
    let met = affinity.preferred.iter().filter(|label| node.description.label(&label.key) == Some(&label.value));
    met.fold(0, |sum, label| sum.saturating_add(label.weight))
}

/// How many of the data that a job reads are on a node's disks.
pub(crate) fn cached(affinity: &Affinity, node: &Node) -> usize {
    affinity.data.iter().filter(|name| node.description.cached.contains(*name)).count()
}

/// What a node is worth to a job: its preferred labels, and the data on its disks.
fn worth(affinity: &Affinity, node: &Node) -> u32 {
    let hits = u32::try_from(cached(affinity, node)).unwrap_or(u32::MAX);
    let all = u32::try_from(affinity.data.len()).unwrap_or(u32::MAX).max(1);
    preferred(affinity, node).saturating_add(DATA.saturating_mul(hits) / all)
}

/// Places a gang by its wishes, or changes nothing.
pub(super) fn place(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    let mut placed = None;
    if demand.within.is_none() {
        placed = shortlist::regions(index, demand).into_iter().find_map(|region| {
            let nodes = shortlist::nodes(index, demand, region);
            place_among(index, demand, &nodes).ok()
        });
    }
    if placed.is_none() && (demand.within.is_some() || demand.has_hard_wishes()) {
        let regions = regions(index, demand);
        index.looked_at += regions.iter().map(|nodes| nodes.len() as u64).sum::<u64>();
        placed = regions.iter().find_map(|nodes| place_among(index, demand, nodes).ok());
    }
    placed.ok_or(Short { missing: 1 })
}

/// Each set of nodes that the whole gang could go to, the best first: all of them, or with `together` those of each
/// value of the label. Looks at every node that is considered.
fn regions(index: &Index, demand: &Demand) -> Vec<Vec<NodeId>> {
    let possible = |id: &NodeId| index.node(*id).is_some_and(|node| is_possible(index, demand, *id, node));
    let nodes = considered(index, demand).into_iter().filter(possible);
    if demand.affinity.together.is_empty() {
        return vec![nodes.collect()];
    }
    let stack = !demand.spreads(index);
    let mut ranked: Vec<_> = by_value(index, &demand.affinity.together, nodes)
        .into_values()
        .filter_map(|nodes| {
            let free: u64 = nodes.iter().map(|id| compute_left(index, demand, *id)).fold(0, u64::saturating_add);
            let best = best_worth(index, demand, &nodes);
            let enough = u128::from(free) >= u128::from(demand.compute) * u128::from(demand.gang);
            enough.then_some((Reverse(best), if stack { free } else { u64::MAX - free }, nodes))
        })
        .collect();
    ranked.sort();
    ranked.into_iter().map(|(_, _, nodes)| nodes.into_iter().collect()).collect()
}

pub(super) fn best_worth(index: &Index, demand: &Demand, nodes: &BTreeSet<NodeId>) -> u32 {
    let nodes = nodes.iter().filter_map(|id| index.ledger_node(*id));
    nodes.map(|node| worth(&demand.affinity, node)).max().unwrap_or(0)
}

/// Nodes by the value that they carry of a label; those without it are left out.
pub(super) fn by_value<'a>(
    index: &'a Index,
    key: &str,
    nodes: impl IntoIterator<Item = NodeId>,
) -> BTreeMap<&'a str, BTreeSet<NodeId>> {
    let mut values: BTreeMap<&str, BTreeSet<NodeId>> = BTreeMap::new();
    for id in nodes {
        if let Some(value) = index.label(id, key) {
            values.entry(value).or_default().insert(id);
        }
    }
    values
}

/// The nodes that a demand considers, whatever they carry.
pub(crate) fn considered(index: &Index, demand: &Demand) -> Vec<NodeId> {
    match &demand.within {
        Some(within) => within.iter().copied().collect(),
        None => index.nodes().map(|(id, _)| id).collect(),
    }
}

/// A demand for each region of `together` that could ever hold it; the demand itself when it has no such wish.
pub(crate) fn demands_by_region(index: &Index, demand: &Demand) -> Vec<Demand> {
    let key = demand.affinity.together.as_str();
    if key.is_empty() {
        return vec![demand.clone()];
    }
    by_value(index, key, considered(index, demand)).into_values().map(|nodes| demand.among(nodes)).collect()
}

/// Whether a worker may go to a node, and finds something free there.
pub(super) fn is_possible(index: &Index, demand: &Demand, id: NodeId, node: &NodeEntry) -> bool {
    let avoid = &demand.affinity.avoid;
    demand.fits_node(node, 1)
        && node.cards.iter().any(|card| card.offered() > 0 && demand.offer_of(card.class).is_some())
        && (avoid.is_empty() || !index.surroundings.has(id, avoid))
}

/// What the cards of a node that are accepted have left, in thousandths of a TFLOPS.
fn compute_left(index: &Index, demand: &Demand, id: NodeId) -> u64 {
    index.node(id).map_or(0, |node| spread::left_on(node, &demand.offers).0)
}

/// How soon a node's turn comes; less is sooner: what it is worth, with spreading its own workers, its room, how busy
/// it is.
type Turn = (Reverse<u32>, u32, u64, Percent, NodeId);

/// The nodes of one value of the label of `spread`.
#[derive(Debug, Default)]
struct Zone {
    /// Workers of the gang that are there.
    workers: u32,
    turns: BTreeSet<Turn>,
}

/// The nodes that could take a further worker, in order.
struct Turns {
    zones: Vec<Zone>,
    /// Zones by their workers and the turn of their best node; of equals the nodes without the label last.
    order: BTreeSet<(u32, bool, Turn, usize)>,
    spreads_nodes: bool,
}

impl Turns {
    fn new(trial: &Trial<'_>, demand: &Demand, nodes: &[NodeId]) -> Self {
        let (index, affinity) = (&*trial.index, &demand.affinity);
        let mut own: BTreeMap<NodeId, u32> = BTreeMap::new();
        trial.placement.workers.iter().for_each(|worker| *own.entry(worker.node).or_default() += 1);
        let spreads_nodes = demand.spreads(index);
        let mut zones: BTreeMap<Option<&str>, Zone> = BTreeMap::new();
        for id in nodes {
            let Some(node) = index.ledger_node(*id) else { continue };
            let value = node.description.label(&affinity.spread);
            let here = own.get(id).copied().unwrap_or(0);
            let left = compute_left(index, demand, *id);
            let room = if spreads_nodes { u64::MAX - left } else { left };
            let turn = (
                Reverse(worth(affinity, node)),
                if spreads_nodes { here } else { 0 },
                room,
                index.surroundings.load(*id),
                *id,
            );
            let zone = zones.entry(value).or_default();
            zone.workers += here;
            zone.turns.insert(turn);
        }
        // `None` sorts first: zones without the label are moved behind the others by the flag in `order`.
        let unlabelled = !affinity.spread.is_empty() && zones.contains_key(&None);
        let mut turns = Self { zones: zones.into_values().collect(), order: BTreeSet::new(), spreads_nodes };
        for number in 0..turns.zones.len() {
            turns.enter(number, unlabelled && number == 0);
        }
        turns
    }

    fn enter(&mut self, number: usize, unlabelled: bool) {
        let zone = &self.zones[number];
        if let Some(turn) = zone.turns.first() {
            self.order.insert((zone.workers, unlabelled, *turn, number));
        }
    }

    fn next(&self) -> Option<NodeId> {
        self.order.first().map(|(_, _, turn, _)| turn.4)
    }

    /// The node whose turn it was took a worker, or has no room for one.
    fn done(&mut self, took: bool) {
        let Some((_, unlabelled, turn, number)) = self.order.pop_first() else { return };
        let zone = &mut self.zones[number];
        zone.turns.remove(&turn);
        if took {
            zone.workers += 1;
            let own = if self.spreads_nodes { turn.1 + 1 } else { turn.1 };
            zone.turns.insert((turn.0, own, turn.2, turn.3, turn.4));
        }
        self.enter(number, unlabelled);
    }
}

/// Places the whole gang on some of these nodes, or changes nothing: each virtual card on one card as far as there is
/// such room, then on one node, then over nodes. Room only shrinks: where one found no place, none does.
fn place_among(index: &mut Index, demand: &Demand, nodes: &[NodeId]) -> Result<Placement, Short> {
    let mut spans = [Span::Card, Span::Node, Span::Pool].into_iter().filter(|span| *span <= demand.span);
    let (mut span, mut turns) = (spans.next(), None);
    place_each(index, demand, |trial, _| {
        loop {
            let within = span?;
            if within == Span::Pool {
                return spread::over_nodes(trial.index, &demand.among(nodes.iter().copied()));
            }
            let order = turns.get_or_insert_with(|| Turns::new(trial, demand, nodes));
            let Some(node) = order.next() else {
                (span, turns) = (spans.next(), None);
                continue;
            };
            let shares = match within {
                Span::Card => best_card(trial, demand, Some(node)).map(|share| vec![share]),
                Span::Node | Span::Pool => spread::on_node(trial.index, demand, node),
            };
            order.done(shares.is_some());
            if shares.is_some() {
                return shares;
            }
        }
    })
}
