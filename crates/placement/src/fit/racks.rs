//! Gangs that no single node holds: on few nodes, of one rack if one holds them, and of one class of cards, because a
//! gang waits for its slowest worker. Prices choose the class, how close the nodes are chooses among those of it. Only
//! a bounded number of nodes is looked at; who finds no place here is placed card by card.

use tessera_ledger::{CardId, CardKind, NodeId};

use super::closeness::RACK_KEY;
use super::{Placement, Trial, member, shares_of_one};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::zones::Value;

/// Racks of one class that are tried for the whole gang.
const RACKS_TRIED: usize = 8;

/// Nodes that are looked at beside two for each worker.
const NODES_TRIED: usize = 256;

/// Nodes with their free blocks of a class, those with the most first.
type Nodes = Vec<(u32, NodeId)>;

/// Places a gang on few nodes that are close together, or changes nothing.
pub(super) fn place(index: &mut Index, demand: &Demand) -> Option<Placement> {
    index.settle_zones(RACK_KEY);
    let cheapest = index.cheapest(demand).and_then(|card| index.card(card)).map(|card| card.class);
    let mut offers: Vec<&Offer> = demand.offers.iter().filter(|offer| member::may_hold_one(demand, offer)).collect();
    offers.sort_by_key(|offer| (offer.kind == CardKind::Cpu, Some(offer.class) != cheapest));
    let demands: Vec<Demand> =
        offers.iter().map(|offer| demand.changed(|demand| demand.offers = vec![**offer])).collect();
    let mut looks = 2 * demand.gang as usize + NODES_TRIED;
    for demand in &demands {
        for rack in racks_for_all(index, demand) {
            let nodes = nodes_of(index, demand, &rack, looks);
            if let Some(placement) = fill(index, demand, &[nodes], &mut looks) {
                return Some(placement);
            }
        }
    }
    demands.iter().find_map(|demand| {
        let racks = racks_by_room(index, demand, looks);
        let nodes: Vec<Nodes> = racks.iter().map(|rack| nodes_of(index, demand, rack, looks)).collect();
        fill(index, demand, &nodes, &mut looks)
    })
}

/// The racks that may hold the whole gang, those with the least left afterwards first.
fn racks_for_all(index: &Index, demand: &Demand) -> Vec<Value> {
    let [offer] = &demand.offers[..] else { return Vec::new() };
    let racks = index.zones.of(RACK_KEY, offer.class).with(u64::from(offer.need) * u64::from(demand.gang));
    let asked = demand.labels.get(RACK_KEY);
    let possible = racks.map(|(_, rack)| rack).filter(|rack| match (rack, asked) {
        (None, _) => false,
        (Some(rack), Some(asked)) => **rack == **asked,
        (Some(_), None) => true,
    });
    possible.take(RACKS_TRIED).cloned().collect()
}

/// The racks that may hold some of the gang, those with the most left first; nodes that are in no rack come last.
fn racks_by_room(index: &Index, demand: &Demand, most: usize) -> Vec<Value> {
    let [offer] = &demand.offers[..] else { return Vec::new() };
    let zones = index.zones.of(RACK_KEY, offer.class);
    let racks = zones.with(offer.need.into()).rev().map(|(_, rack)| rack).filter(|rack| rack.is_some());
    racks.take(most).cloned().chain([None]).collect()
}

/// The nodes of a rack with room for one virtual card, those with the most first.
fn nodes_of(index: &Index, demand: &Demand, rack: &Value, most: usize) -> Nodes {
    let [offer] = &demand.offers[..] else { return Vec::new() };
    index.zones.of(RACK_KEY, offer.class).nodes_with(rack, offer.need).take(most).collect()
}

/// Places the gang on the nodes of these racks, one rack after the other, or changes nothing.
fn fill(index: &mut Index, demand: &Demand, racks: &[Nodes], looks: &mut usize) -> Option<Placement> {
    let mut filling = Filling { trial: Trial::on(index), demand, placed: 0 };
    let done = racks.iter().try_for_each(|nodes| filling.rack(nodes.clone(), looks));
    if done.is_some() && filling.placed == demand.gang {
        return Some(filling.trial.placement);
    }
    filling.trial.index.undo_to(filling.trial.mark);
    None
}

/// A gang that is placed node by node.
struct Filling<'a> {
    trial: Trial<'a>,
    demand: &'a Demand,
    /// Virtual cards placed so far.
    placed: u32,
}

impl Filling<'_> {
    /// Places what is left of the gang on nodes of one rack: on the largest first, and on the smallest that may hold
    /// all of the rest.
    fn rack(&mut self, mut nodes: Nodes, looks: &mut usize) -> Option<()> {
        let need = self.demand.offers.first().map_or(0, |offer| offer.need);
        while self.placed < self.demand.gang && !nodes.is_empty() && *looks > 0 {
            *looks -= 1;
            let rest = need.saturating_mul(self.demand.gang - self.placed);
            let enough = nodes.partition_point(|(free, _)| *free >= rest);
            let (_, id) = nodes.remove(enough.saturating_sub(1));
            self.node(id)?;
        }
        Some(())
    }

    /// Places as much as fits on a node.
    fn node(&mut self, id: NodeId) -> Option<()> {
        if !self.trial.index.ledger_node(id).is_some_and(|node| self.demand.accepts(node)) {
            return Some(());
        }
        let mut near: Vec<CardId> = Vec::new();
        while self.placed < self.demand.gang
            && let Some(shares) = shares_of_one(self.trial.index, self.demand, Some(id), &near)
        {
            near.extend(shares.iter().map(|share| share.card));
            near.sort_unstable();
            near.dedup();
            self.trial.take(self.demand, self.placed, &shares)?;
            self.placed += 1;
        }
        Some(())
    }
}
