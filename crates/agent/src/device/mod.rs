//! Virtual cards that are a device: the program computes on a slice server, and sees one device of PyTorch.
//!
//! A worker of such a job begins as a process of ours ([`run`]) that starts the slice server, waits until it listens, and
//! then starts the program with its address and a token. To the supervisor it is the program: signals are passed on, and it
//! ends as the program ends. Server and program lie in one control group and one PID namespace, so that a lease, a stop
//! and a kill mean both (law L2), and nothing of a server outlives its worker.
//!
//! A node serves devices when its configuration says which Python has PyTorch and the wheel `tessera`
//! ([`DeviceConfig`]), and that Python could load both when the agent started ([`served`]). It carries labels that say
//! so; jobs with such cards go to nodes with them.

mod plan;
pub mod run;
pub mod served;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use plan::Plan;

use crate::config::ConfigError;
use crate::supervisor::status::Exit;

/// The word with which this program starts a worker that has a device.
pub const WORD: &str = "with-device";
/// The code with which a worker ends whose program could not begin.
const NOT_SERVED: u8 = 125;
/// Where it says why, in the worker's own folder.
const NOT_SERVED_FILE: &str = ".not-served";
/// Most bytes of that.
const WHY: u64 = 1000;

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

impl DeviceConfig {
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
        Ok(())
    }
}

/// Why the program of a worker that ended so could not begin, when that was its node's fault. The file lies in the
/// worker's own folder: a program that writes one blames its node, which is believed only so often.
pub(crate) fn not_served(exit: Exit, work: &Path) -> Option<String> {
    if exit != Exit::Code(NOT_SERVED.into()) {
        return None;
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(work.join(NOT_SERVED_FILE)).ok()?;
    let mut why = Vec::new();
    file.take(WHY).read_to_end(&mut why).ok()?;
    Some(String::from_utf8_lossy(&why).into_owned())
}

/// Leaves word of it.
fn leave_word(work: &Path, why: &str) {
    // Without it the job is blamed, and its output says why.
    let _ = fs::write(work.join(NOT_SERVED_FILE), why);
}
