//! Agents and supervisors on real processes, with the test in the place of the leader or of the agent.

mod agent;
mod leader;
mod outlived;
mod supervisor;
mod support;
