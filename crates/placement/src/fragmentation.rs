//! Fragmentation: how much of what is free the requests that the pool sees could not use.

use tessera_ledger::{Mebibytes, State};

use crate::demand::Demand;
use crate::index::node::NodeEntry;
use crate::pool::Pool;
use crate::price::stock;

/// What is free, and how much of it an average request of the observed mix cannot use where it is: free room on cards that the request
/// does not take or does not fit, or whose host has too little left for it. In pools of more than a thousand nodes every
/// n-th node is looked at, and the figures are of those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that the average request cannot use.
    pub unusable_blocks: u64,
    /// Free memory.
    pub free_memory: Mebibytes,
    /// Free memory that the average request cannot use.
    pub unusable_memory: Mebibytes,
}

/// What a node has free, and how much of it a request cannot use.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    blocks: u64,
    memory: u64,
}

impl Pool {
    /// How much of what is free the observed mix of requests cannot use (architecture section 7: compute and memory together).
    #[must_use]
    pub fn fragmentation(&self, state: &State) -> Fragmentation {
        let mix = self.mix.demands(&self.index.classes, state.config());
        let total: u128 = mix.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let mut free = Share::default();
        let mut unusable = (0u128, 0u128);
        for (_, node) in stock::sample(&self.index) {
            let left = free_on(node);
            free.blocks += left.blocks;
            free.memory = free.memory.saturating_add(left.memory);
            for (demand, weight) in &mix {
                let used = usable_on(node, demand);
                unusable.0 += u128::from(left.blocks - used.blocks) * u128::from(*weight);
                unusable.1 += u128::from(left.memory.saturating_sub(used.memory)) * u128::from(*weight);
            }
        }
        let mean = |sum: u128| u64::try_from(sum.checked_div(total).unwrap_or(0)).unwrap_or(u64::MAX);
        Fragmentation {
            free_blocks: free.blocks,
            unusable_blocks: mean(unusable.0),
            free_memory: Mebibytes(free.memory),
            unusable_memory: Mebibytes(mean(unusable.1)),
        }
    }
}

fn free_on(node: &NodeEntry) -> Share {
    let usable = node.cards.iter().filter(|card| card.usable);
    usable.fold(Share::default(), |sum, card| Share {
        blocks: sum.blocks + u64::from(card.free.total()),
        memory: sum.memory.saturating_add(card.memory_free),
    })
}

/// What is free on the cards of a node where a request would fit.
fn usable_on(node: &NodeEntry, demand: &Demand) -> Share {
    if !demand.fits_host(node, 1) || !node.node.as_ref().is_some_and(|node| demand.accepts(node)) {
        return Share::default();
    }
    let mut sum = Share::default();
    for offer in &demand.offers {
        let fits = |card: &&crate::index::card::CardEntry| {
            let one = offer.need.min(offer.blocks);
            card.class == offer.class
                && card.usable
                && if demand.whole { card.is_empty() } else { card.room_for(one, demand.memory.min(offer.memory)) > 0 }
        };
        let cards = node.cards.iter().filter(fits);
        let room: u64 = cards.clone().map(|card| u64::from(card.free.total())).sum();
        if room >= u64::from(offer.need) {
            sum.blocks += room;
            sum.memory = cards.fold(sum.memory, |memory, card| memory.saturating_add(card.memory_free));
        }
    }
    sum
}
