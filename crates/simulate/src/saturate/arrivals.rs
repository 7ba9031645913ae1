//! The order of arrivals, decided by a seed.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::trace::Ask;

/// Every ask of a list once in random order, then drawn from it with replacement, without end.
#[derive(Debug)]
pub struct Arrivals<'a> {
    asks: &'a [Ask],
    order: Vec<usize>,
    next: usize,
    draw: StdRng,
}

impl<'a> Arrivals<'a> {
    /// The arrivals of a list that is not empty.
    #[must_use]
    pub fn new(asks: &'a [Ask], seed: u64) -> Self {
        let mut draw = StdRng::seed_from_u64(seed);
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.shuffle(&mut draw);
        Self { asks, order, next: 0, draw }
    }
}

impl<'a> Iterator for Arrivals<'a> {
    type Item = &'a Ask;

    fn next(&mut self) -> Option<&'a Ask> {
        if self.asks.is_empty() {
            return None;
        }
        let position = match self.order.get(self.next) {
            Some(position) => *position,
            None => self.draw.random_range(0..self.asks.len()),
        };
        self.next += 1;
        self.asks.get(position)
    }
}
