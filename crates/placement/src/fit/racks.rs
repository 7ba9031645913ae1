//! Gangs that no single node holds: on few nodes, of one rack if one holds them, and of one class of cards, because a
//! gang waits for its slowest worker. Prices choose the class, how close the nodes are chooses among those of it. Only
//! a bounded number of nodes is looked at; who finds no place here is placed card by card.

use std::collections::VecDeque;

use tessera_ledger::{CardKind, NodeId};

use super::closeness::RACK_KEY;
use super::{Placement, Short, may_hold_one, place_each, shares_of_one};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::zones::Value;

/// Racks of one class that are tried for the whole gang.
const RACKS_TRIED: usize = 8;

/// Nodes that are looked at beside two for each worker.
const NODES_TRIED: usize = 256;

/// Places a gang on few nodes that are close together, or changes nothing.
pub(super) fn place(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    index.settle_zones(RACK_KEY);
    let cheapest = index.cheapest(demand).and_then(|card| index.card(card)).map(|card| card.class);
    let mut offers: Vec<Offer> = demand.offers.iter().filter(|offer| may_hold_one(demand, offer)).copied().collect();
    offers.sort_by_key(|offer| (offer.kind == CardKind::Cpu, Some(offer.class) != cheapest));
    let demands = offers.iter().map(|offer| (*offer, demand.changed(|demand| demand.offers = vec![*offer])));
    let demands: Vec<(Offer, Demand)> = demands.collect();
    let mut looks = 2 * demand.gang as usize + NODES_TRIED;
    let in_one = demands.iter().find_map(|(offer, demand)| {
        let mut racks = racks_for_all(index, demand, offer).into_iter();
        racks.find_map(|rack| fill(index, demand, offer, &[rack], &mut looks).ok())
    });
    let over_several = || {
        demands.iter().find_map(|(offer, demand)| {
            // The racks with the most left first; nodes that are in no rack come last.
            let racks = index.zones.of(RACK_KEY, offer.class).with(offer.need.into()).rev();
            let racks = racks.map(|(_, rack)| rack).filter(|rack| rack.is_some());
            let racks: Vec<Value> = racks.take(looks).cloned().chain([None]).collect();
            fill(index, demand, offer, &racks, &mut looks).ok()
        })
    };
    in_one.or_else(over_several).ok_or(Short { missing: 1 })
}

/// The racks that may hold the whole gang, those with the least left afterwards first.
fn racks_for_all(index: &Index, demand: &Demand, offer: &Offer) -> Vec<Value> {
    let racks = index.zones.of(RACK_KEY, offer.class).with(u64::from(offer.need) * u64::from(demand.gang));
    let asked = demand.node_labels.get(RACK_KEY);
    let is_asked = |rack: &&Value| rack.as_deref().is_some_and(|rack| asked.is_none_or(|asked| rack == asked));
    racks.map(|(_, rack)| rack).filter(is_asked).take(RACKS_TRIED).cloned().collect()
}

/// Places the gang on the nodes of these racks, one rack after the other, or changes nothing. In each it goes to the
/// largest nodes first, and to the smallest that may hold all of the rest; as much as fits on each.
fn fill(
    index: &mut Index,
    demand: &Demand,
    offer: &Offer,
    racks: &[Value],
    looks: &mut usize,
) -> Result<Placement, Short> {
    // Nodes with room for one virtual card, those with the most first.
    let nodes_of = |rack| index.zones.of(RACK_KEY, offer.class).nodes_with(rack, offer.need).take(*looks);
    let mut racks: VecDeque<Vec<(u32, NodeId)>> = racks.iter().map(|rack| nodes_of(rack).collect()).collect();
    let mut node = None;
    place_each(index, demand, |trial, virtual_card| {
        loop {
            if node.is_some()
                && let Some(shares) = shares_of_one(trial, demand, node)
            {
                return Some(shares);
            }
            let nodes = racks.front_mut().filter(|_| *looks > 0)?;
            if nodes.is_empty() {
                racks.pop_front();
                continue;
            }
            *looks -= 1;
            let rest = offer.need.saturating_mul(demand.gang - virtual_card);
            let enough = nodes.partition_point(|(free, _)| *free >= rest);
            let (_, next) = nodes.remove(enough.saturating_sub(1));
            node = Some(next).filter(|next| demand.accepts_at(trial.index, *next));
        }
    })
}
