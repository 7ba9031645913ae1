//! Preemption for virtual cards that spread: victims are given up in order until the gang fits.

use std::sync::Arc;

use super::{Found, Hunt, Victim, is_useful};
use crate::index::Index;
use crate::victims::live_slices;

/// Most victims that are given up in one trial.
const GIVEN_UP: usize = 16_384;

/// Gives up victims, lowest priority and youngest first, twice as many each time, until the gang fits; then spares those that are
/// not needed.
pub(super) fn one_after_another(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Found> {
    let (demand, all) = (hunt.job.demand, hunt.victims);
    let mut order = all.below(hunt.job.priority);
    let mut given: Vec<Arc<Victim>> = Vec::new();
    let mut step = 1usize;
    loop {
        let before = given.len();
        while given.len() < before + step {
            let Some(id) = order.next() else { break };
            let victim = hunt.victim(id);
            given
                .extend(victim.filter(|victim| {
                    live_slices(&victim.allocation).any(|slice| is_useful(index, demand, slice.card))
                }));
        }
        if given.len() == before {
            return None;
        }
        if let Some(found) = hunt.place_without(index, given.clone()) {
            return Some(hunt.spare(index, found));
        }
        if given.len() >= GIVEN_UP {
            return None;
        }
        step = given.len();
    }
}
