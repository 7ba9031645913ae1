//! Traces, read and played: the engine, its policies and what is drawn of a run.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod engine;
mod online;
mod policies;
mod readers;
mod timeline;
