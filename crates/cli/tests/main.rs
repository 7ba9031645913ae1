//! The program as people and service managers run it: what it prints, its reference, what it notifies, and output that
//! cannot be written.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod configured;
mod notify;
mod printed;
mod program;
mod reference;
mod unwritten;
