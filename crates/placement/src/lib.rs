//! Placement: where jobs go, who is preempted for whom, what is kept free, and why a job waits.
//!
//! Everything here is pure: a view of the ledger in, a [`Plan`](tessera_ledger::Plan) and reasons out. No clock is read, nothing is drawn
//! at random, nothing is iterated in the order of a hash: equal states give equal plans.
//!
//! * [`Pool`] is an index of the ledger's state, kept current by what each applied entry touched ([`Pool::refresh`]). Decisions look at
//!   what changed; none looks at the whole pool, except the first of its kind after prices were made anew.
//! * [`Pool::decide`] goes through the lines of waiting jobs once, whoever's turn it is, and grants what fits, where it costs least
//!   of what the room could have been used for (`price`; docs/decisions/0007-placement-score.md): on one card, over the cards of
//!   a node or over nodes (P1, P9), gangs whole, within the maxima of queues and what hosts have left, with renumbering where it
//!   makes room (P7, P10). Turns follow from guarantees and fair share, lower priorities of the same queue give way, loans are
//!   recalled (P5d, law L4), and cards are kept free for first jobs of queues that wait too long.
//! * [`Pool::explain`] and [`Pool::preview`] answer *why* and *what if* with the same code that decides.
//! * [`Pool::make_room`] finds few moves after which a job fits, [`Pool::fragmentation`] says how much of what is free the observed mix
//!   of requests cannot use.
//! * [`check`] validates any plan against the state, independently of the code that made it.
//!
//! What it does not do: a gang whose virtual cards spread over cards is placed member by member without going back, so that it may wait
//! although some other division would fit; and preemption compares a bounded number of cards, so that it is cheap but not
//! always cheapest.
//!
//! Start reading at [`Pool::decide`], then `fit` (where a gang goes), `price` and `index::worth` (what a place costs), `line` (who is tried), `preempt` and `reserve`.

mod check;
mod compact;
mod decide;
mod demand;
mod fit;
mod fragmentation;
mod held_back;
mod index;
mod kept;
mod limits;
mod line;
mod loss;
mod make_room;
mod mix;
mod pool;
mod preempt;
mod preview;
mod price;
mod queues;
mod rehearsal;
mod reserve;
mod shortage;
mod tariff;
mod terms;
mod unmet;
mod victims;
mod what_if;
mod when;
mod why;
mod work;

pub use check::{Problem, Violation, check};
pub use compact::{
    CompactionOrder, CompactionPlan, KindMeasure, Measure, MoveRefusal, PlannedMove, Room, compact, move_job,
};
pub use fragmentation::Fragmentation;
pub use limits::{Decision, Limits};
pub use loss::Loss;
pub use pool::Pool;
pub use preview::{Preview, PreviewedVictim};
pub use terms::{NodeTerms, Term, terms};
pub use what_if::{Capacity, Change, Moved, Moves, WhatIf, what_if};
pub use when::{Assumptions, Estimate, Unknown, Whom, when};
pub use why::{Explanation, WaitCode};
pub use work::Work;
