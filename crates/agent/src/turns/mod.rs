//! Turns on cards that several workers share and that nothing divides among them but their agent.
//!
//! Where a device or its driver holds each worker to its share, agents leave it to them, and the processors of a host
//! are divided by control groups. A card whose description says `time_slicing = "freeze"` has neither, or one that
//! PyTorch found: an agent that is told so lets all workers but one stand still, in rounds that follow the blocks. What
//! they have in memory stays there.
//!
//! [`rounds`] decides, without a clock or a process. `table` is the task of one card: it asks the node who is on the
//! card ([`holders`]), measures, and tells supervisors ([`Request::Rest`](crate::supervisor::message::Request)) through
//! a `seat`. It is they who freeze control groups, and who let their workers go on when they hear nothing more. What
//! came of it is in a [`TurnBook`].

mod book;
pub mod holders;
pub mod rounds;
mod seat;
pub(crate) mod table;

pub use book::{CardTurns, Slicing, TurnBook, TurnTimes};
