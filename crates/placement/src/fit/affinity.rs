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

use super::{Placement, Short, Trial, best_card, place_each, seats, shortlist, spread};
use crate::demand::Demand;
use crate::index::Index;
use crate::index::node::NodeEntry;

/// The worth of having all data that a job reads, on the scale of label weights; a part counts in proportion.
const DATA: u32 = 100;

impl Demand {
    /// Returns whether the job has wishes that must be met.
    pub(crate) fn has_hard_wishes(&self) -> bool {
        !self.affinity.together.is_empty() || !self.affinity.avoid.is_empty()
    }

    /// Returns whether its virtual cards go where the most room is.
    pub(crate) fn spreads(&self, index: &Index) -> bool {
        index.surroundings.packing(self.packing, &self.queue) == Packing::Spread
    }

    /// Returns whether the gang is placed by its wishes, rather than by the price of room.
    pub(crate) fn goes_by_wishes(&self, index: &Index) -> bool {
        !self.affinity.is_empty() || self.spreads(index)
    }
}

/// The sum of the weights of the preferred labels that a node carries.
#[must_use]
pub fn preferred(affinity: &Affinity, node: &Node) -> u32 {
    let met = affinity.preferred.iter().filter(|label| node.description.label(&label.key) == Some(&label.value));
    met.fold(0, |sum, label| sum.saturating_add(label.weight))
}

/// The number of data that a job reads and that are on a node's disks.
#[must_use]
pub fn cached(affinity: &Affinity, node: &Node) -> usize {
    affinity.data.iter().filter(|name| node.description.cached.contains(*name)).count()
}

/// The worth of a node to a job: its preferred labels, and the data on its disks.
pub(super) fn worth(affinity: &Affinity, node: &Node) -> u32 {
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

/// Each set of nodes that the whole gang could go to: all of them, or with `together` those of each value of the label.
/// Looks at every node that is considered.
fn regions(index: &Index, demand: &Demand) -> Vec<Vec<NodeId>> {
    let possible = |id: &NodeId| index.node(*id).is_some_and(|node| is_possible(index, demand, *id, node));
    let nodes = considered(index, demand).into_iter().filter(possible);
    match demand.affinity.together.as_str() {
        "" => vec![nodes.collect()],
        key => by_value(index, key, nodes).into_values().map(|nodes| nodes.into_iter().collect()).collect(),
    }
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

/// Returns whether a worker may go to a node, and finds free blocks on an accepted card there.
pub(super) fn is_possible(index: &Index, demand: &Demand, id: NodeId, node: &NodeEntry) -> bool {
    let avoid = &demand.affinity.avoid;
    demand.fits_node(node, 1)
        && node.cards.iter().any(|card| card.offered() > 0 && demand.offer_of(card.class).is_some())
        && (avoid.is_empty() || !index.surroundings.has(id, avoid))
}

/// Free compute of the accepted cards of a node, in thousandths of a TFLOPS.
fn compute_left(index: &Index, demand: &Demand, id: NodeId) -> u64 {
    index.node(id).map_or(0, |node| spread::left_on(node, &demand.offers).0)
}

/// The rank of a node among those of equal zones; the least takes the next worker. Greater worth goes first; when the
/// virtual cards spread, then fewer workers of the gang on the node; then more room when they spread, else less; then
/// the lower load; then the lower number.
type Turn = (Reverse<u32>, u32, u64, Percent, NodeId);

/// The nodes that could take a further worker.
struct Turns {
    /// With the zone of each: the nodes of one value of the label of `spread`.
    nodes: Vec<(usize, Turn)>,
    /// Workers of the gang in each zone; of equals that of the nodes without the label comes last.
    zones: Vec<(u32, bool)>,
    spreads_nodes: bool,
}

impl Turns {
    fn new(trial: &Trial<'_>, demand: &Demand, nodes: &[NodeId]) -> Self {
        let (index, affinity) = (&*trial.index, &demand.affinity);
        let mut turns = Self { nodes: Vec::new(), zones: Vec::new(), spreads_nodes: demand.spreads(index) };
        let mut zones: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for id in nodes {
            let Some(node) = index.ledger_node(*id) else { continue };
            let value = node.description.label(&affinity.spread);
            let zone = *zones.entry(value).or_insert_with(|| {
                turns.zones.push((0, value.is_none()));
                turns.zones.len() - 1
            });
            let left = compute_left(index, demand, *id);
            let room = if turns.spreads_nodes { u64::MAX - left } else { left };
            turns.nodes.push((zone, (Reverse(worth(affinity, node)), 0, room, index.surroundings.load(*id), *id)));
        }
        for worker in &trial.placement.workers {
            let there = turns.nodes.iter().position(|(_, turn)| turn.4 == worker.node);
            there.into_iter().for_each(|place| turns.took(place));
        }
        turns
    }

    /// The position in `nodes` of the node that takes the next worker; `None`: no node is left.
    fn next(&self) -> Option<usize> {
        let turn = |place: &usize| (self.zones[self.nodes[*place].0], self.nodes[*place].1);
        (0..self.nodes.len()).min_by_key(turn)
    }

    /// A node took a worker.
    fn took(&mut self, place: usize) {
        let (zone, turn) = &mut self.nodes[place];
        self.zones[*zone].0 += 1;
        turn.1 += u32::from(self.spreads_nodes);
    }
}

/// Places the whole gang on some of these nodes, or changes nothing: each virtual card on one card as far as there is
/// such room, then on one node. Room only shrinks: where one found no place, none does. Those that spread over nodes
/// are divided as if these were all.
fn place_among(index: &mut Index, demand: &Demand, nodes: &[NodeId]) -> Result<Placement, Short> {
    let mut spans = [Span::Card, Span::Node].into_iter().filter(|span| *span <= demand.span);
    let (mut span, mut turns) = (spans.next(), None);
    let alone = place_each(index, demand, |trial, _| {
        loop {
            let within = span?;
            let order = turns.get_or_insert_with(|| Turns::new(trial, demand, nodes));
            let Some(place) = order.next() else {
                (span, turns) = (spans.next(), None);
                continue;
            };
            let node = order.nodes[place].1.4;
            let shares = match within {
                Span::Card => best_card(trial, demand, Some(node)).map(|share| vec![share]),
                Span::Node | Span::Pool => spread::on_node(trial.index, demand, node),
            };
            if shares.is_some() {
                order.took(place);
                return shares;
            }
            order.nodes.swap_remove(place);
        }
    });
    if alone.is_ok() || demand.span != Span::Pool {
        return alone;
    }
    seats::place(index, &demand.among(nodes.iter().copied()))
}
