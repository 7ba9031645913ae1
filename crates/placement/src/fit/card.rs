//! The best card for one virtual card.

use tessera_ledger::{CardId, CardKind, NodeId};

use super::Share;
use super::closeness::distance_to_all;
use crate::demand::{Demand, Offer};
use crate::index::Index;

/// How good a card of a given node is; less is better. A processor of the host is the last resort, a card that need not
/// be renumbered goes before one that must be, then the card goes first that has the least left afterwards (the most
/// for a job that is to be spread), then the one that is closest to the gang's others.
type Score = (bool, bool, u64, u32, CardId);

/// The best card for one virtual card: on any node the one where it costs least, on a given node the fullest near cards
/// that the gang has there.
pub(crate) fn best(index: &mut Index, demand: &Demand, node: Option<NodeId>, near: &[CardId]) -> Option<Share> {
    let mut offers = demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some());
    match node {
        Some(node) => {
            let found = offers.filter_map(|offer| Some((best_on_node(index, demand, offer, node, near)?, offer.need)));
            let ((.., card), blocks) = found.min()?;
            Some(Share { card, blocks, memory: demand.memory })
        }
        None => {
            offers.find(|offer| index.classes.get(offer.class).most_offered() >= offer.need)?;
            let card = index.cheapest(demand)?;
            let offer = demand.offer_of(index.card(card)?.class)?;
            demand.need_on_one_card(offer)?;
            Some(Share { card, blocks: offer.need, memory: demand.memory })
        }
    }
}

fn best_on_node(index: &Index, demand: &Demand, offer: &Offer, node: NodeId, near: &[CardId]) -> Option<Score> {
    let node = index.node(node).filter(|node| demand.fits_host(node, 1))?;
    let spread = demand.spreads(index);
    let cards = node.cards.iter().filter(|card| card.class == offer.class && (!demand.whole || card.is_empty()));
    cards
        .filter(|card| card.room_for(offer.need, demand.memory) > 0)
        .map(|card| {
            let free = card.offered();
            let left = u64::from(free - offer.need) * 1_000_000 / u64::from(offer.blocks.max(1));
            let left = if spread { u64::MAX - left } else { left };
            let renumber = card.free.largest() < offer.need;
            (offer.kind == CardKind::Cpu, renumber, left, distance_to_all(index, card.id, near), card.id)
        })
        .min()
}
