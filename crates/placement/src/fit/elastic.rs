//! Gangs that may start with fewer virtual cards than they would like: as many as fit now and the queue takes, all or
//! nothing at the least number.

use super::{Placement, Short};
use crate::demand::Demand;
use crate::index::Index;

/// Places as many virtual cards as fit and `admits` takes, at least the least number. `Ok(None)`: even the least number
/// fits, and is not admitted. What it took is in the index's journal.
pub(crate) fn place(
    index: &mut Index,
    demand: &Demand,
    admits: impl Fn(&Placement) -> bool,
) -> Result<Option<Placement>, Short> {
    let (least, most) = (demand.gang_min, demand.gang);
    let mark = index.mark();
    let all = super::place(index, demand);
    if let Ok(placement) = &all
        && admits(placement)
    {
        return all.map(Some);
    }
    index.undo_to(mark);
    if least >= most {
        return all.map(|_| None);
    }
    let try_with = |index: &mut Index, gang: u32| {
        let placed = super::place(index, &demand.of_gang(gang));
        let taken = placed.map(|placement| Some(placement).filter(&admits));
        if !matches!(taken, Ok(Some(_))) {
            index.undo_to(mark);
        }
        taken
    };
    if try_with(index, least)?.is_none() {
        return Ok(None);
    }
    let (mut fitting, mut failing) = (least, most);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        index.undo_to(mark);
        match try_with(index, middle) {
            Ok(Some(_)) => fitting = middle,
            Ok(None) | Err(_) => failing = middle,
        }
    }
    index.undo_to(mark);
    try_with(index, fitting)
}
