//! Any node with room, any card with room.

use rand::rngs::StdRng;
use rand::seq::{IteratorRandom as _, index};
use rand::{Rng as _, SeedableRng as _};

use super::Policy;
use crate::plain::{Place, PlainCluster, Request};

/// Draws among the nodes with room, then among their cards.
#[derive(Debug)]
pub struct Random {
    draw: StdRng,
}

impl Random {
    /// A policy whose draws the seed decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { draw: StdRng::seed_from_u64(seed) }
    }
}

impl Policy for Random {
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place> {
        let fitting = cluster.nodes.iter().enumerate().filter(|(_, node)| node.fits(request));
        let (number, node) = fitting.choose(&mut self.draw)?;
        let cards: Vec<usize> = node.fitting_cards(request).collect();
        let chosen = match request.cards {
            1 => vec![cards[self.draw.random_range(0..cards.len())]],
            count => {
                let drawn = index::sample(&mut self.draw, cards.len(), count as usize);
                drawn.into_iter().map(|place| cards[place]).collect()
            }
        };
        Some(Place { node: number, cards: chosen })
    }
}
