//! Members in one process: three of them with agents that speak the session protocol, and what their services answer.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use tessera_consensus::ConsensusConfig;

mod pool;
mod services;

/// Slower than the defaults: the machine that runs the tests has other things to do.
fn consensus_config() -> ConsensusConfig {
    ConsensusConfig {
        heartbeat: Duration::from_millis(100),
        election_timeout_min: Duration::from_millis(400),
        election_timeout_max: Duration::from_millis(700),
        ..ConsensusConfig::default()
    }
}
