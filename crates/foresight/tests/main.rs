//! The copy of a pool that is played forward: when, what if, growth and compaction.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod compaction;
mod foresight;
mod growth;
#[path = "../../placement/tests/world/mod.rs"]
mod world;
