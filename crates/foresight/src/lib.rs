//! Foresight: what will or would become of the pool, played through on a copy of its ledger. Nothing here changes
//! anything: whoever asks gets an answer, or a plan that others may carry out.
//!
//! A rehearsal is a copy of the ledger with a [`Pool`](tessera_placement::Pool) of its own and
//! agents that obey at once: the code that decides and the code that applies, with time that is set. On it
//!
//! * [`when`] says when a job starts, and what that rests on;
//! * [`what_if`] says what would become of the pool if an operator changed it;
//! * [`terms`] says what spoke for the nodes that a job would go to;
//! * [`growth`] says which gang would get more virtual cards if it were started again;
//! * [`compact`] plans moves that bring free room together, [`make_way`] those that jobs wait for, and [`move_job`]
//!   the move of one job.
//!
//! How a job is placed, placement alone says: nothing of it is decided anew here.

mod added;
mod compact;
mod growth;
mod rehearsal;
mod terms;
mod what_if;
mod when;

pub use compact::{CompactionPlan, KindMeasure, Measure, MoveRefusal, Room, WAY_EVERY, compact, make_way, move_job};
pub use growth::{Growth, Look, growth};
pub use terms::{NodeTerms, Term, terms};
pub use what_if::{AddedNodes, Capacity, Change, Moved, Moves, WhatIf, what_if};
pub use when::{Assumptions, Estimate, Unknown, Whom, when};
