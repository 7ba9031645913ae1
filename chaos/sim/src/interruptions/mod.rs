//! Interruptions on purpose: whoever has a part in what is done to running work is hit at each of its steps.
//!
//! A [`Moment`] is a step as the ledger commits it: a move reserves its target, a gang has saved by half, a job is
//! preempted. A [`Victim`] is who is hit then. Of every [`Pair`] that can be, a [`Director`] makes a scene. It submits
//! a job, has done to it what leads to the moment, hits the victim in the very step in which the entry is applied
//! first, and follows the job to its end. What must hold meanwhile the oracles say; that the moment came, and that the
//! job comes to a good end, the director itself.

mod deed;
mod director;
mod moment;
mod scene;
mod victim;

pub use deed::{CARD, Deed, NODES};
pub use director::{Director, Hit};
pub use moment::Moment;
pub use victim::Victim;

/// Runs over which all pairs are spread: each seed has the share of its remainder.
pub const SHARES: u64 = 4;

/// A moment, and the victim that is hit then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub moment: Moment,
    pub victim: Victim,
}

impl Pair {
    /// Every one that can be.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |moment: Moment| moment.victims().iter().map(move |victim| Self { moment, victim: *victim });
        Moment::ALL.into_iter().flat_map(of)
    }

    /// The pairs that a seed makes.
    pub fn shared_out(seed: u64) -> impl Iterator<Item = Self> {
        (0..).zip(Self::all()).filter(move |(place, _)| place % SHARES == seed % SHARES).map(|(_, pair)| pair)
    }

    /// Its name in a report.
    pub fn name(self) -> String {
        format!("on purpose: {}: {}", self.moment.name(), self.victim.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn some_seed_makes_each_pair_and_every_victim_is_in_one() {
        let shared: BTreeSet<Pair> = (0..SHARES).flat_map(Pair::shared_out).collect();
        assert_eq!(shared, Pair::all().collect());
        let victims: BTreeSet<Victim> = Pair::all().map(|pair| pair.victim).collect();
        assert_eq!(victims.len(), Victim::ALL.len());
    }
}
