//! The copy of a pool that is played forward: when, what if, growth and compaction.

mod compaction;
mod foresight;
mod growth;
#[path = "../../placement/tests/world/mod.rs"]
mod world;
