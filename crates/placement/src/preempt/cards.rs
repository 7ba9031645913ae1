//! Clearing cards for virtual cards that each need one: the cheapest cards are found one by one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::CardId;

use super::cost::Cost;
use super::{Found, Hunt, Victim, attempt, is_useful};
use crate::demand::Demand;
use crate::fit;
use crate::index::Index;
use crate::victims::{live_slices, live_workers};

/// So many cards that could be cleared are compared, those with the most room first; four times as many as are needed, if that is
/// more. Looking at all would cost more than the best of them saves.
const COMPARED: usize = 512;

/// A card that could be cleared, and what that costs.
type Clearing = (Cost, CardId, Vec<Arc<Victim>>);

/// Clears as many cards as the gang lacks.
pub(super) fn clear(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Found> {
    let demand = hunt.job.demand;
    let missing = (hunt.job.missing as usize).max(1);
    let mut clearings = compare(index, hunt, COMPARED.max(missing.saturating_mul(4)));
    clearings.sort_by_key(|(cost, card, _)| (*cost, *card));
    if demand.gang == 1 {
        return clearings.into_iter().find_map(|(_, card, victims)| {
            let placement = attempt(index, &victims, |index| fit::place_on(index, demand, card))?;
            Some((placement, victims))
        });
    }
    let cheapest = |hunt: &Hunt<'_>, count| hunt.together(together(&clearings, count));
    let found = hunt.place_without(index, cheapest(hunt, missing));
    let found = found.or_else(|| hunt.place_without(index, cheapest(hunt, missing.saturating_mul(2))))?;
    Some(hunt.spare(index, found))
}

/// The victims of the cheapest clearings, each once, cheapest first.
fn together(clearings: &[Clearing], count: usize) -> Vec<Arc<Victim>> {
    let victims = clearings.iter().take(count).flat_map(|(.., victims)| victims);
    let each_once: BTreeMap<_, _> = victims.map(|victim| ((victim.cost, victim.allocation.id), victim)).collect();
    each_once.into_values().cloned().collect()
}

/// The cards that could be cleared, at most `limit`.
fn compare(index: &Index, hunt: &mut Hunt<'_>, limit: usize) -> Vec<Clearing> {
    let demand = hunt.job.demand;
    let mut clearings = Vec::new();
    for offer in demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some()) {
        for card in index.classes.get(offer.class).largest_first() {
            if clearings.len() >= limit {
                return clearings;
            }
            clearings.extend(clearing_of(index, hunt, card));
        }
    }
    for card in index.nodes().flat_map(|(_, node)| &node.cards).filter(|card| card.offered() == 0) {
        if clearings.len() >= limit {
            return clearings;
        }
        clearings.extend(clearing_of(index, hunt, card.id));
    }
    clearings
}

fn clearing_of(index: &Index, hunt: &mut Hunt<'_>, card: CardId) -> Option<Clearing> {
    let victims = cheapest_on(index, hunt, card)?;
    Some((victims.iter().map(|victim| victim.cost).sum(), card, victims))
}

/// Whether a virtual card fits on a card once these are gone.
fn fits_without(index: &Index, demand: &Demand, card: CardId, victims: &[Arc<Victim>]) -> bool {
    let Some(entry) = index.card(card) else { return false };
    let Some(offer) = demand.offer_of(entry.class) else { return false };
    let (mut blocks, mut memory, mut slices) = (entry.free.total(), entry.memory_free, entry.slices_left());
    let given = victims.iter().flat_map(|victim| live_slices(&victim.allocation));
    for slice in given.filter(|slice| slice.card == card) {
        blocks = blocks.saturating_add(slice.length.0);
        memory = memory.saturating_add(slice.memory.0);
        slices = slices.saturating_add(1);
    }
    let taken_whole = !demand.whole || blocks >= entry.blocks && memory >= entry.memory;
    blocks >= offer.need
        && memory >= demand.memory
        && slices > 0
        && taken_whole
        && host_without(index, demand, card, victims)
}

/// Whether a worker fits on the host of a card once these are gone.
fn host_without(index: &Index, demand: &Demand, card: CardId, victims: &[Arc<Victim>]) -> bool {
    let Some(left) = index.node(card.node).and_then(|node| node.host) else { return true };
    let given_back = victims.iter().fold(left, |left, victim| {
        let there = live_workers(&victim.allocation).filter(|worker| worker.node == card.node).count();
        left.more(victim.host.times(u32::try_from(there).unwrap_or(u32::MAX)))
    });
    given_back.holds(demand.host)
}

/// The victims on a card whose going lets one more virtual card fit there: one alone if that is cheapest, else the cheap ones first,
/// and then without those that turn out not to be needed.
fn cheapest_on(index: &Index, hunt: &mut Hunt<'_>, card: CardId) -> Option<Vec<Arc<Victim>>> {
    let demand = hunt.job.demand;
    let entry = index.card(card)?;
    let offer = demand.offer_of(entry.class)?;
    demand.need_on_one_card(offer)?;
    if !is_useful(index, demand, card) || entry.recoverable < offer.need {
        return None;
    }
    let mut victims: Vec<Arc<Victim>> = entry.holders.iter().filter_map(|(holder, _)| hunt.victim(*holder)).collect();
    victims.sort_by_key(|victim| (victim.cost, Reverse(victim.allocation.granted_at), victim.job));
    let victims = hunt.together(victims);
    // The queue's maximum is counted here for a single virtual card; for a gang once it is together.
    let enough = |victims: &[Arc<Victim>]| {
        fits_without(index, demand, card, victims) && (demand.gang > 1 || hunt.admits(victims))
    };
    if victims.is_empty() || !enough(&victims) {
        return None;
    }
    let alone =
        victims.iter().find(|victim| enough(std::slice::from_ref(victim))).map(|victim| vec![Arc::clone(victim)]);
    let mut chosen: Vec<Arc<Victim>> = Vec::new();
    for victim in &victims {
        if !enough(&chosen) {
            chosen.push(Arc::clone(victim));
        }
    }
    for position in (0..chosen.len()).rev() {
        let mut fewer = chosen.clone();
        fewer.remove(position);
        if enough(&fewer) {
            chosen = fewer;
        }
    }
    let cost = |victims: &Vec<Arc<Victim>>| victims.iter().map(|victim| victim.cost).sum::<Cost>();
    alone.into_iter().chain([chosen]).filter(|victims| !victims.is_empty()).min_by_key(cost)
}
