//! Explanations: why a job waits, what would happen if it were submitted, and the smallest change that would start it.
//!
//! Nothing is decided here. Placement is asked ([`Inquiry`](tessera_placement::Inquiry)) whether the job starts, and
//! whether it would without what is kept for others; whether it would fit if it asked for something else; and how much
//! there is of what it asks for. It answers by the code that decides. What is here is the order of these questions, and
//! what is said of the answers: a [`WaitCode`] for machines, a sentence for people, the numbers behind it, and what to
//! change.
//!
//! * [`explain`] says why a job waits: the one constraint that binds.
//! * [`preview`] says what would happen to a job that is not submitted.
//! * [`waits_for`] and [`waits_by_queue`] say it in one word, for lists and metrics.
//!
//! Start reading at [`explain`]: `why` has the order in which constraints are looked at, `held_back` what has to do
//! with queues and other jobs, `shortage` what is short of cards and hosts.

mod held_back;
mod preview;
mod shortage;
mod waits;
mod why;
mod words;

pub use preview::{Preview, PreviewedVictim, preview};
pub use shortage::is_never_together;
pub use waits::{waits_by_queue, waits_for};
pub use why::explain;
pub use words::{Explanation, WaitCode};
