//! What cards have together, where only sums are compared.

use tessera_ledger::CardKind;

use super::share::Candidate;
use crate::demand::Demand;

/// Compute and memory of what may back one virtual card together: of each kind, or of all if kinds may mix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([(u128, u128); CardKind::ALL.len()]);

impl Sums {
    /// What some cards have.
    pub(crate) fn of<'a>(demand: &Demand, cards: impl IntoIterator<Item = &'a Candidate>) -> Self {
        let mut sums = Self::default();
        sums.add(demand, cards);
        sums
    }

    /// Counts what a card has, if it has anything.
    pub(crate) fn add<'a>(&mut self, demand: &Demand, cards: impl IntoIterator<Item = &'a Candidate>) {
        for card in cards {
            let sum = self.entry(demand, card);
            sum.0 += u128::from(card.offer.compute_of(card.free));
            sum.1 += u128::from(card.memory);
        }
    }

    /// Counts it no more.
    pub(crate) fn less<'a>(&mut self, demand: &Demand, cards: impl IntoIterator<Item = &'a Candidate>) {
        for card in cards {
            let sum = self.entry(demand, card);
            sum.0 -= u128::from(card.offer.compute_of(card.free));
            sum.1 -= u128::from(card.memory);
        }
    }

    /// Counts as much as another sum.
    pub(crate) fn plus(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, other)| *sum = (sum.0 + other.0, sum.1 + other.1));
    }

    /// Counts that no more.
    pub(crate) fn minus(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, other)| *sum = (sum.0 - other.0, sum.1 - other.1));
    }

    fn entry(&mut self, demand: &Demand, card: &Candidate) -> &mut (u128, u128) {
        &mut self.0[if demand.mixed { 0 } else { card.offer.kind as usize }]
    }

    /// How many virtual cards that gives at most.
    pub(crate) fn members(&self, demand: &Demand) -> u32 {
        let of_kind = |(compute, memory): &(u128, u128)| {
            let by_compute = compute.checked_div(demand.compute.into()).unwrap_or(u128::MAX);
            by_compute.min(memory.checked_div(demand.memory.into()).unwrap_or(u128::MAX))
        };
        let members = self.0.iter().map(of_kind).fold(0u128, u128::saturating_add);
        u32::try_from(members).unwrap_or(u32::MAX)
    }
}
