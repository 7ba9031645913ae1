//! Best fit on one card.

use tessera_ledger::{CardId, CardKind, NodeId};

use super::Share;
use super::closeness::distance_to_all;
use crate::demand::{Demand, Offer};
use crate::index::Index;

/// How good a card is; less is better. A card that need not be renumbered goes before one that must be, a processor of the host is
/// the last resort, then the card goes first that has the least left afterwards, then the one that is closest to the gang's others.
type Score = (bool, bool, u64, u32, CardId);

/// The best card for one virtual card: on any node, or on a given one near cards that the gang has there.
pub(crate) fn best(index: &Index, demand: &Demand, node: Option<NodeId>, near: &[CardId]) -> Option<Share> {
    let offers = demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some());
    let found = offers.filter_map(|offer| {
        let score = match node {
            Some(node) => best_on_node(index, demand, offer, node, near),
            None => best_of_class(index, demand, offer),
        };
        score.map(|score| (score, offer.need))
    });
    let ((.., card), blocks) = found.min()?;
    Some(Share { card, blocks, memory: demand.memory })
}

fn score(offer: &Offer, free: u32, renumber: bool, card: CardId) -> Score {
    let left = u64::from(free - offer.need) * 1_000_000 / u64::from(offer.blocks.max(1));
    (offer.kind == CardKind::Cpu, renumber, left, 0, card)
}

fn best_of_class(index: &Index, demand: &Demand, offer: &Offer) -> Option<Score> {
    let class = index.classes.get(offer.class);
    if class.most_offered() < offer.need {
        return None;
    }
    let accepted =
        |id: &CardId| demand.labels.is_empty() || index.ledger_node(id.node).is_some_and(|node| demand.accepts(node));
    let whole = class.whole.fitting(offer.need, demand.memory).find(|(_, id)| accepted(id));
    let whole = whole.map(|(free, id)| score(offer, free, false, id));
    let mut scattered = class.scattered.fitting(offer.need, demand.memory).filter(|(_, id)| accepted(id));
    let mut to_renumber = None;
    let in_one_run = scattered.find(|(free, id)| {
        let fits = index.card(*id).is_some_and(|card| card.free.largest() >= offer.need);
        if !fits && to_renumber.is_none() {
            to_renumber = Some((*free, *id));
        }
        fits
    });
    let in_one_run = in_one_run.map(|(free, id)| score(offer, free, false, id));
    let without = whole.into_iter().chain(in_one_run).min();
    without.or_else(|| to_renumber.map(|(free, id)| score(offer, free, true, id)))
}

fn best_on_node(index: &Index, demand: &Demand, offer: &Offer, node: NodeId, near: &[CardId]) -> Option<Score> {
    let cards = index.node(node)?.cards.iter().filter(|card| card.class == offer.class);
    cards
        .filter(|card| card.room_for(offer.need, demand.memory) > 0)
        .map(|card| {
            let (last_resort, renumber, left, _, id) =
                score(offer, card.offered(), card.free.largest() < offer.need, card.id);
            (last_resort, renumber, left, distance_to_all(index, id, near), id)
        })
        .min()
}
