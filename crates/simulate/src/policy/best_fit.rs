//! Best fit: the node with the least left of processors and cards together.

use super::Policy;
use super::dot_product::{Largest, real};
use super::select::{HIGHEST, Order, whole};
use crate::plain::{Place, PlainCluster, Request};

/// Takes the node with the smallest mean of what would be left of processors and cards, each in parts of the
/// largest node.
#[derive(Debug)]
pub struct BestFit {
    order: Order,
    largest: Option<Largest>,
}

impl BestFit {
    /// A policy whose order of nodes the seed decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { order: Order::new(seed), largest: None }
    }
}

impl Policy for BestFit {
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place> {
        let largest = *self.largest.get_or_insert_with(|| Largest::of(cluster));
        self.order.highest(cluster, request, |node| {
            let cpu = real(node.cpu - request.cpu) / largest.cpu;
            let cards = real(node.free_cards_milli() - request.all_cards_milli()) / largest.cards;
            whole(HIGHEST * (1.0 - f64::midpoint(cpu, cards)))
        })
    }
}
