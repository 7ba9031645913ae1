//! Whole members against each other: elections, crashes, partitions, snapshots and changes of the membership, with real
//! gRPC on loopback and modelled disks.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod clocks;
mod damage;
mod failover;
mod harness;
mod identity;
mod lines;
mod measures;
mod membership;
mod proposals;
mod reads;
mod register;
mod restart;
mod snapshots;
mod strangers;
mod wires;
