//! Short lists: the nodes among which the wishes of a job decide. In a large pool they are few: those that carry what
//! it prefers or have its data, and of all others, which are worth the same to it, those with the least and with the
//! most room. They are found in the orders that the index keeps, so that a wish costs the same in a pool of any size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{Affinity, CardId, NodeId, Span};

use super::affinity::{by_value, is_possible, worth};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::zones::Value;

/// Nodes of one order that are listed, or as many as the gang has workers.
const LISTED: usize = 32;
/// Nodes of one order that are looked at for that: not all of them can take a worker.
const LOOKED_AT: usize = 1024;
/// Most nodes with a label, or with data, that are all looked at; if more have it, only some are.
const FEW: usize = 256;

/// A region that a whole gang could go to: the pool, or with `together` the nodes with one value of its label.
pub(super) struct Region {
    value: Option<Value>,
    /// Nodes there that have something that is wished for.
    worthy: BTreeSet<NodeId>,
}

/// The regions among which wishes decide, the best first.
pub(super) fn regions(index: &mut Index, demand: &Demand) -> Vec<Region> {
    let Affinity { together, spread, .. } = &demand.affinity;
    [together, spread].into_iter().filter(|key| !key.is_empty()).for_each(|key| index.settle_zones(key));
    let mut list = Shortlist::new(index, demand, BTreeSet::new());
    list.worthy();
    let (worthy, looked_at) = (list.listed, list.looked_at);
    index.looked_at += looked_at;
    match together.as_str() {
        "" => vec![Region { value: None, worthy }],
        key => regions_of(index, demand, key, &worthy),
    }
}

/// The values of the label of `together` that may hold the whole gang, with the worthy nodes there; the best first: by
/// what the best node is worth, then by its room.
fn regions_of(index: &Index, demand: &Demand, key: &str, worthy: &BTreeSet<NodeId>) -> Vec<Region> {
    let worthy = by_value(index, key, worthy.iter().copied()).into_iter();
    let mut regions: BTreeMap<Value, BTreeSet<NodeId>> =
        worthy.map(|(value, nodes)| (Some(value.into()), nodes)).collect();
    for offer in &demand.offers {
        let enough = u64::from(offer.need) * u64::from(demand.gang);
        let labelled = || index.zones.of(key, offer.class).with(enough).filter(|(_, value)| value.is_some());
        for (_, value) in labelled().take(LISTED).chain(labelled().rev().take(LISTED)) {
            regions.entry(value.clone()).or_default();
        }
    }
    let stack = !demand.spreads(index);
    let mut ranked: Vec<(Value, BTreeSet<NodeId>)> = regions.into_iter().collect();
    ranked.sort_by_cached_key(|(value, worthy)| {
        let free = |offer: &Offer| offer.compute_of_many(index.zones.of(key, offer.class).free(value));
        let free: u128 = demand.offers.iter().map(free).sum();
        let worths = worthy.iter().filter_map(|id| Some(worth(&demand.affinity, index.ledger_node(*id)?)));
        (Reverse(worths.max().unwrap_or(0)), if stack { free } else { u128::MAX - free })
    });
    ranked.into_iter().map(|(value, worthy)| Region { value: Some(value), worthy }).collect()
}

/// The nodes of a region among which wishes decide.
pub(super) fn nodes(index: &mut Index, demand: &Demand, region: Region) -> Vec<NodeId> {
    let mut list = Shortlist::new(index, demand, region.worthy);
    match &region.value {
        Some(value) => list.of_region(value),
        None => {
            list.by_room();
            list.by_zone();
        }
    }
    let (listed, looked_at) = (list.listed, list.looked_at);
    index.looked_at += looked_at;
    listed.into_iter().collect()
}

struct Shortlist<'a> {
    index: &'a Index,
    demand: &'a Demand,
    most: usize,
    listed: BTreeSet<NodeId>,
    looked_at: u64,
}

/// The fewest free blocks of a class that are of use to a virtual card on one node.
fn least(demand: &Demand, offer: &Offer) -> u32 {
    if demand.span == Span::Pool { 1 } else { offer.need }
}

impl<'a> Shortlist<'a> {
    fn new(index: &'a Index, demand: &'a Demand, listed: BTreeSet<NodeId>) -> Self {
        Self { index, demand, most: LISTED.max(demand.gang as usize), listed, looked_at: 0 }
    }

    /// Lists a node if a worker may go there and finds something free.
    fn add(&mut self, id: NodeId) -> bool {
        if self.listed.contains(&id) {
            return true;
        }
        self.looked_at += 1;
        let possible = self.index.node(id).is_some_and(|node| is_possible(self.index, self.demand, id, node));
        possible && self.listed.insert(id)
    }

    fn all(&mut self, nodes: &BTreeSet<NodeId>) {
        for id in nodes {
            self.add(*id);
        }
    }

    /// Lists the first nodes of an order and the last.
    fn ends(&mut self, order: impl DoubleEndedIterator<Item = NodeId> + Clone) {
        self.first(order.clone());
        self.first(order.rev());
    }

    /// Lists the first nodes of an order.
    fn first(&mut self, order: impl Iterator<Item = NodeId>) {
        let mut found = 0;
        for id in order.take(LOOKED_AT) {
            if found >= self.most {
                return;
            }
            found += usize::from(self.add(id));
        }
    }

    /// Lists nodes that carry labels which are preferred, or have data that is read.
    fn worthy(&mut self) {
        let (index, affinity) = (self.index, &self.demand.affinity);
        let labels = affinity.preferred.iter().map(|label| index.carriers.of_label(&label.key, &label.value));
        let data = affinity.data.iter().map(|name| index.carriers.of_data(name));
        for nodes in labels.chain(data) {
            if nodes.len() <= FEW {
                self.all(nodes);
                continue;
            }
            for offer in &self.demand.offers {
                let all = index.classes.get(offer.class).nodes_with(least(self.demand, offer)).map(|(_, id)| id);
                self.ends(all.filter(|id| nodes.contains(id)));
            }
        }
    }

    /// Lists the nodes with the most room and with the least that may be enough.
    fn by_room(&mut self) {
        let (index, demand) = (self.index, self.demand);
        // Few nodes carry a rare label: those are looked at, and not the many that do not.
        if let Some(nodes) = index.carriers.of_rarest(&demand.node_labels).filter(|nodes| nodes.len() <= FEW) {
            self.all(nodes);
            return;
        }
        for offer in &demand.offers {
            let class = index.classes.get(offer.class);
            let nodes = class.nodes_with(least(demand, offer)).map(|(_, id)| id);
            self.first(nodes.clone().rev());
            if demand.spreads(index) {
                continue;
            }
            self.first(nodes);
            if demand.fits_one_card(offer) {
                let cards = class.cards.range((offer.need, 0, CardId { node: NodeId(0), index: 0 })..);
                self.first(cards.filter(|(_, memory, _)| *memory >= demand.memory).map(|(.., card)| card.node));
            }
        }
    }

    /// Lists some nodes of each value of the label of `spread`, of those values with the most room.
    fn by_zone(&mut self) {
        let (index, demand) = (self.index, self.demand);
        let key = demand.affinity.spread.as_str();
        if key.is_empty() || demand.gang < 2 {
            return;
        }
        let most = self.most;
        for offer in &demand.offers {
            let least = least(demand, offer);
            let zones = index.zones.of(key, offer.class);
            let values: Vec<&Value> = zones.with(least.into()).rev().map(|(_, value)| value).take(most).collect();
            self.most = (2 * demand.gang as usize).div_ceil(values.len().max(1)).min(most);
            for value in values {
                self.ends(zones.nodes_with(value, least).map(|(_, id)| id));
            }
        }
        self.most = most;
    }

    /// Lists nodes of one value of the label of `together`.
    fn of_region(&mut self, value: &Value) {
        for offer in &self.demand.offers {
            let zones = self.index.zones.of(self.demand.affinity.together.as_str(), offer.class);
            self.ends(zones.nodes_with(value, least(self.demand, offer)).map(|(_, id)| id));
        }
    }
}
