//! Tests of the API: job files and their document, requests that are refused, views.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod agents;
#[path = "../../ledger/tests/arbitrary/mod.rs"]
mod arbitrary;
mod bad_requests;
mod job_file;
mod job_file_document;
mod job_text;
#[path = "../../ledger/tests/pool/mod.rs"]
mod pool;
mod views;
