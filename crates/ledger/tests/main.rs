//! Tests of what the ledger promises: laws under random and hostile commands, scenarios, models of its protocols, and
//! what is written to logs and snapshots.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod anew;
mod arbitrary;
mod checkpoints;
mod commands_document;
mod digest;
mod eventful;
mod gangs;
mod golden;
mod hosts;
mod hosts_and_gangs;
mod idle;
mod interrupted_moves;
mod leases;
mod levels;
mod limits;
mod models;
mod moves;
mod nodes;
mod order;
mod over_nodes;
mod oversubscription;
mod pool;
mod ports;
mod program_beside;
mod queues;
mod quotas;
mod random;
mod recall;
mod samples;
mod scenarios;
mod settings;
mod sick_nodes;
mod submissions;
mod windows;
mod wire_requests;
mod wire_snapshots;
mod worked_examples;
