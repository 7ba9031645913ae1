//! The live view of the pool in a terminal.
//!
//! What is shown is plain data: [`State`] holds it and changes by what was read ([`Update`]) and by keys, [`draw`] is a
//! pure function of it, and both are tested without a terminal. [`read`] asks the members for it, page by page, and
//! [`terminal`] is the shell around all of them.
//!
//! A pool can have 100,000 cards, so nothing here asks for all of them at once. Every pass reads the pool's numbers and
//! at most [`read::PAGES`] pages of the list that is looked at; the next pass goes on where this one ended. A list that
//! fits into one pass is new with every pass, a longer one goes round.

pub mod bar;
pub mod draw;
pub mod entry;
pub mod keys;
pub mod overview;
pub mod read;
pub mod state;
pub mod terminal;

pub use overview::Overview;
pub use state::State;
