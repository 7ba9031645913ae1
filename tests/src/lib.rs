//! What end-to-end tests share: a pool of real processes ([`pool`]), jobs in it ([`jobs`]), and waiting on conditions
//! ([`wait`]).

pub mod jobs;
pub mod pool;
pub mod process;
pub mod wait;
