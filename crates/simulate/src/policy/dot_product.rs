//! Dot product: the node on which the product of what is free and what is asked for is smallest.

use super::Policy;
use super::select::{HIGHEST, Order, whole};
use crate::plain::{Place, PlainCluster, PlainNode, Request};
use crate::trace::WHOLE_CARD;

/// Takes the node with the smallest product over processors and cards, each in parts of the largest node.
#[derive(Debug)]
pub struct DotProduct {
    order: Order,
    largest: Option<Largest>,
}

/// The capacity of the largest node, for each resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    pub(super) cpu: f64,
    pub(super) cards: f64,
}

impl Largest {
    pub(super) fn of(cluster: &PlainCluster) -> Self {
        let most = |amount: fn(&PlainNode) -> u64| cluster.nodes.iter().map(amount).max().unwrap_or(1).max(1);
        Self {
            cpu: real(most(|node| node.cpu_capacity)),
            cards: real(most(|node| node.cards.len() as u64 * u64::from(WHOLE_CARD))),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "amounts of one node are far below 2^52")]
pub(super) fn real(amount: u64) -> f64 {
    amount as f64
}

impl DotProduct {
    /// A policy whose order of nodes the seed decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { order: Order::new(seed), largest: None }
    }
}

impl Policy for DotProduct {
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place> {
        let largest = *self.largest.get_or_insert_with(|| Largest::of(cluster));
        self.order.highest(cluster, request, |node| {
            let cpu = real(node.cpu) / largest.cpu * real(request.cpu) / largest.cpu;
            let cards = real(node.free_cards_milli()) / largest.cards * real(request.all_cards_milli()) / largest.cards;
            whole(HIGHEST * (1.0 - f64::midpoint(cpu, cards)))
        })
    }
}
