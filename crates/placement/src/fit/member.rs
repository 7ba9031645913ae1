//! Gangs that fit on one node stay together on it.

use tessera_ledger::{CardKind, NodeId};

use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::card::CardEntry;

/// How many nodes of a class with blocks enough are looked at; beyond that a gang goes to several nodes.
const NODES_TRIED: usize = 512;

/// A node whose cards of one class can hold the whole gang; the one with the least left afterwards. Where virtual cards
/// take several cards each, it may turn out that they cannot be divided so.
pub(crate) fn node_for_all(index: &Index, demand: &Demand) -> Option<NodeId> {
    let offers = demand.offers.iter().filter(|offer| may_hold_one(demand, offer));
    offers.filter_map(|offer| node_of_class(index, demand, offer)).min().map(|(_, _, node)| node)
}

/// Whether cards of a class on one node may hold one virtual card.
pub(super) fn may_hold_one(demand: &Demand, offer: &Offer) -> bool {
    demand.span != tessera_ledger::Span::Card || demand.need_on_one_card(offer).is_some()
}

fn node_of_class(index: &Index, demand: &Demand, offer: &Offer) -> Option<(bool, u32, NodeId)> {
    let all = offer.need.saturating_mul(demand.gang);
    let fits = |(_, id): &(u32, NodeId)| holds_all(index, demand, offer, *id);
    let found = match carriers_by_room(index, demand, offer, all) {
        Some(nodes) => nodes.into_iter().find(fits),
        None => {
            let nodes = index.classes.get(offer.class).nodes.range((all, NodeId(0))..).take(NODES_TRIED);
            nodes.copied().find(fits)
        }
    };
    found.map(|(free, id)| (offer.kind == CardKind::Cpu, free - all, id))
}

/// The nodes that may carry the labels asked for and have so many free blocks of a class at least, those with the least
/// first: where few carry the rarest label, so that the many that do not need not be looked at. `None`: no label is
/// asked for, or all are common.
pub(super) fn carriers_by_room(
    index: &Index,
    demand: &Demand,
    offer: &Offer,
    least: u32,
) -> Option<Vec<(u32, NodeId)>> {
    let carriers = index.carriers.of_rarest(&demand.labels).filter(|nodes| nodes.len() <= NODES_TRIED)?;
    let free = |id: &NodeId| Some((index.node(*id)?.total(offer.class)?.free, *id));
    let mut nodes: Vec<(u32, NodeId)> = carriers.iter().filter_map(free).filter(|(free, _)| *free >= least).collect();
    nodes.sort_unstable();
    Some(nodes)
}

/// Whether the cards of a class on a node have room for the whole gang, and its host too.
fn holds_all(index: &Index, demand: &Demand, offer: &Offer, id: NodeId) -> bool {
    let Some(node) = index.node(id) else { return false };
    if !demand.fits_node(node, demand.gang) {
        return false;
    }
    let gang = u64::from(demand.gang);
    let cards = node.cards.iter().filter(|card| card.class == offer.class && (!demand.whole || card.is_empty()));
    if demand.need_on_one_card(offer).is_some() {
        return cards.map(|card| u64::from(card.room_for(offer.need, demand.memory))).sum::<u64>() >= gang;
    }
    let room = |(blocks, memory): (u64, u64), card: &CardEntry| {
        (blocks + u64::from(card.offered()), memory + card.memory_free)
    };
    let (blocks, memory) = cards.fold((0, 0), room);
    blocks >= u64::from(offer.need) * gang && memory >= demand.memory.saturating_mul(gang)
}
