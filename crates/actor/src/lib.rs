//! Actors: bounded mailboxes, asking with a deadline, and what happens when one panics.
//!
//! An actor is plain state, one enum of everything that can happen to it, and a synchronous function `on(event) ->
//! effects`. This crate is what stands around that: a [`mailbox`] with a capacity and a policy for when it is full, an
//! [`Address`] to tell or ask through, and [`Supervisor`], which names tasks and decides what a panic means.
//!
//! Three rules make bounded mailboxes safe, and nothing here checks them for you: awaiting sends form no cycle (answers
//! go through a [`Reply`], which never waits); every ask has a deadline; timers are events like any other. Time is
//! tokio's, so all of it runs under a paused clock.

mod address;
mod exposition;
mod meters;
mod pulse;
mod supervise;

pub use address::{Address, AskError, Delivery, Mailbox, Reply, TellError, WhenFull, mailbox};
pub use exposition::exposition;
pub use meters::ActorMeters;
pub use pulse::Pulse;
pub use supervise::{Backoff, Supervisor};
