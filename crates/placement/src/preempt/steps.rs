//! Preemption for virtual cards that spread: victims are given up in order until the gang fits, and those are spared
//! without whom it still does.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Found, Hunt, Victim, is_useful};
use crate::demand::Demand;
use crate::index::Index;
use crate::victims::live_slices;

/// Most victims that are given up in one trial.
const GIVEN_UP: usize = 16_384;

/// The cost of all trials together, in victims that give back and virtual cards that are placed; and fewest and most
/// trials.
const WORK: usize = 1 << 16;
const TRIALS: (usize, usize) = (32, 512);

/// Gives up victims, cheapest first for what they give back, twice as many each time, until the gang fits; then spares
/// those that are not needed.
pub(super) fn one_after_another(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Found> {
    let order = in_order(index, hunt);
    let counts = std::iter::successors(Some(1), |count| (*count < order.len()).then_some(count * 2));
    let mut sets = counts.flat_map(|count| hunt.sets_of(&order[..count.min(order.len())]));
    let found = sets.find_map(|given| hunt.place_without(index, &given))?;
    Some(hunt.spare(index, found))
}

/// Everybody who may give way and holds something that the job could use.
fn in_order(index: &Index, hunt: &mut Hunt<'_>) -> Vec<Arc<Victim>> {
    let demand = &hunt.job.least;
    let is_useful = |victim: &Arc<Victim>| {
        live_slices(&victim.allocation).any(|slice| is_useful(index, demand, slice.card))
            || holds_of_host(index, demand, victim)
    };
    let victims = hunt.may_give_way().filter_map(|id| hunt.victim(id));
    let mut order: Vec<Arc<Victim>> = victims.filter(is_useful).take(GIVEN_UP).collect();
    order.sort_by_key(|victim| {
        (victim.cost.per_block(victim.blocks), Reverse(victim.allocation.granted_at), victim.job.id)
    });
    order
}

/// Returns whether a victim holds something of a host that the job could use, though its cards may be of no use.
fn holds_of_host(index: &Index, demand: &Demand, victim: &Victim) -> bool {
    let mut held = victim.allocation.held_of_hosts(&victim.job.spec);
    demand.asks_of_hosts() && held.any(|(node, _)| demand.accepts_at(index, node))
}

impl Hunt<'_> {
    /// Spares the victims without whom the gang still fits, those first who would lose most: many at once where that
    /// does, else each half of them. Of few victims none remains who could be spared.
    pub(super) fn spare(&self, index: &mut Index, mut found: Found) -> Found {
        let mut order = found.1.clone();
        order.sort_by_key(|victim| (Reverse(victim.cost), victim.allocation.granted_at, victim.job.id));
        let mut trials = (WORK / (order.len() + self.job.least.gang as usize)).clamp(TRIALS.0, TRIALS.1);
        // Those who would lose most are at the end.
        let mut open = halves(&order).to_vec();
        while let Some(some) = open.pop().filter(|_| trials > 0) {
            let stays = |victim: &&Arc<Victim>| some.iter().all(|other| other.job.id != victim.job.id);
            let fewer: Vec<Arc<Victim>> = found.1.iter().filter(stays).cloned().collect();
            if fewer.len() == found.1.len() {
                continue;
            }
            trials -= usize::from(!fewer.is_empty());
            match Some(&fewer).filter(|fewer| !fewer.is_empty()).and_then(|fewer| self.place_without(index, fewer)) {
                Some(better) => found = better,
                None if some.len() > 1 => open.extend(halves(some)),
                None => {}
            }
        }
        found
    }
}

/// The second half, and before that the first.
fn halves<T>(all: &[T]) -> [&[T]; 2] {
    let (first, second) = all.split_at(all.len() / 2);
    [second, first]
}
