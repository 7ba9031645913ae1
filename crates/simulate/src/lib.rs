//! Simulation.

pub mod placer;
pub mod plain;
pub mod policy;
pub mod saturate;
pub mod stats;
pub mod trace;
pub mod engine;
pub mod online;
pub mod timeline;
pub mod cards;
pub mod report;
