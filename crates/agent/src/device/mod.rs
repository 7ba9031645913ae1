//! Virtual cards that are a device: the program computes on a slice server, and sees one device of PyTorch.
//!
//! A worker of such a job begins as a process of ours ([`run`]) that starts the slice server, waits until it listens,
//! and then starts the program with its address and a token. To the supervisor it is the program: signals are passed
//! on, and it ends as the program ends. Server and program lie in one control group and one PID namespace, so that a
//! lease, a stop and a kill mean both (law L2), and nothing of a server outlives its worker.
//!
//! Where a card lies on several nodes, each has a worker with the servers of its slices, and the first one the program
//! ([`Across`]). Where no slice of it is on the program's node, that worker has the program alone.
//!
//! A program that is dumped knows nothing of its servers: they are beside it (`run::unaware`), and it asks where its
//! card is.
//!
//! Where the program is on a host of its own, the server is the worker: it listens for that host, and the process that
//! started it waits for it alone. Whoever submitted the job is told where it is.
//!
//! A node serves devices when its configuration says which Python has PyTorch and the wheel `tessera`
//! ([`DeviceConfig`]), and that Python could load both when the agent started ([`served`]). It carries labels that say
//! so; jobs with such cards go to nodes with them.

mod across;
mod counts;
pub(crate) mod lines;
mod plan;
mod problem;
mod reached;
pub mod run;
pub mod served;
mod word;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use across::{Across, between_nodes, has_first_server, has_slices, runs_program};
pub use counts::{Counts, per_second};
pub(crate) use plan::until_served;
pub use plan::{Plan, PlannedSlice, ProgramPlace};
pub(crate) use reached::Reached;
pub(crate) use run::unaware;
use served::NO_USER_SITE;
use tessera_devices::accelerators::Interpreter;
pub(crate) use word::{Ear, Word};

use crate::config::ConfigError;
use crate::worker::{RunAs, inherited_environment};

/// The word with which this program starts a worker that has a device.
pub const WORD: &str = "with-device";
/// Slices that a device has at most, as its servers do (`MOST` in crates/torch/python/tessera/group.py).
pub const MOST_SLICES: usize = 64;
/// The shortest lease of a program's host: some words get through in it over a network that loses a few.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// The settings with which a node serves devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// The interpreter with PyTorch and the wheel `tessera`; slice servers are run by it. `None`: the node serves none.
    pub python: Option<PathBuf>,
    /// Folder of the dispatcher that was built for the interpreter; `None`: `torch` in the agent's data folder.
    pub build: Option<PathBuf>,
    /// Variables that slice servers need.
    pub environment: BTreeMap<String, String>,
    /// The time within which a slice server must listen.
    pub start_within: Duration,
    /// The longest silence of the host of a program that runs elsewhere before its card is given back.
    pub host_lease: Duration,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        let (start_within, host_lease) = (Duration::from_secs(60), Duration::from_secs(60));
        Self { python: None, build: None, environment: BTreeMap::new(), start_within, host_lease }
    }
}

impl DeviceConfig {
    /// The interpreter, as slice servers are run by it; without a program where none is named.
    #[must_use]
    pub fn interpreter(&self) -> Interpreter {
        let mut environment = inherited_environment(RunAs::Agent);
        environment.extend(self.environment.clone());
        environment.insert(NO_USER_SITE.to_owned(), "1".to_owned());
        Interpreter { python: self.python.clone().unwrap_or_default(), environment }
    }

    /// Checks what can be checked without starting.
    ///
    /// # Errors
    /// The first field that cannot work, with what to write instead.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, path) in [("device.python", &self.python), ("device.build", &self.build)] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                let problem = format!("`{}` is not an absolute path", path.display());
                return Err(ConfigError::new(
                    field,
                    problem,
                    "workers start in other folders; name it from the root on",
                ));
            }
        }
        if self.start_within.is_zero() {
            return Err(ConfigError::new("device.start_within", "it is zero", "give a server some seconds to start"));
        }
        if self.host_lease < SHORTEST_LEASE {
            let remedy = format!("give a host {} s at least to be heard of again", SHORTEST_LEASE.as_secs());
            return Err(ConfigError::new("device.host_lease", "it is too short", remedy));
        }
        Ok(())
    }
}
