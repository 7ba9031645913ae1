//! End-to-end tests: real members, agents and workers on loopback.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod agent;
mod backup;
mod bombs;
mod clocks;
mod debug;
mod device;
mod disaster;
mod disk;
mod doctor;
mod driver;
mod dumped_moves;
mod ends;
mod exhaust;
mod fallback;
mod first_hour;
mod gang;
mod growth;
mod interruptions;
mod jobs;
mod leader;
mod leases;
mod members;
mod metrics;
mod motion;
mod moves;
mod network;
mod private_folder;
mod reclaim;
mod slicing;
mod stays;
mod stores;
mod submissions;
mod swapped;
mod top;
mod traces;
mod transparent;
mod unwritten;
mod upgrade;
mod usage;
mod used;
mod worked_examples;
