//! What the process that starts slice servers is told: one word of its command line, in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tessera_devices::{Share, TorchDevice};

use super::WORD;
use super::served::Served;
use crate::config::SupervisorCommand;

/// How the slice servers of a worker are started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Program and arguments of a server, before those of its slice.
    pub command: Vec<String>,
    /// Variables of the servers, beside a few of the worker's own.
    pub environment: BTreeMap<String, String>,
    /// Where the dispatcher lies, for the servers and for the program.
    pub build: String,
    /// How long a server may take until it listens.
    pub start_within: Duration,
    /// A server for each.
    pub slices: Vec<PlannedSlice>,
}

/// What one server serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedSlice {
    /// PyTorch's name of the device.
    pub device: String,
    /// Variables that make it the right one.
    pub environment: BTreeMap<String, String>,
    /// The part of its time, above 0 and at most 1.
    pub share: f64,
    /// Threads of a processor; 0: as many as PyTorch takes.
    pub threads: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Plan {
    /// The plan for a worker with these slices.
    #[must_use]
    pub fn new(served: &Served, slices: &[TorchDevice]) -> Self {
        let slice = |device: &TorchDevice| PlannedSlice {
            device: device.name.clone(),
            environment: device.environment.clone(),
            share: f64::from(device.share.0) / f64::from(Share::WHOLE.0),
            threads: device.threads,
            memory_mib: device.memory.0,
        };
        Self {
            command: served.command(),
            environment: served.environment.clone(),
            build: served.build.display().to_string(),
            start_within: served.start_within,
            slices: slices.iter().map(slice).collect(),
        }
    }

    /// The command of a worker whose program is `program`: this program, which starts the servers first.
    ///
    /// # Errors
    /// When the plan cannot be written as JSON.
    pub fn wrap(&self, own: &SupervisorCommand, program: Vec<String>) -> serde_json::Result<Vec<String>> {
        let own = own.program.display().to_string();
        let plan = serde_json::to_string(self)?;
        Ok([own, WORD.to_owned(), plan].into_iter().chain(program).collect())
    }
}

impl PlannedSlice {
    /// The arguments of its server, which is to listen at `address`.
    #[must_use]
    pub fn arguments(&self, address: &str) -> Vec<String> {
        let mut words = vec!["--listen".to_owned(), address.to_owned(), "--device".to_owned(), self.device.clone()];
        words.extend(["--memory".to_owned(), format!("{}MiB", self.memory_mib)]);
        words.extend(["--share".to_owned(), format!("{:.3}", self.share)]);
        if self.threads > 0 {
            words.extend(["--threads".to_owned(), self.threads.to_string()]);
        }
        words
    }
}
