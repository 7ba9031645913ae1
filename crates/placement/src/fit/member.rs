//! Gangs that fit on one node stay together on it.

use tessera_ledger::NodeId;

use crate::demand::{Demand, Offer};
use crate::index::Index;

/// How many nodes of a class are looked at; beyond that a gang is placed member by member.
const NODES_TRIED: usize = 32;

/// A node whose cards of one class can hold the whole gang, one virtual card on one card each; the one with the least left
/// afterwards.
pub(crate) fn node_for_all(index: &Index, demand: &Demand) -> Option<NodeId> {
    let offers = demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some());
    offers.filter_map(|offer| node_of_class(index, demand, offer)).min().map(|(_, _, node)| node)
}

fn node_of_class(index: &Index, demand: &Demand, offer: &Offer) -> Option<(bool, u32, NodeId)> {
    let all = offer.need.saturating_mul(demand.gang);
    let nodes = index.classes.get(offer.class).nodes.range((all, NodeId(0))..).take(NODES_TRIED);
    for (free, id) in nodes {
        let node = index.node(*id)?;
        let accepted = node.node.as_ref().is_some_and(|node| demand.accepts(node));
        let rooms = node.cards.iter().filter(|card| card.class == offer.class && (!demand.whole || card.is_empty()));
        let room: u64 = rooms.map(|card| u64::from(card.room_for(offer.need, demand.memory))).sum();
        if accepted && demand.fits_host(node, demand.gang) && room >= u64::from(demand.gang) {
            return Some((offer.kind == tessera_ledger::CardKind::Cpu, free - all, *id));
        }
    }
    None
}
