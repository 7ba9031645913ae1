//! Preemption for virtual cards that spread: victims are given up in order until the gang fits, and those are spared
//! without whom it still does.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Hunt, Start, Victim, is_useful};
use crate::demand::Demand;
use crate::index::Index;
use crate::victims::{live_slices, live_workers};

/// Most victims that are given up in one trial.
const GIVEN_UP: usize = 16_384;

/// How much trials may cost together, in victims that give back and virtual cards that are placed; and fewest and
/// most trials.
const WORK: usize = 1 << 16;
const TRIALS: (usize, usize) = (32, 512);

/// Gives up victims, cheapest first for what they give back, twice as many each time, until the gang fits; then spares
/// those that are not needed.
pub(super) fn one_after_another(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Start> {
    let order = in_order(index, hunt);
    let mut count = 1;
    loop {
        for given in hunt.sets_of(&order[..count.min(order.len())]) {
            if let Some(found) = hunt.place_without(index, &given) {
                return Some(hunt.spare(index, found));
            }
        }
        if count >= order.len() {
            return None;
        }
        count = count.saturating_mul(2).min(order.len());
    }
}

/// Everybody who may give way and holds something that the job could use.
fn in_order(index: &Index, hunt: &mut Hunt<'_>) -> Vec<Arc<Victim>> {
    let demand = &hunt.job.least;
    let mut order: Vec<Arc<Victim>> = Vec::new();
    for id in hunt.may_give_way() {
        if order.len() >= GIVEN_UP {
            break;
        }
        let victim = hunt.victim(id);
        let useful = |victim: &Arc<Victim>| {
            live_slices(&victim.allocation).any(|slice| is_useful(index, demand, slice.card))
                || holds_of_host(index, demand, victim)
        };
        order.extend(victim.filter(useful));
    }
    order.sort_by_key(|victim| {
        (victim.cost.per_block(victim.blocks), Reverse(victim.allocation.granted_at), victim.job)
    });
    order
}

/// Whether it holds something of a host that the job could use, though its cards may be of no use.
fn holds_of_host(index: &Index, demand: &Demand, victim: &Victim) -> bool {
    !demand.host.is_zero()
        && !victim.host.is_zero()
        && live_workers(&victim.allocation).any(|worker| demand.accepts_at(index, worker.node))
}

impl Hunt<'_> {
    /// Spares the victims without whom the gang still fits, those first who would lose most: many at once where that
    /// does, else each half of them. Of few victims none remains who could be spared.
    pub(super) fn spare(&self, index: &mut Index, found: Start) -> Start {
        let mut order = found.1.clone();
        order.sort_by_key(|victim| (Reverse(victim.cost), victim.allocation.granted_at, victim.job));
        let each = order.len() + self.job.least.gang as usize;
        let mut sparing = Sparing { hunt: self, found, trials: (WORK / each).clamp(TRIALS.0, TRIALS.1) };
        let (dearer, cheaper) = order.split_at(order.len() / 2);
        sparing.spare(index, dearer);
        sparing.spare(index, cheaper);
        sparing.found
    }
}

/// What was found so far, and how often more may be tried.
struct Sparing<'a> {
    hunt: &'a Hunt<'a>,
    found: Start,
    trials: usize,
}

impl Sparing<'_> {
    fn spare(&mut self, index: &mut Index, some: &[Arc<Victim>]) {
        let is_one = |victim: &Arc<Victim>| some.iter().any(|other| other.job == victim.job);
        let fewer: Vec<Arc<Victim>> = self.found.1.iter().filter(|victim| !is_one(victim)).cloned().collect();
        if self.trials == 0 || fewer.len() == self.found.1.len() {
            return;
        }
        if !fewer.is_empty() {
            self.trials -= 1;
            if let Some(found) = self.hunt.place_without(index, &fewer) {
                self.found = found;
                return;
            }
        }
        if some.len() > 1 {
            let (dearer, cheaper) = some.split_at(some.len() / 2);
            self.spare(index, dearer);
            self.spare(index, cheaper);
        }
    }
}
