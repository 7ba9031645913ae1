//! What a node is worth, and what a placement on it costs: the difference.

use super::card::CardEntry;
use super::node::NodeEntry;
use crate::demand::{Demand, Offer};
use crate::price::Prices;
use crate::price::lanes::{self, LANES, Lanes};
use tessera_ledger::CardKind;

/// The worth of a node in every lane, and what binds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeWorth {
    lanes: Lanes,
    least: i32,
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
    /// Position of the card on the node; zero for requests that take several.
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
        let mut worth = match node.host {
            Some(host) => prices.host(host.cpu, host.memory),
            None => unlimited(),
        };
        for (position, card) in node.cards.iter().enumerate() {
            if !card.is_empty() {
                if card.offered() > 0
                    && let Some(part) = prices.card(card.class, card.offered(), card.memory_free)
                {
                    lanes::add(&mut worth, part.as_ref());
                }
            } else if !node.cards[..position].iter().any(|other| other.class == card.class && other.is_empty())
                && let Some(empty) = prices.empty(card.class, empty_cards(node, card))
            {
                lanes::add(&mut worth, empty);
            }
        }
        Self { lanes: worth, least: lanes::minimum(&worth) }
    }

    /// The best place for one virtual card on the node.
    pub(super) fn place(&self, node: &NodeEntry, prices: &Prices, demand: &Demand, host: &Lanes) -> Place {
        if !demand.fits_host(node, 1) || !node.node.as_ref().is_some_and(|node| demand.accepts(node)) {
            return Place::NOWHERE;
        }
        let mut best = Place::NOWHERE;
        for (position, card) in node.cards.iter().enumerate() {
            let Some(offer) = demand.offer_of(card.class) else { continue };
            if !fits(node, card, demand, offer) || node.cards[..position].iter().any(|other| alike(other, card)) {
                continue;
            }
            let cost = self.cost(node, card, prices, demand, offer, host);
            let badness = badness(card, offer, u64::try_from(prices.rounded(cost)).unwrap_or(0));
            if badness < best.badness {
                best = Place { badness, card: u16::try_from(position).unwrap_or(u16::MAX) };
            }
        }
        best
    }

    /// What the node is worth less once a virtual card is on this card, or on it and others that are empty like it.
    fn cost(
        &self,
        node: &NodeEntry,
        card: &CardEntry,
        prices: &Prices,
        demand: &Demand,
        offer: &Offer,
        host: &Lanes,
    ) -> i32 {
        let mut after = self.lanes;
        if node.host.is_some() {
            lanes::subtract(&mut after, host);
        }
        let (class, left) = (card.class, card.memory_free.saturating_sub(demand.memory));
        if !prices.knows(class) {
            return 0;
        }
        if card.is_empty() {
            let (empty, taken) = (empty_cards(node, card), cards_taken(demand, offer));
            change(&mut after, prices.empty(class, empty), prices.empty(class, empty - taken));
        } else if let Some(before) = prices.card(class, card.offered(), card.memory_free) {
            lanes::subtract(&mut after, before.as_ref());
        }
        if !demand.whole
            && let Some(rest) = prices.card(class, card.offered() - offer.need, left)
        {
            lanes::add(&mut after, rest.as_ref());
        }
        self.least - lanes::minimum(&after)
    }
}

fn change(lanes: &mut Lanes, before: Option<&Lanes>, after: Option<&Lanes>) {
    if let (Some(before), Some(after)) = (before, after) {
        lanes::subtract(lanes, before);
        lanes::add(lanes, after);
    }
}

/// A host without limits binds in no lane but the first.
fn unlimited() -> Lanes {
    let mut lanes = [1 << 29; LANES];
    lanes[0] = 0;
    lanes
}

/// Empty cards of the class of `card` on a node.
fn empty_cards(node: &NodeEntry, card: &CardEntry) -> usize {
    node.cards.iter().filter(|other| other.class == card.class && other.is_empty()).count()
}

fn cards_taken(demand: &Demand, offer: &Offer) -> usize {
    if demand.whole { (offer.need / offer.blocks.max(1)) as usize } else { 1 }
}

/// Whether a virtual card fits on a card, or on it and others that are empty like it.
fn fits(node: &NodeEntry, card: &CardEntry, demand: &Demand, offer: &Offer) -> bool {
    if demand.whole {
        card.is_empty() && empty_cards(node, card) >= cards_taken(demand, offer)
    } else {
        card.room_for(offer.need, demand.memory) > 0
    }
}

/// Whether two cards of a node are the same to every request.
fn alike(left: &CardEntry, right: &CardEntry) -> bool {
    left.class == right.class
        && left.memory_free == right.memory_free
        && left.slices == right.slices
        && left.pinned == right.pinned
        && left.hidden == right.hidden
        && left.usable == right.usable
        && left.free.total() == right.free.total()
        && left.free.largest() == right.free.largest()
}

fn badness(card: &CardEntry, offer: &Offer, cost: u64) -> Badness {
    let renumber = u64::from(card.free.largest() < offer.need.min(offer.blocks));
    let left = u64::from(card.offered().saturating_sub(offer.need)) * (REMAINDERS - 1) / u64::from(offer.blocks.max(1));
    let last_resort = u64::from(offer.kind == CardKind::Cpu);
    (last_resort << 62) | (cost.min(MOST_COST) << 18) | (renumber << 17) | left.min(REMAINDERS - 1)
}
