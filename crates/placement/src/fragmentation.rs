//! Fragmentation: how much of what is free the requests that the pool sees could not use.

use tessera_ledger::{Mebibytes, NodeId, State};

use crate::demand::Demand;
use crate::index::outlines::{Group, Outline};
use crate::pool::Pool;

/// Requests that are looked at: so many of those seen most often.
const REQUESTS: usize = 64;

/// Free room, and the part of it that an average request of the observed mix cannot use where it is: room on cards that
/// the request does not take or does not fit, or whose host has too little left for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    pub free_blocks: u64,
    /// Free blocks that the average request cannot use.
    pub unusable_blocks: u64,
    pub free_memory: Mebibytes,
    /// Free memory that the average request cannot use.
    pub unusable_memory: Mebibytes,
}

/// Free room.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    blocks: u64,
    memory: u64,
}

impl Room {
    /// The free room of groups of cards together.
    fn of<'index>(groups: impl Iterator<Item = &'index Group>) -> Self {
        groups.fold(Self::default(), |sum, group| Self {
            blocks: sum.blocks + u64::from(group.count) * u64::from(group.offered),
            memory: sum.memory.saturating_add(group.memory.saturating_mul(group.count.into())),
        })
    }
}

impl Pool {
    /// Computes the part of the free room that the observed mix of requests cannot use (architecture section 7: compute
    /// and memory together).
    pub fn fragmentation(&mut self, state: &State) -> Fragmentation {
        self.mix.compile(&self.index.classes, state.config());
        let mut mix: Vec<(&Demand, u64)> = self.mix.demands().collect();
        mix.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        mix.truncate(REQUESTS);
        self.index.settle_outlines();
        let total: u128 = mix.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let (mut free, mut unusable) = (Room::default(), (0u128, 0u128));
        for look in self.index.outlines.with_room() {
            let left = Room::of(look.outline.groups.iter());
            let nodes = look.nodes.len() as u64;
            free.blocks += left.blocks * nodes;
            free.memory = free.memory.saturating_add(left.memory.saturating_mul(nodes));
            for (demand, weight) in &mix {
                let accepts = |node: &&NodeId| demand.node_labels.is_empty() || demand.accepts_at(&self.index, **node);
                let accepting = look.nodes.iter().filter(accepts).count() as u64;
                let (used, weight) = (usable(&look.outline, demand), u128::from(*weight));
                let unused = |left: u64, used: u64| {
                    (u128::from(left) * u128::from(nodes)).saturating_sub(u128::from(used) * u128::from(accepting))
                        * weight
                };
                unusable.0 += unused(left.blocks, used.blocks);
                unusable.1 += unused(left.memory, used.memory);
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

/// Returns the free room on a node that a request could use: that of the cards it fits on, in each class where these
/// have enough free blocks together; none if the host has too little left.
fn usable(outline: &Outline, demand: &Demand) -> Room {
    if outline.host.is_some_and(|host| !demand.host.fits_in(host.left)) {
        return Room::default();
    }
    let mut sum = Room::default();
    for offer in &demand.offers {
        let fits = |group: &&Group| {
            let (blocks, memory) = (offer.need.min(offer.blocks), demand.memory.min(offer.memory));
            let holds = group.offered >= blocks && group.memory >= memory;
            group.class == offer.class && if demand.whole_cards { group.empty } else { holds }
        };
        let room = Room::of(outline.groups.iter().filter(fits));
        if room.blocks >= u64::from(offer.need) {
            sum.blocks += room.blocks;
            sum.memory = sum.memory.saturating_add(room.memory);
        }
    }
    sum
}
