//! Checkpoints as programs and operators meet them: what was saved comes back as it was, or is not there at all.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod agents;
mod breaking;
mod buckets;
mod crashes;
mod damage;
mod holes;
mod hostile;
mod keeping;
mod sharing;
mod support;
mod trees;
