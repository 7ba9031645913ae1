//! The worth of a node, and the cost of a placement on it, which is the worth that the node loses by it.

use tessera_ledger::{CardKind, Span};

use super::outlines::{Group, Outline};
use crate::demand::{Demand, Offer};
use crate::price::Prices;
use crate::price::lanes::{self, LANES, Lanes};

/// The worth of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Worth {
    least: i32,
    /// For each group of its cards the worth of the node without one of them; without all of them when they are empty.
    rest: Vec<Lanes>,
}

/// A request that is placed.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) demand: &'a Demand,
    /// The fewest blocks of one card that could do.
    least: u32,
    /// Cost of the part of a host that it asks for.
    host: Lanes,
}

impl<'a> Ask<'a> {
    pub(super) fn new(demand: &'a Demand, prices: &Prices) -> Self {
        let least = demand.offers.iter().map(|offer| offer.need.min(offer.blocks)).min().unwrap_or(u32::MAX);
        Self { demand, least, host: prices.host(demand.host) }
    }
}

/// Badness of a place; less is better. The processors of hosts are the last resort, then goes what costs least, then
/// what need not be renumbered, then what leaves least of a card.
pub(super) type Badness = u64;

pub(super) const NOWHERE: Badness = Badness::MAX;

/// A place on a node, and its badness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) badness: Badness,
    /// Position of the card on the node; for requests that take several, of one of them.
    pub(super) card: u16,
}

impl Place {
    pub(super) const NOWHERE: Self = Self { badness: NOWHERE, card: 0 };
}

/// Costs that are told apart.
const MOST_COST: u64 = (1 << 40) - 1;

/// Remainders of a card that are told apart.
const REMAINDERS: u64 = 1 << 16;

impl Worth {
    pub(super) fn of(outline: &Outline, prices: &Prices) -> Self {
        let mut worth = outline.host.map_or_else(unlimited, |host| prices.host(host.left));
        let mut parts = Vec::with_capacity(outline.groups.len());
        for group in &outline.groups {
            let part = group.worth(prices);
            (0..if group.empty { 1 } else { group.count }).for_each(|_| lanes::add(&mut worth, &part));
            parts.push(part);
        }
        for part in &mut parts {
            let mut rest = worth;
            lanes::subtract(&mut rest, part);
            *part = rest;
        }
        Self { least: lanes::minimum(&worth), rest: parts }
    }

    /// The best place for one virtual card on a node that looks so and is worth so much.
    pub(super) fn place(&self, outline: &Outline, prices: &Prices, ask: &Ask<'_>) -> Place {
        let mut best = Place::NOWHERE;
        let demand = ask.demand;
        if outline.host.is_some_and(|host| !demand.host.fits_in(host.left)) {
            return best;
        }
        for (group, rest) in outline.groups.iter().zip(&self.rest).filter(|(group, _)| group.offered >= ask.least) {
            let Some(offer) = demand.offer_of(group.class).filter(|offer| group.fits(demand, offer)) else { continue };
            let after = group.after(rest, prices, demand, offer, outline.host.map(|_| &ask.host));
            let cost = if prices.knows(group.class) { self.least - after } else { 0 };
            let badness = group.badness(offer, u64::try_from(prices.rounded(cost)).unwrap_or(0));
            if badness < best.badness {
                best = Place { badness, card: group.position };
            }
        }
        best
    }
}

impl Group {
    /// The worth of one of these cards, or of all of them when they are empty; zero where no price is known.
    fn worth(&self, prices: &Prices) -> Lanes {
        let worth = if self.empty {
            prices.empty(self.class, self.count.into()).copied()
        } else {
            prices.card(self.class, self.offered, self.memory)
        };
        worth.unwrap_or_default()
    }

    /// Returns whether a virtual card fits on one of these cards; if it takes whole ones and may spread, on several.
    fn fits(&self, demand: &Demand, offer: &Offer) -> bool {
        if demand.whole_cards {
            let cards = cards_taken(offer);
            self.empties() >= cards && (cards == 1 || demand.span != Span::Card)
        } else {
            self.offered >= offer.need && self.memory >= demand.memory
        }
    }

    /// The worth of the node once a virtual card is there.
    fn after(&self, rest: &Lanes, prices: &Prices, demand: &Demand, offer: &Offer, host: Option<&Lanes>) -> i32 {
        let mut after = *rest;
        if let Some(host) = host {
            lanes::subtract(&mut after, host);
        }
        let taken = if demand.whole_cards { cards_taken(offer) } else { 1 };
        if self.empties() > taken
            && let Some(empty) = prices.empty(self.class, (self.count - taken).into())
        {
            lanes::add(&mut after, empty);
        }
        if !demand.whole_cards
            && self.offered > offer.need
            && let Some(part) = prices.card(self.class, self.offered - offer.need, self.memory - demand.memory)
        {
            lanes::add(&mut after, &part);
        }
        lanes::minimum(&after)
    }

    fn badness(&self, offer: &Offer, cost: u64) -> Badness {
        let renumber = u64::from(self.largest < offer.need.min(offer.blocks));
        let left = u64::from(self.offered.saturating_sub(offer.need)) * (REMAINDERS - 1);
        let left = (left / u64::from(offer.blocks.max(1))).min(REMAINDERS - 1);
        let last_resort = u64::from(offer.kind == CardKind::Cpu);
        (last_resort << 62) | (cost.min(MOST_COST) << 18) | (renumber << 17) | left
    }
}

/// A host without limits binds in no lane but the first.
fn unlimited() -> Lanes {
    let mut lanes = [1 << 29; LANES];
    lanes[0] = 0;
    lanes
}

/// Cards that a request for whole cards takes.
fn cards_taken(offer: &Offer) -> u16 {
    u16::try_from(offer.need / offer.blocks.max(1)).unwrap_or(u16::MAX)
}
