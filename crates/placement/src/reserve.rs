//! Reservations: the first job of a queue that does not fit, once it has waited long enough, keeps those behind it away from the
//! cards that will have room for it soonest. So small jobs fill gaps without starving a big one.
//!
//! The choice depends on the present state alone, not on earlier choices: the cards with the most room already. Nobody behind
//! the holder may use them but jobs that are over by their time limit before the present ones are, so their room only grows,
//! and the choice only changes to cards that have even more.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tessera_ledger::{AllocationPhase, CardId, LogTime, NodeId, Span, State};

use crate::demand::{Demand, Offer};
use crate::fit::affinity::demands_by_region;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;

/// The cards to keep for a gang; `None` when the pool could not hold it even if everything ended.
pub(crate) fn cards_for(index: &Index, demand: &Demand) -> Option<Vec<CardId>> {
    demands_by_region(index, demand).iter().find_map(|demand| cards_in_region(index, demand))
}

/// Whether the pool could hold a gang if everything ended that runs on nodes which take new work; in doubt, that it could.
pub(crate) fn could_hold(index: &Index, demand: &Demand) -> bool {
    let holds = |demand: &Demand| match demand.span {
        Span::Card => single_cards(index, demand).is_some(),
        Span::Node | Span::Pool => cards_of_nodes(index, demand, &demand.offers).is_some(),
    };
    // Nodes that are to be avoided need not be when the jobs there have ended.
    !demand.wishes.avoid().is_empty() || demands_by_region(index, demand).iter().any(holds)
}

fn cards_in_region(index: &Index, demand: &Demand) -> Option<Vec<CardId>> {
    match demand.span {
        Span::Card => single_cards(index, demand),
        Span::Node | Span::Pool => {
            let mut teams: Vec<&[Offer]> = demand.by_kind().collect();
            if demand.mixed {
                teams.insert(0, &demand.offers);
            }
            teams.into_iter().find_map(|team| cards_of_nodes(index, demand, team))
        }
    }
}

/// By when everything that holds blocks of these cards is over, if all of it has a time limit: the holder of the reservation starts no
/// later. `None`: nobody knows.
pub(crate) fn free_by(index: &Index, state: &State, cards: &[CardId], now: LogTime) -> Option<LogTime> {
    let mut latest = now;
    for (holder, _) in cards.iter().filter_map(|id| index.card(*id)).flat_map(|card| card.holders.iter()) {
        let Some(allocation) = state.allocation(*holder) else { continue };
        if allocation.phase == AllocationPhase::Ending {
            continue;
        }
        let limit = state.job(allocation.job)?.spec.time_limit?;
        latest = latest.max(allocation.started_at.unwrap_or(allocation.granted_at).after(limit));
    }
    Some(latest)
}

fn accepted(index: &Index, demand: &Demand, node: NodeId) -> bool {
    let avoid = demand.wishes.avoid();
    index.ledger_node(node).is_some_and(|node| demand.accepts(node) && demand.workers_on(node) > 0)
        && (avoid.is_empty() || !index.surroundings.has(node, avoid))
}

/// How far a card is from having room, in millionths of what is needed; then what it has.
fn distance(card: &CardEntry, offer: &Offer) -> (u64, Reverse<u64>, CardId) {
    let missing = u64::from(offer.need.saturating_sub(card.offered()));
    (missing * 1_000_000 / u64::from(offer.need.max(1)), Reverse(card.memory_free), card.id)
}

/// How many workers hosts have room for beside those that cards were chosen for, if everything on them ended.
#[derive(Default)]
struct HostRooms(BTreeMap<NodeId, u64>);

impl HostRooms {
    /// How many of so many workers a host has room for; they count as placed there.
    fn take(&mut self, index: &Index, demand: &Demand, node: NodeId, workers: u64) -> u64 {
        if demand.host.is_zero() {
            return workers;
        }
        let all = || index.ledger_node(node).map_or(0, |node| demand.workers_on(node));
        let left = self.0.entry(node).or_insert_with(all);
        let taken = workers.min(*left);
        *left -= taken;
        taken
    }
}

/// Cards for virtual cards that each need one.
fn single_cards(index: &Index, demand: &Demand) -> Option<Vec<CardId>> {
    let gang = u64::from(demand.gang);
    let mut ranked: Vec<_> = Vec::new();
    for offer in demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some()) {
        let (mut room, mut hosts) = (0u64, HostRooms::default());
        for id in index.classes.get(offer.class).largest_first() {
            if room >= gang {
                break;
            }
            let Some(card) = index.card(id).filter(|_| accepted(index, demand, id.node)) else { continue };
            let rooms = card.room_when_empty(offer.need, demand.memory);
            if rooms > 0 {
                room += hosts.take(index, demand, id.node, rooms.into());
                ranked.push((distance(card, offer), rooms));
            }
        }
    }
    ranked.sort_unstable_by_key(|(distance, _)| *distance);
    let (mut room, mut hosts) = (0u64, HostRooms::default());
    let mut chosen = Vec::new();
    for ((.., id), rooms) in ranked {
        if room < gang {
            let rooms = hosts.take(index, demand, id.node, rooms.into());
            room += rooms;
            chosen.extend((rooms > 0).then_some(id));
        }
    }
    add_full_cards(index, demand, room, &mut hosts, &mut chosen)
}

/// Adds cards that have no room at all now, in order of block numbers, until the gang would fit.
fn add_full_cards(
    index: &Index,
    demand: &Demand,
    mut room: u64,
    hosts: &mut HostRooms,
    chosen: &mut Vec<CardId>,
) -> Option<Vec<CardId>> {
    for (id, node) in index.nodes() {
        if room >= u64::from(demand.gang) {
            break;
        }
        if node.cards.is_empty() || !accepted(index, demand, id) {
            continue;
        }
        for card in node.cards.iter().filter(|card| card.offered() == 0 && !card.hidden) {
            let Some(offer) = demand.offer_of(card.class) else { continue };
            if demand.need_on_one_card(offer).is_some() && room < u64::from(demand.gang) {
                let rooms = card.room_when_empty(offer.need, demand.memory);
                let rooms = hosts.take(index, demand, id, rooms.into());
                room += rooms;
                chosen.extend((rooms > 0).then_some(card.id));
            }
        }
    }
    (room >= u64::from(demand.gang)).then(|| std::mem::take(chosen))
}

/// Compute and memory of a node: now, and if everything on it ended.
#[derive(Clone, Copy, Debug, Default)]
struct Prospect {
    now: u64,
    compute: u64,
    memory: u64,
}

fn prospect(node: &NodeEntry, team: &[Offer]) -> Prospect {
    let cards = node.cards.iter().filter(|card| card.usable && !card.hidden);
    let offers = cards.filter_map(|card| Some((card, team.iter().find(|offer| offer.class == card.class)?)));
    offers.fold(Prospect::default(), |sum, (card, offer)| Prospect {
        now: sum.now.saturating_add(offer.compute_of(card.offered())),
        compute: sum.compute.saturating_add(offer.compute_of(card.recoverable)),
        memory: sum.memory.saturating_add(card.memory),
    })
}

/// Nodes for virtual cards that spread, all their cards that the job accepts.
fn cards_of_nodes(index: &Index, demand: &Demand, team: &[Offer]) -> Option<Vec<CardId>> {
    let nodes = index.nodes().filter(|(id, node)| !node.cards.is_empty() && accepted(index, demand, *id));
    let mut ranked: Vec<(NodeId, Prospect)> = nodes.map(|(id, node)| (id, prospect(node, team))).collect();
    ranked.retain(|(_, prospect)| prospect.compute > 0);
    if demand.span == Span::Node {
        ranked.retain(|(_, prospect)| prospect.compute >= demand.compute && prospect.memory >= demand.memory);
    }
    let missing = |prospect: &Prospect| demand.compute.saturating_sub(prospect.now);
    ranked.sort_unstable_by_key(|(id, prospect)| (missing(prospect), Reverse(prospect.now), *id));
    let mut chosen = Vec::new();
    let (mut members, mut compute, mut memory) = (0u128, 0u128, 0u128);
    let gang = u128::from(demand.gang);
    let done = |members: u128, compute: u128, memory: u128| match demand.span {
        Span::Pool => compute >= u128::from(demand.compute) * gang && memory >= u128::from(demand.memory) * gang,
        Span::Card | Span::Node => members >= gang,
    };
    for (id, prospect) in ranked {
        if done(members, compute, memory) {
            break;
        }
        let by_memory = prospect.memory.checked_div(demand.memory).unwrap_or(u64::MAX);
        let by_host = index.ledger_node(id).map_or(0, |node| demand.workers_on(node));
        members += u128::from((prospect.compute / demand.compute.max(1)).min(by_memory).min(by_host));
        compute += u128::from(prospect.compute);
        memory += u128::from(prospect.memory);
        let cards = index.node(id).into_iter().flat_map(|node| &node.cards);
        let of_team = cards.filter(|card| !card.hidden && team.iter().any(|offer| offer.class == card.class));
        chosen.extend(of_team.map(|card| card.id));
    }
    done(members, compute, memory).then_some(chosen)
}
