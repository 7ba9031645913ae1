//! The state of the network between machines, as several faults at once make it.
//!
//! Faults on one link add up: the worst one that is in force counts, and the link is whole again when the last
//! one ends.

use std::collections::{BTreeMap, BTreeSet};

use turmoil::Sim;

/// The effect of a fault on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Everything waits and is delivered when the fault ends, as TCP's retransmission makes of a short interruption.
    Hold,
    /// Messages that the first machine of the pair (in the order of their names) sends are lost.
    Forward,
    /// Messages that the second one sends are lost.
    Backward,
    /// Everything is lost; connections over the link stay silent for ever, as when a firewall forgets them.
    Lose,
}

pub type FaultId = u64;

/// All links that are not whole.
#[derive(Default)]
pub struct Links {
    cuts: BTreeMap<(String, String), BTreeMap<FaultId, Cut>>,
}

fn pair(one: &str, other: &str) -> (String, String) {
    if one < other { (one.to_owned(), other.to_owned()) } else { (other.to_owned(), one.to_owned()) }
}

impl Links {
    /// A fault cuts a link.
    pub fn cut(&mut self, sim: &Sim<'_>, fault: FaultId, one: &str, other: &str, cut: Cut) {
        let pair = pair(one, other);
        self.cuts.entry(pair.clone()).or_default().insert(fault, cut);
        self.apply(sim, &pair);
    }

    /// Loses everything that `from` sends to `to`.
    pub fn silence(&mut self, sim: &Sim<'_>, fault: FaultId, from: &str, to: &str) {
        let cut = if from < to { Cut::Forward } else { Cut::Backward };
        self.cut(sim, fault, from, to, cut);
    }

    /// A fault ends.
    pub fn mend(&mut self, sim: &Sim<'_>, fault: FaultId) {
        let touched: BTreeSet<(String, String)> =
            self.cuts.iter().filter(|(_, cuts)| cuts.contains_key(&fault)).map(|(pair, _)| pair.clone()).collect();
        for pair in touched {
            if let Some(cuts) = self.cuts.get_mut(&pair) {
                cuts.remove(&fault);
            }
            self.apply(sim, &pair);
        }
    }

    fn apply(&mut self, sim: &Sim<'_>, pair: &(String, String)) {
        let (one, other) = (pair.0.as_str(), pair.1.as_str());
        let worst = self.cuts.get(pair).and_then(|cuts| cuts.values().max().copied());
        match worst {
            None => {
                self.cuts.remove(pair);
                sim.release(one, other);
            }
            Some(Cut::Hold) => sim.hold(one, other),
            Some(Cut::Forward) => {
                sim.repair_oneway(other, one);
                sim.partition_oneway(one, other);
            }
            Some(Cut::Backward) => {
                sim.repair_oneway(one, other);
                sim.partition_oneway(other, one);
            }
            Some(Cut::Lose) => sim.partition(one, other),
        }
    }
}
