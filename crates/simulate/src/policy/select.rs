//! The common parts of the policies: the order of nodes that decides between equally good ones, and which cards of a
//! node are taken.
//!
//! Scores are cut to whole numbers from 0 to 100, as schedulers of Kubernetes give them, so that many nodes are equally
//! good. The first of them in a fixed order is taken; the order is drawn once, by a seed, because that of a list may
//! follow something else.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::plain::{Place, PlainCluster, PlainNode, Request};

pub(super) const HIGHEST: f64 = 100.0;

/// A fixed order of nodes.
#[derive(Debug)]
pub(super) struct Order {
    seed: u64,
    nodes: Vec<usize>,
}

impl Order {
    /// An order that the seed decides.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, nodes: Vec::new() }
    }

    /// The nodes of a cluster in this order.
    pub(super) fn of(&mut self, cluster: &PlainCluster) -> &[usize] {
        if self.nodes.len() != cluster.nodes.len() {
            self.nodes = (0..cluster.nodes.len()).collect();
            self.nodes.shuffle(&mut StdRng::seed_from_u64(self.seed));
        }
        &self.nodes
    }

    /// The first of the nodes with the highest score among those with room, with its tightest cards.
    pub(super) fn highest(
        &mut self,
        cluster: &PlainCluster,
        request: &Request,
        score: impl Fn(&PlainNode) -> i64,
    ) -> Option<Place> {
        let mut best: Option<(i64, usize)> = None;
        for number in self.of(cluster) {
            let node = &cluster.nodes[*number];
            if node.fits(request) {
                let score = score(node);
                if best.is_none_or(|(known, _)| score > known) {
                    best = Some((score, *number));
                }
            }
        }
        let (_, node) = best?;
        Some(Place { node, cards: tightest_cards(&cluster.nodes[node], request) })
    }
}

/// Cuts a score to a whole number.
#[allow(clippy::cast_possible_truncation, reason = "scores are small")]
pub(super) fn whole(score: f64) -> i64 {
    score as i64
}

/// The cards of a node that fit most tightly: for a fraction the one with the least left, for whole cards the
/// first ones.
pub(super) fn tightest_cards(node: &PlainNode, request: &Request) -> Vec<usize> {
    if request.cards == 1 {
        let tightest = node.fitting_cards(request).min_by_key(|card| node.cards[*card]);
        return tightest.into_iter().collect();
    }
    node.fitting_cards(request).take(request.cards as usize).collect()
}
