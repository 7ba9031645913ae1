//! Placement: where jobs go, who is preempted for whom, and what is kept free.
//!
//! Everything here is pure: a view of the ledger in, a [`Plan`](tessera_ledger::Plan) and reasons out. No clock is
//! read, nothing is drawn at random, nothing is iterated in the order of a hash: equal states give equal plans.
//!
//! * [`Pool`] is an index of the ledger's state, kept current by what each applied entry touched ([`Pool::refresh`]).
//!   Decisions look at what changed; none looks at the whole pool, except the first of its kind after prices were
//!   made anew.
//! * [`Pool::decide`] goes through the lines of waiting jobs once, whoever's turn it is, and grants what fits, where it
//!   costs least of what the room could have been used for (`price`; docs/decisions/0007-placement-score.md): on one
//!   card, over the cards of a node or over nodes (P1, P9), gangs whole and close together
//!   (docs/decisions/0011-racks.md), within the maxima of queues and what hosts have left, with renumbering where it
//!   makes room (P7, P10). Turns follow from guarantees and fair share, lower priorities of the same queue give way,
//!   loans are recalled (P5d, law L4), and cards are kept free for first jobs of queues that wait too long.
//! * [`Pool::inquire`] answers questions about a request with the same code that decides: whether it starts, what it
//!   lacks, whether it would fit if it asked for something else.
//! * [`Pool::make_room`] finds few moves after which a job fits, [`Pool::fragmentation`] says how much of what is free
//!   the observed mix of requests cannot use.
//!
//! Three crates stand apart: `tessera-check` validates any plan against the state, independently of the code that made
//! it; `tessera-explain` makes sentences of what a job that waits lacks; and `tessera-foresight` plays a copy of the
//! pool forward with what is here: when a job starts, what a change would do, which moves would bring free room
//! together.
//!
//! What it does not do:
//!
//! * It does not try every division. A gang is placed class by class and rack by rack, then node by node, then card by
//!   card. Whether one whose virtual cards may spread over cards or nodes fits at all, one fixed way of dividing it
//!   says (`fit::seats`), which is taken where no better place is found. So one may wait although some other division
//!   would fit.
//! * It does not search for the cheapest preemption of all: a bounded number of cards is compared, and of gangs
//!   that spread, or whose wishes must be met, victims are given up in order and then spared. Cheap, but not
//!   always cheapest.
//! * It knows no distance above the rack: other levels are labels, by the wishes `together` and `spread`.
//! * It keeps room for a few jobs at once, not for all that wait ([`Limits::reservations`]), and does not know when
//!   jobs without a time limit end: whoever needs what such a job holds may wait for ever.
//! * A decision never moves a job that runs: [`Pool::make_room`] plans moves for whoever asks for them.
//!
//! Start reading at [`Pool::decide`], then `fit` (where a gang goes), `price` and `index::worth` (what a place costs),
//! `line` (who is tried), `preempt` and `reserve`.

mod attempt;
mod decide;
mod demand;
mod fit;
mod fragmentation;
mod index;
mod inquiry;
mod kept;
mod line;
mod loss;
mod mix;
mod moves;
mod pool;
mod preempt;
mod price;
mod queues;
mod request;
mod reserve;
mod tariff;
mod victims;
mod waits;

/// The last size with which something works, between one with which it does and one with which it does not.
pub fn bisect(mut works: usize, mut fails: usize, mut does_work: impl FnMut(usize) -> bool) -> usize {
    while works.abs_diff(fails) > 1 {
        let middle = usize::midpoint(works, fails);
        if does_work(middle) { works = middle } else { fails = middle }
    }
    works
}

/// The least number between two with which something works, if there is one: in steps that double, then in halves.
fn least_with(first: usize, last: usize, mut does_work: impl FnMut(usize) -> bool) -> Option<usize> {
    let (mut count, mut step, mut fails) = (first, 1, None);
    while !does_work(count) {
        if count >= last {
            return None;
        }
        (fails, count, step) = (Some(count), (count + step).min(last), step * 2);
    }
    Some(fails.map_or(count, |fails| bisect(count, fails, does_work)))
}

/// The first of these that are enough together, without those that turn out not to be needed.
fn fewest<T: Clone>(all: &[T], enough: impl Fn(&[T]) -> bool) -> Option<Vec<T>> {
    if all.is_empty() || !enough(all) {
        return None;
    }
    let count = bisect(all.len(), 0, |count| enough(&all[..count]));
    let mut chosen = all[..count].to_vec();
    for place in (0..count).rev().filter(|_| count > 1) {
        let left_out = chosen.remove(place);
        if chosen.is_empty() || !enough(&chosen) {
            chosen.insert(place, left_out);
        }
    }
    Some(chosen)
}

pub use decide::{Decision, Limits};
pub use fit::affinity::{cached, preferred};
pub use fragmentation::Fragmentation;
pub use inquiry::{BeyondGuarantee, Inquiry, Start, Supply, TurnBefore};
pub use kept::Reservation;
pub use loss::Loss;
pub use moves::{CompactionOrder, PlannedMove, Rules, has_company};
pub use pool::{Pool, Work};
pub use queues::OverMaximum;
pub use request::{Ask, STOPPING};
pub use waits::Lack;
