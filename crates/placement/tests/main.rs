//! Tests of placement: where jobs go, whom they preempt and why they wait, as scenarios, properties and histories.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod affinity;
mod attained;
mod checking;
mod dry_runs;
mod elastic;
mod explanations;
mod explanations_of_turns;
mod fit;
mod giving_way;
mod histories;
mod hosts_and_gangs;
mod naive;
mod preemption;
mod program_beside;
mod queues;
mod racks;
mod reservations;
mod room;
mod scarcity;
mod settings;
mod starvation;
mod termination;
mod verdicts;
mod windows;
mod work;
mod worked_examples;
mod world;
