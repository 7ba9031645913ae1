//! The benchmarks.

pub mod backup;
pub mod crowd;
pub mod exhaust;
pub mod failover;
pub mod idle;
pub mod motion;
pub mod place;
pub mod preempt;
pub mod restart;
pub mod saver;
pub mod slicing;
pub mod start;
pub mod submit;
pub mod watched;
