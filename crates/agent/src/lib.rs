//! The agent of a node: it registers the node's cards, keeps a session with the leader, and makes real processes follow
//! what the ledger says (architecture section 5).
//!
//! Two kinds of processes belong to it.
//!
//! * **The agent** ([`run`]): one per node. It keeps the session, prepares workers, reports what happened until it is
//!   acknowledged, serves output and metrics. It may be killed, stopped or replaced at any time without harm: workers
//!   go on, and the next agent adopts them. SIGTERM of the agent therefore leaves workers running; to empty a node,
//!   drain it.
//! * **A supervisor per worker** ([`supervisor::main`]): a small process that outlives the agent, holds the worker's
//!   lease deadline on `CLOCK_BOOTTIME` by itself, and kills the worker when the lease is not renewed, even while the
//!   agent is stopped or dead (law L2). Killing the supervisor kills the worker.
//!
//! Where to begin reading: [`node`] is the whole behaviour of an agent as plain state and a synchronous `on(event)`;
//! [`supervisor`] is the same for one worker; [`host`] is what both stand on; everything else performs what
//! they decide.

mod agent;
pub mod boot;
mod cards;
pub mod cgroup;
mod checkpoints;
mod conduct;
pub mod config;
pub mod criu;
mod data;
pub mod device;
mod durable;
pub mod host;
mod http;
mod identity;
mod logs;
mod metrics;
pub mod node;
pub mod offer;
pub mod place;
pub mod process;
pub mod reach;
mod retention;
mod session;
mod shell;
pub mod supervisor;
mod trace;
pub mod turns;
mod untrusted;
pub mod worker;

use futures::future::BoxFuture;
use tessera_actor::Pulse;
use tokio_util::sync::CancellationToken;

pub use agent::{Agent, AgentError};
pub use checkpoints::is_due_at_the_end;
pub use conduct::Conduct;
pub use config::{AgentConfig, CardSource, ConfigError, Limits, SupervisorCommand};
pub use device::DeviceConfig;
pub use identity::{IdentityError, name_kept_in};
pub use offer::HostOffer;

/// Runs an agent until `shutdown` is cancelled: [`Agent::start`] and [`Agent::run`]. Workers go on afterwards.
/// `pulse` beats as long as the agent listens and its node's loop answers.
///
/// # Errors
/// What cannot be had, and what to do about it.
pub fn run(
    config: AgentConfig,
    pulse: Pulse,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), AgentError>> {
    // In a box, so that all of an agent is compiled here, and not in the crate that runs it.
    Box::pin(async move { Agent::start(config).await?.with_pulse(pulse).run(shutdown).await })
}
