//! Tests of the client against members that misbehave: calls, streams and submissions.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod calls;
mod streams;
mod submissions;
mod support;
