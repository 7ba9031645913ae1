//! Seats: a gang whose virtual cards may spread, divided over nodes. First come as many virtual cards as each node
//! holds alone, then those over several nodes out of what is left. That depends on what nodes have alone, not on prices
//! or wishes: the same room gives the same seats, be it free now or kept for later. So whether such a gang fits is
//! decided here, and placement only looks for better places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{CardKind, Span};

use super::affinity::{demands_by_region, is_possible};
use super::closeness::RACK_KEY;
use super::share::{Candidate, Share, candidates, divide, largest_below};
use super::spread::{given_nodes, left_on, teams};
use super::{Placement, Short, place_each};
use crate::demand::Demand;
use crate::index::Index;

/// The shares of one virtual card.
pub(crate) type Seat = Vec<Share>;

/// Compute and memory of what may back one virtual card together: of each kind, or of all if kinds may mix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([(u128, u128); CardKind::ALL.len()]);

impl Sums {
    /// Adds up the free compute and memory of cards.
    pub(crate) fn of(demand: &Demand, cards: impl IntoIterator<Item = Candidate>) -> Self {
        let mut sums = Self::default();
        for card in cards {
            let sum = &mut sums.0[if demand.mixed { 0 } else { card.offer.kind as usize }];
            *sum = (sum.0 + u128::from(card.compute()), sum.1 + u128::from(card.memory));
        }
        sums
    }

    pub(crate) fn plus(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, other)| *sum = (sum.0 + other.0, sum.1 + other.1));
    }

    pub(crate) fn minus(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, other)| *sum = (sum.0 - other.0, sum.1 - other.1));
    }

    /// The most virtual cards that these sums can back.
    pub(crate) fn virtual_cards(&self, demand: &Demand) -> u32 {
        let of_kind = |(compute, memory): &(u128, u128)| {
            let by_compute = compute.checked_div(demand.compute.into()).unwrap_or(u128::MAX);
            by_compute.min(memory.checked_div(demand.memory.into()).unwrap_or(u128::MAX))
        };
        let virtual_cards = self.0.iter().map(of_kind).fold(0u128, u128::saturating_add);
        u32::try_from(virtual_cards).unwrap_or(u32::MAX)
    }
}

/// A node, as far as a gang can use it.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its cards that could still give a share.
    pub(crate) cards: Vec<Candidate>,
    /// Number of workers that its host has room for.
    pub(crate) workers: u32,
}

impl Site {
    /// Takes as many seats as the node alone holds, at most `most`.
    pub(crate) fn fill(&mut self, index: &Index, demand: &Demand, most: u32) -> Vec<Seat> {
        let mut seats = Vec::new();
        while seats.len() < most as usize
            && self.workers > 0
            && let Some(seat) = seat_on(index, demand, &self.cards)
        {
            self.take(demand, &seat);
            seats.push(seat);
        }
        seats
    }

    /// Free compute of its cards, in thousandths of a TFLOPS.
    fn compute(&self) -> u64 {
        self.cards.iter().map(Candidate::compute).fold(0, u64::saturating_add)
    }

    /// Takes what a seat has of the node, if it has anything there.
    fn take(&mut self, demand: &Demand, seat: &[Share]) {
        let Some(node) = self.cards.first().map(|card| card.card.node) else { return };
        if seat.iter().all(|share| share.card.node != node) {
            return;
        }
        self.workers -= 1;
        let left = |card: Candidate| match seat.iter().find(|share| share.card == card.card) {
            Some(share) => card.less(share, demand),
            None => Some(card),
        };
        self.cards = std::mem::take(&mut self.cards).into_iter().filter_map(left).collect();
    }
}

/// Divides a gang over nodes; as few of the first ones are read as hold it.
pub(crate) fn divide_gang(
    index: &Index,
    demand: &Demand,
    nodes: impl IntoIterator<Item = Site>,
) -> Result<Vec<Seat>, Short> {
    let mut seats: Vec<Seat> = Vec::new();
    let mut sites: Vec<Site> = Vec::new();
    let missing = |seats: &[Seat]| demand.gang - u32::try_from(seats.len()).unwrap_or(demand.gang);
    for mut site in nodes {
        seats.extend(site.fill(index, demand, missing(&seats)));
        if missing(&seats) == 0 {
            return Ok(seats);
        }
        sites.push(site);
    }
    // In an order that does not depend on who asks.
    sites.sort_by_cached_key(|site| (Reverse(site.compute()), site.cards.first().map(|card| card.card)));
    while demand.span == Span::Pool && missing(&seats) > 0 {
        sites.retain(|site| site.workers > 0 && !site.cards.is_empty());
        let Some(seat) = seat_over(index, demand, &sites) else { break };
        sites.iter_mut().for_each(|site| site.take(demand, &seat));
        seats.push(seat);
    }
    match missing(&seats) {
        0 => Ok(seats),
        missing => Err(Short { missing }),
    }
}

/// A seat over the first nodes that have enough for one together, the last of them as small as will do; of one rack, if
/// one has enough in no more slices.
fn seat_over(index: &Index, demand: &Demand, sites: &[Site]) -> Option<Seat> {
    let anywhere = seat_over_first(index, demand, sites.iter().collect())?;
    let of_seat: BTreeSet<_> = anywhere.iter().map(|share| index.label(share.card.node, RACK_KEY)).collect();
    if of_seat.len() < 2 {
        return Some(anywhere);
    }
    let mut racks: BTreeMap<&str, Vec<&Site>> = BTreeMap::new();
    for site in sites {
        if let Some(rack) = index.label(site.cards[0].card.node, RACK_KEY) {
            racks.entry(rack).or_default().push(site);
        }
    }
    let mut each = racks.into_values().filter_map(|there| seat_over_first(index, demand, there));
    let in_one = each.find(|seat| seat.len() <= anywhere.len());
    Some(in_one.unwrap_or(anywhere))
}

fn seat_over_first(index: &Index, demand: &Demand, mut sites: Vec<&Site>) -> Option<Seat> {
    let (large, missing) = largest_below(sites.iter().map(|site| site.compute()), demand.compute);
    if let Some(last) = sites[large..].iter().rposition(|site| site.compute() >= missing) {
        let site = sites.remove(large + last);
        sites.insert(large, site);
    }
    let (mut left, mut sums) = (Vec::new(), Sums::default());
    sites.into_iter().find_map(|site| {
        left.extend(&site.cards);
        sums.plus(&Sums::of(demand, site.cards.iter().copied()));
        if sums.virtual_cards(demand) > 0 { seat_on(index, demand, &left) } else { None }
    })
}

/// One seat out of what is left: on one card if that is enough, else on several if it may spread.
fn seat_on(index: &Index, demand: &Demand, left: &[Candidate]) -> Option<Seat> {
    let enough = |card: &&Candidate| {
        demand.fits_one_card(&card.offer) && card.free >= card.offer.need && card.memory >= demand.memory
    };
    if let Some(card) = left.iter().filter(enough).min_by_key(|card| (card.offer.kind, card.free, card.card)) {
        return Some(vec![Share { card: card.card, blocks: card.offer.need, memory: demand.memory }]);
    }
    if demand.span == Span::Card {
        return None;
    }
    teams(demand).into_iter().find_map(|team| {
        let of_team = |card: &&Candidate| team.iter().any(|offer| offer.class == card.offer.class);
        divide(index, left.iter().filter(of_team).copied().collect(), demand)
    })
}

/// Places a gang by what is free now alone, or changes nothing.
pub(super) fn place(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    let seats = free_now(index, demand)?;
    take(index, demand, &seats)
}

/// Places a gang so, or changes nothing.
pub(super) fn take(index: &mut Index, demand: &Demand, seats: &[Seat]) -> Result<Placement, Short> {
    place_each(index, demand, |_, virtual_card| seats.get(virtual_card as usize).cloned())
}

/// Divides a gang over what is free now, in the first of its regions that has room.
pub(super) fn free_now(index: &Index, demand: &Demand) -> Result<Vec<Seat>, Short> {
    let mut short = Short { missing: demand.gang };
    for demand in demands_by_region(index, demand) {
        match divide_gang(index, &demand, sites_now(index, &demand)) {
            Ok(seats) => return Ok(seats),
            Err(Short { missing }) => short.missing = short.missing.min(missing),
        }
    }
    Err(short)
}

/// The nodes with something free that a gang could use; where one node must do for a virtual card, those where that may
/// be enough.
fn sites_now<'a>(index: &'a Index, demand: &'a Demand) -> impl Iterator<Item = Site> {
    let given = given_nodes(index, demand);
    let by_room = demand.offers.iter().filter(move |_| given.is_none()).flat_map(move |offer| {
        let least = if demand.span == Span::Pool { 1 } else { offer.need };
        index.classes.get(offer.class).nodes_with(least).rev().map(|(_, id)| id)
    });
    let is_assorted = given.is_none() && demand.span == Span::Node && demand.offers.len() > 1;
    let assorted = index.assorted.iter().copied().filter(move |_| is_assorted);
    let mut seen = BTreeSet::new();
    let ids = given.into_iter().flatten().copied().chain(by_room).chain(assorted);
    ids.filter(move |id| seen.insert(*id)).filter_map(|id| {
        let node = index.node(id)?;
        let (compute, memory) = left_on(node, &demand.offers);
        let enough = compute > 0 && (demand.span == Span::Pool || compute >= demand.compute && memory >= demand.memory);
        (enough && is_possible(index, demand, id, node)).then(|| Site {
            cards: candidates(node, &demand.offers, demand),
            workers: node.host.map_or(u32::MAX, |host| demand.workers_in(host.left)),
        })
    })
}
