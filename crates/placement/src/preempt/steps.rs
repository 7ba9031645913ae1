//! Preemption for virtual cards that spread: victims are given up in order until the gang fits.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Found, Hunt, Victim, is_useful};
use crate::demand::Demand;
use crate::index::Index;
use crate::victims::{live_slices, live_workers};

/// Most victims that are given up in one trial.
const GIVEN_UP: usize = 16_384;

/// Gives up victims, cheapest first for what they give back, twice as many each time, until the gang fits; then spares
/// those that are not needed.
pub(super) fn one_after_another(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Found> {
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
    let accepted = |node| index.ledger_node(node).is_some_and(|node| demand.accepts(node));
    !demand.host.is_zero()
        && !victim.host.is_zero()
        && live_workers(&victim.allocation).any(|worker| accepted(worker.node))
}
