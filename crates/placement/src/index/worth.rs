//! What a node is worth, and what a placement on it costs: the difference.

use tessera_ledger::{CardKind, Span};

use super::card::CardEntry;
use super::class::ClassId;
use super::node::{Host, NodeEntry};
use crate::demand::{Demand, Offer};
use crate::price::Prices;
use crate::price::lanes::{self, LANES, Lanes};

/// Cards of a node that are the same to every request.
#[derive(Clone, Copy, Debug)]
struct Group {
    class: ClassId,
    /// Position of the first of them on the node.
    position: u16,
    /// How many of them are empty; zero when they are partly used.
    empty: u16,
    /// Blocks that one worker could be given, and how many of them are one run.
    offered: u32,
    largest: u32,
    memory: u64,
    slices_left: u32,
    /// The worth of the node without one of these cards; without all of them when they are empty.
    rest: Lanes,
}

/// The worth of a node, and all else that is needed to judge a placement there.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeWorth {
    least: i32,
    host: Option<Host>,
    /// The most blocks that one card offers.
    most: u32,
    groups: Vec<Group>,
}

/// A request that is placed.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    demand: &'a Demand,
    /// The fewest blocks of one card that could do.
    least: u32,
    /// What its part of a host costs.
    host: Lanes,
}

impl<'a> Ask<'a> {
    pub(super) fn new(demand: &'a Demand, prices: &Prices) -> Self {
        let least = demand.offers.iter().map(|offer| offer.need.min(offer.blocks)).min().unwrap_or(u32::MAX);
        Self { demand, least, host: prices.host(demand.host.cpu.0, demand.host.memory.0) }
    }
}

/// How bad a place is; less is better. The processors of hosts are the last resort, then goes what costs least, then what need not be
/// renumbered, then what leaves least of a card.
pub(super) type Badness = u64;

/// No place.
pub(super) const NOWHERE: Badness = Badness::MAX;

/// Where on a node, and how bad that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) badness: Badness,
    /// Position of the card on the node; for requests that take several, of one of them.
    pub(super) card: u16,
}

impl Place {
    const NOWHERE: Self = Self { badness: NOWHERE, card: 0 };
}

/// Costs that are told apart.
const MOST_COST: u64 = (1 << 40) - 1;

/// Remainders of a card that are told apart.
const REMAINDERS: u64 = 1 << 16;

impl NodeWorth {
    /// What a node is worth.
    pub(super) fn of(node: &NodeEntry, prices: &Prices) -> Self {
        let mut worth = node.host.map_or_else(unlimited, |host| prices.host(host.cpu, host.memory));
        let mut groups: Vec<Group> = Vec::with_capacity(node.cards.len());
        for (position, card) in node.cards.iter().enumerate() {
            let group = Group::of(card, position);
            if group.offered == 0 {
                continue;
            }
            match groups.iter_mut().find(|other| other.is_like(&group)) {
                Some(other) => other.empty += group.empty,
                None => groups.push(group),
            }
            if group.empty == 0
                && let Some(part) = prices.card(card.class, group.offered, group.memory)
            {
                lanes::add(&mut worth, part.as_ref());
            }
        }
        for group in groups.iter().filter(|group| group.empty > 0) {
            if let Some(empty) = prices.empty(group.class, group.empty.into()) {
                lanes::add(&mut worth, empty);
            }
        }
        for group in &mut groups {
            group.rest = worth;
            if group.empty > 0 {
                lanes::subtract_some(&mut group.rest, prices.empty(group.class, group.empty.into()));
            } else if let Some(part) = prices.card(group.class, group.offered, group.memory) {
                lanes::subtract(&mut group.rest, part.as_ref());
            }
        }
        let most = groups.iter().map(|group| group.offered).max().unwrap_or(0);
        Self { least: lanes::minimum(&worth), host: node.host, most, groups }
    }

    /// The best place for one virtual card on the node.
    pub(super) fn place(&self, node: &NodeEntry, prices: &Prices, ask: &Ask<'_>) -> Place {
        let mut best = Place::NOWHERE;
        let demand = ask.demand;
        if self.most < ask.least
            || self.host.is_some_and(|left| !left.holds(demand.host))
            || !demand.labels.is_empty() && !node.node.as_ref().is_some_and(|node| demand.accepts(node))
        {
            return best;
        }
        for group in self.groups.iter().filter(|group| group.offered >= ask.least) {
            let Some(offer) = demand.offer_of(group.class).filter(|offer| group.fits(demand, offer)) else { continue };
            let after = group.after(prices, demand, offer, self.host.map(|_| &ask.host));
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
    fn of(card: &CardEntry, position: usize) -> Self {
        Self {
            class: card.class,
            position: u16::try_from(position).unwrap_or(u16::MAX),
            empty: u16::from(card.is_empty()),
            offered: card.offered(),
            largest: card.free.largest(),
            memory: card.memory_free,
            slices_left: card.slices_left(),
            rest: [0; LANES],
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.class == other.class
            && self.offered == other.offered
            && self.largest == other.largest
            && self.memory == other.memory
            && self.slices_left == other.slices_left
            && (self.empty > 0) == (other.empty > 0)
    }

    /// Whether a virtual card fits on one of these cards, or on several that are empty if it may spread.
    fn fits(&self, demand: &Demand, offer: &Offer) -> bool {
        if demand.whole {
            let cards = cards_taken(offer);
            self.empty >= cards && (cards == 1 || demand.span != Span::Card)
        } else {
            self.offered >= offer.need && self.memory >= demand.memory
        }
    }

    /// What the node is worth once a virtual card is there.
    fn after(&self, prices: &Prices, demand: &Demand, offer: &Offer, host: Option<&Lanes>) -> i32 {
        let mut after = self.rest;
        if let Some(host) = host {
            lanes::subtract(&mut after, host);
        }
        let taken = if demand.whole { cards_taken(offer) } else { 1 };
        if self.empty > taken
            && let Some(empty) = prices.empty(self.class, (self.empty - taken).into())
        {
            lanes::add(&mut after, empty);
        }
        if !demand.whole
            && self.offered > offer.need
            && let Some(part) = prices.card(self.class, self.offered - offer.need, self.memory - demand.memory)
        {
            lanes::add(&mut after, part.as_ref());
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
