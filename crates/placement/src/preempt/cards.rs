//! Clearing a card for a virtual card that needs one: which cards could be, and the cheapest way to clear one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::CardId;

use super::trial::given_on;
use super::{Hunt, Victim};
use crate::demand::Demand;
use crate::fewest;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::schedule::Held;
use crate::loss::Cost;
use crate::victims::{live_slices, live_workers};

/// The limit on the clearable cards that are compared, or four for each missing room where that is more. Those with the
/// most room come first; looking at all would cost more than the best of them saves.
pub(super) const COMPARED: usize = 512;

/// The cards that clearing may make room on: those of all who may give way, where they are few, else all that could
/// hold a virtual card, those with the most room first. Where no more than `most` are compared, that is the same; a
/// pool with few victims is not gone through.
pub(super) fn clearable_cards<'a>(
    index: &'a Index,
    hunt: &Hunt<'_>,
    demand: &'a Demand,
    most: usize,
) -> impl Iterator<Item = CardId> + use<'a> {
    let theirs = cards_of_few(index, hunt, most);
    let all = theirs.is_none().then(|| useful_cards(index, demand));
    theirs.into_iter().flatten().chain(all.into_iter().flatten())
}

/// The cards of all who may give way, and where hosts matter all cards of their nodes; `None`: they are more
/// than `most`.
fn cards_of_few(index: &Index, hunt: &Hunt<'_>, most: usize) -> Option<BTreeSet<CardId>> {
    let with_hosts = !hunt.job.least.host.is_zero();
    let mut cards = BTreeSet::new();
    for id in hunt.may_give_way().take(most.saturating_add(1)) {
        let Some(allocation) = hunt.at.state.allocation(id) else { continue };
        match with_hosts {
            true => {
                let nodes = live_workers(allocation).filter_map(|worker| index.node(worker.node));
                cards.extend(nodes.flat_map(|node| &node.cards).map(|card| card.id));
            }
            false => cards.extend(live_slices(allocation).map(|slice| slice.card)),
        }
        if cards.len() > most {
            return None;
        }
    }
    Some(cards)
}

/// The cards that could hold a virtual card, those with the most room first.
fn useful_cards<'a>(index: &'a Index, demand: &'a Demand) -> impl Iterator<Item = CardId> + use<'a> {
    let with_room = demand.on_one_card().flat_map(|offer| index.classes.get(offer.class).cards.iter().rev());
    let with_room = with_room.map(|(.., card)| *card);
    let cards = index.nodes().flat_map(|(_, node)| &node.cards);
    with_room.chain(cards.filter(|card| card.offered() == 0).map(|card| card.id))
}

/// Everybody on a card who may give way, if that could ever be enough for a virtual card.
pub(super) fn victims_on(index: &Index, hunt: &mut Hunt<'_>, card: CardId) -> Option<Vec<Arc<Victim>>> {
    let demand = &hunt.job.least;
    let entry = index.card(card)?;
    let offer = demand.offer_of(entry.class).filter(|offer| demand.fits_one_card(offer))?;
    if !super::is_useful(index, demand, card) || entry.recoverable < offer.need {
        return None;
    }
    Some(entry.holders.iter().filter_map(|(holder, _)| hunt.victim(*holder)).collect())
}

/// Returns the number of virtual cards, each on one card, that fit on a card once the victims `gone` have left.
pub(super) fn room_without<'v>(card: &CardEntry, demand: &Demand, gone: impl Iterator<Item = &'v Arc<Victim>>) -> u32 {
    let Some(offer) = demand.offer_of(card.class) else { return 0 };
    if !card.is_open() || !demand.fits_one_card(offer) {
        return 0;
    }
    let Held { blocks, memory, slices } = given_on(card.id, gone.map(|victim| &*victim.allocation));
    let memory = card.memory_free.saturating_add(memory);
    let free = if slices > 0 { u64::from(card.free.total()).saturating_add(blocks) } else { card.offered().into() };
    if demand.whole_cards && (free < card.blocks.into() || memory < card.memory) {
        return 0;
    }
    let rooms = (free / u64::from(offer.need.max(1))).min(memory.checked_div(demand.memory).unwrap_or(u64::MAX));
    u32::try_from(rooms).unwrap_or(u32::MAX).min(card.slices_left().saturating_add(slices))
}

/// The victims that are enough at the least cost, in an order in which all of them may give way: one alone, the cheap
/// ones, or the cheap ones as far as they leave one that gives more its turn. Nobody among them could be spared.
pub(super) fn cheapest_of(
    hunt: &Hunt<'_>,
    mut candidates: Vec<Arc<Victim>>,
    enough: impl Fn(&[Arc<Victim>]) -> bool,
) -> Option<Vec<Arc<Victim>>> {
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by_key(|victim| (victim.cost, Reverse(victim.allocation.granted_at), victim.job.id));
    let alone = candidates.iter().find(|victim| enough(std::slice::from_ref(victim)));
    let alone = alone.map(|victim| vec![Arc::clone(victim)]);
    let sets = hunt.sets_of(&candidates).into_iter().filter_map(|set| fewest(&set, &enough));
    let cost = |victims: &Vec<Arc<Victim>>| victims.iter().map(|victim| victim.cost).sum::<Cost>();
    alone.into_iter().chain(sets).min_by_key(cost)
}
