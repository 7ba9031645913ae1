//! Agents and supervisors on real processes, with the test in the place of the leader or of the agent.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

mod agent;
mod ahead;
mod apart;
mod beside;
mod counting;
mod damage;
mod edited;
mod ends;
mod groups;
mod hostile;
mod identity;
mod inheritance;
mod leader;
mod listeners;
mod outlived;
mod programs;
mod resting;
mod restored;
mod supervisor;
mod support;
mod swaps;
mod unaware;
mod unsaid;
