//! The long-running processes: members, agents, and a whole pool on one machine.

mod agent;
mod config_file;
mod dev;
pub(crate) mod logging;
mod notify;
mod server;
mod shutdown;
mod thinning;

pub use agent::{agent, agent_config};
pub use dev::dev;
pub use logging::log_to_terminal;
pub(crate) use server::connections_for;
pub use server::{member_config, server};
