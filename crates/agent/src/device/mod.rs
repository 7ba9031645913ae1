//! Virtual cards that are a device: the program computes on slice servers, and sees one device of PyTorch.
//!
//! A worker of such a job begins as a process of ours ([`run`]) that starts a slice server for each slice, waits until
//! they listen, and then starts the program with their addresses and a token. To the supervisor it is the program: it
//! ends as the program ends. Servers and program lie in one control group and one PID namespace, so that a lease, a stop
//! and a kill mean all of them (law L2), and nothing of a server outlives its worker.
//!
//! A node serves devices when its configuration says which Python has PyTorch and the wheel `tessera`
//! ([`DeviceConfig`]), and that Python could load both when the agent started ([`served`]). It carries labels that say
//! so; jobs with such cards go to nodes with them.

mod plan;
pub mod run;
pub mod served;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use plan::{Plan, PlannedSlice};

/// The word with which this program starts a worker that has a device.
pub const WORD: &str = "with-device";

/// How a node serves devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The interpreter with PyTorch and the wheel `tessera`; slice servers are run by it. `None`: the node serves none.
    pub python: Option<PathBuf>,
    /// Where the dispatcher lies that was built for it; `None`: `torch` in the agent's data folder.
    pub build: Option<PathBuf>,
    /// Variables that slice servers need.
    pub environment: BTreeMap<String, String>,
    /// How long a slice server may take until it listens.
    pub start_within: Duration,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self { python: None, build: None, environment: BTreeMap::new(), start_within: Duration::from_secs(60) }
    }
}
