//! The services of members that run in this process: each on a runtime of its own, over the in-memory store, reached
//! through gRPC like any other.

mod support;

mod foresight;
mod forwarding;
mod inputs;
mod jobs;
mod json;
mod limits;
mod logs;
mod map;
mod membership;
mod nonsense;
mod pages;
mod pool;
mod replay;
mod server;
mod streaming;
mod watching;
