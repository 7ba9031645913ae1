//! Packing: a card in use before an idle card, an idle card of a node in use before an idle node.

use super::Policy;
use super::select::Order;
use crate::plain::{Place, PlainCluster, PlainNode, Request};
use crate::trace::WHOLE_CARD;

/// Keeps cards and nodes idle as long as possible.
#[derive(Debug)]
pub struct Packing {
    order: Order,
}

impl Packing {
    /// A policy whose order of nodes the seed decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { order: Order::new(seed) }
    }
}

/// Scores in three bands: cards in use (in steps of a tenth of a card), idle cards of nodes in use (fewer first), idle
/// nodes (with fewer cards first). Work on hosts alone has no preference.
fn score(node: &PlainNode, request: &Request) -> i64 {
    if request.cards == 0 {
        return 0;
    }
    let idle = node.cards.iter().filter(|free| **free == WHOLE_CARD).count();
    if idle == node.cards.len() {
        return 33 - small(idle);
    }
    let mut free: Vec<u32> = node.fitting_cards(request).map(|card| node.cards[card]).collect();
    free.sort_unstable();
    free.truncate(request.cards as usize);
    match free.iter().filter(|free| **free == WHOLE_CARD).count() {
        0 => 100 - free.iter().map(|free| i64::from(free / 100)).sum::<i64>(),
        idle => (50 - small(idle)).max(33),
    }
}

fn small(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Policy for Packing {
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place> {
        self.order.highest(cluster, request, |node| score(node, request))
    }
}
