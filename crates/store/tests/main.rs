//! One contract for both stores, and what each of them does when it crashes, fills up or is damaged.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod contract;
mod contract_memory;
mod contract_rocks;
mod memory_crash;
mod memory_faults;
mod model;
mod rocks_crash;
mod rocks_damage;
mod rocks_full;
mod rocks_groups;
