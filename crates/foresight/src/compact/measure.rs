//! The fragmentation of the pool, in numbers that an operator understands: the largest request that fits, the scattered
//! part of the free room, and the number of slices between which cards switch.

use std::collections::BTreeMap;

use tessera_ledger::{CardHealth, CardKind, Mebibytes, MilliTflops, State};

use tessera_placement::Limits;
use tessera_placement::Pool;

/// Free compute and memory: of one card, of the cards of a node, or of all cards of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    /// Compute at the pool's reference precision.
    pub compute: MilliTflops,
    pub memory: Mebibytes,
}

/// The cards of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindMeasure {
    /// The largest virtual card that fits on one card: the most compute, and the most memory, of any.
    pub largest_on_card: Room,
    /// The largest that fits over the cards of one node.
    pub largest_on_node: Room,
    /// All that is free: the largest over nodes.
    pub free: Room,
    /// Cards that nobody uses.
    pub empty_cards: u32,
    /// The distance of the free room from lying together as much as it could, in thousandths: 0 when no move could
    /// improve it.
    pub fragmentation: u32,
    /// Slices in force: between so many the cards switch in a round (P7).
    pub slices: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// By kind of card, kinds that the pool has.
    pub kinds: BTreeMap<CardKind, KindMeasure>,
    /// Waiting jobs that would start now without preempting anybody.
    pub startable: u32,
}

impl Measure {
    #[must_use]
    pub fn of(state: &State) -> Self {
        Self { kinds: kinds(state), startable: startable(state) }
    }

    /// The largest fragmentation of any kind, in thousandths.
    #[must_use]
    pub fn fragmentation(&self) -> u32 {
        self.kinds.values().map(|kind| kind.fragmentation).max().unwrap_or(0)
    }
}

/// The free room of one card, if blocks of it may be granted.
pub(super) fn free_on(state: &State, id: tessera_ledger::CardId) -> Option<Free> {
    let card = state.card(id)?;
    let usable = card.description.health == CardHealth::Healthy && state.node(id.node)?.grantable();
    let counts = card.extents.counts();
    usable.then(|| Free {
        blocks: u32::try_from(counts.free).unwrap_or(u32::MAX),
        of: card.blocks.0,
        memory: card.memory_free().0,
        of_memory: card.description.memory.0,
    })
}

/// The free room of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) blocks: u32,
    pub(super) of: u32,
    pub(super) memory: u64,
    pub(super) of_memory: u64,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    measure: KindMeasure,
    /// Free and all blocks of each card.
    cards: Vec<(u64, u64)>,
}

fn kinds(state: &State) -> BTreeMap<CardKind, KindMeasure> {
    let block = state.config().block_size;
    let mut sums: BTreeMap<CardKind, Sums> = BTreeMap::new();
    let mut by_node: BTreeMap<(tessera_ledger::NodeId, CardKind), Room> = BTreeMap::new();
    for (id, card) in state.cards() {
        let sum = sums.entry(card.description.kind).or_default();
        sum.measure.slices += u64::from(card.slices);
        let Some(free) = free_on(state, id) else { continue };
        sum.cards.push((u64::from(free.blocks), u64::from(free.of)));
        if free.blocks == 0 {
            continue;
        }
        let room = Room { compute: block.saturating_mul(free.blocks), memory: Mebibytes(free.memory) };
        let measure = &mut sum.measure;
        measure.largest_on_card = largest(measure.largest_on_card, room);
        measure.free = plus(measure.free, room);
        measure.empty_cards += u32::from(free.blocks == free.of && card.slices == 0);
        let on_node = by_node.entry((id.node, card.description.kind)).or_default();
        *on_node = plus(*on_node, room);
    }
    for ((_, kind), room) in by_node {
        if let Some(sum) = sums.get_mut(&kind) {
            sum.measure.largest_on_node = largest(sum.measure.largest_on_node, room);
        }
    }
    let finish = |sum: Sums| KindMeasure { fragmentation: fragmentation(sum.cards), ..sum.measure };
    sums.into_iter().map(|(kind, sum)| (kind, finish(sum))).collect()
}

fn largest(one: Room, other: Room) -> Room {
    Room { compute: one.compute.max(other.compute), memory: one.memory.max(other.memory) }
}

fn plus(one: Room, other: Room) -> Room {
    Room { compute: one.compute.saturating_add(other.compute), memory: one.memory.saturating_add(other.memory) }
}

/// One minus the sum of squares of what cards have free, over the largest that the same blocks could give: all of them
/// on as few cards as possible. In thousandths.
fn fragmentation(mut cards: Vec<(u64, u64)>) -> u32 {
    let square = |blocks: u64| u128::from(blocks) * u128::from(blocks);
    let actual: u128 = cards.iter().map(|(free, _)| square(*free)).sum();
    let mut left: u64 = cards.iter().map(|(free, _)| free).sum();
    cards.sort_unstable_by_key(|(_, blocks)| std::cmp::Reverse(*blocks));
    let mut ideal = 0u128;
    for (_, blocks) in cards {
        let taken = blocks.min(left);
        ideal += square(taken);
        left -= taken;
    }
    let share = actual.saturating_mul(1000).checked_div(ideal).unwrap_or(1000);
    1000 - u32::try_from(share.min(1000)).unwrap_or(1000)
}

/// Waiting jobs that one decision would start without preempting anybody.
fn startable(state: &State) -> u32 {
    let limits = Limits { preemption_searches: 0, ..Limits::default() };
    let plan = Pool::new(state).decide(state, state.time(), &limits).plan;
    let grants = plan.parts.iter().filter(|part| matches!(part, tessera_ledger::PlanPart::Grant { .. }));
    u32::try_from(grants.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_together_is_not_fragmented() {
        assert_eq!(fragmentation(vec![(10, 10), (0, 10)]), 0);
        assert_eq!(fragmentation(vec![]), 0);
        assert_eq!(fragmentation(vec![(0, 10)]), 0, "nothing is free, nothing lies scattered");
        assert_eq!(fragmentation(vec![(5, 10), (5, 10)]), 500);
        assert_eq!(fragmentation(vec![(4, 8), (4, 8), (4, 8), (4, 8)]), 500, "two cards could be empty");
        assert_eq!(fragmentation(vec![(3, 10)]), 0);
    }
}
