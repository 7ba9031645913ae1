//! Placement: where jobs go, who is preempted for whom, what is kept free, and why a job waits.
//!
//! Everything here is pure: a view of the ledger in, a [`Plan`](tessera_ledger::Plan) and reasons out. No clock is read, nothing is drawn
//! at random, nothing is iterated in the order of a hash: equal states give equal plans.
//!
//! * [`Pool`] is an index of the ledger's state, kept current by what each applied entry touched ([`Pool::refresh`]). Decisions are
//!   range queries on it; no decision looks at the whole pool.
//! * [`Pool::decide`] goes through the line of waiting jobs once and grants what fits: best fit in compute and memory, on one
//!   card, over the cards of a node or over nodes (P1, P9), gangs whole, within the maxima of queues, with renumbering where
//!   it makes room (P7, P10), preemption of strictly lower priorities (P5d, law L4), and cards kept free for a first job in
//!   line that waits too long.
//! * [`Pool::explain`] and [`Pool::preview`] answer *why* and *what if* with the same code that decides.
//! * [`check`] validates any plan against the state, independently of the code that made it.
//!
//! What it does not do: a gang whose virtual cards spread over cards is placed member by member without going back, so that it may wait
//! although some other division would fit; preemption compares a bounded number of cards, so that it is cheap but not always
//! cheapest; and one job at a time has cards kept for it.
//!
//! Start reading at [`Pool::decide`], then `fit` (where a gang goes), `line` (who is tried), `preempt` and `reserve`.

mod check;
mod compact;
mod decide;
mod demand;
mod fit;
mod index;
mod kept;
mod limits;
mod line;
mod loss;
mod mix;
mod pool;
mod preempt;
mod preview;
mod price;
mod queues;
mod rehearsal;
mod reserve;
mod tariff;
mod terms;
mod unmet;
mod victims;
mod what_if;
mod when;
mod why;

pub use check::{Problem, Violation, check};
pub use compact::{
    CompactionOrder, CompactionPlan, KindMeasure, Measure, MoveRefusal, PlannedMove, Room, compact, make_room, move_job,
};
pub use limits::{Decision, Limits};
pub use loss::Loss;
pub use pool::Pool;
pub use preview::{Preview, PreviewedVictim};
pub use terms::{NodeTerms, Term, terms};
pub use what_if::{Capacity, Change, Moved, Moves, WhatIf, what_if};
pub use when::{Assumptions, Estimate, Unknown, Whom, when};
pub use why::{Explanation, WaitCode};
