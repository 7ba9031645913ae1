//! Whole members against each other: elections, crashes, partitions, snapshots and changes of the membership, with real
//! gRPC on loopback and modelled disks.

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
