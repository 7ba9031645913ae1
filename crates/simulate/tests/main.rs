//! Traces, read and played: the engine, its policies and what is drawn of a run.

mod engine;
mod online;
mod policies;
mod readers;
mod timeline;
