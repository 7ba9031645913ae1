//! What the process that starts a slice server is told: one word of its command line, in JSON.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tessera_devices::{Share, TorchDevice};

use super::WORD;
use super::served::Served;
use crate::config::SupervisorCommand;

/// Where the program of a slice server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Beside it, and reaches it by this socket.
    Here(PathBuf),
    /// On a host of its own.
    Elsewhere {
        /// Where the server listens, on any port.
        listen: IpAddr,
        /// Host name or address by which that is reached.
        host: String,
        /// How long the program's host may be silent.
        lease: Duration,
        /// Whether the server saves what its program has on the card.
        saves: bool,
    },
}

/// How the slice server of a worker is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Program and arguments of the server, before those of its slice.
    pub command: Vec<String>,
    /// Variables of the server, beside a few of the worker's own.
    pub environment: BTreeMap<String, String>,
    /// Variables of the program that are not for the process between.
    pub of_program: BTreeMap<String, String>,
    /// Where the dispatcher lies, for the server and for the program.
    pub build: String,
    /// How long the server may take until it listens.
    pub start_within: Duration,
    /// Where its program is.
    pub place: Place,
    /// PyTorch's name of the device.
    pub device: String,
    /// The part of its time, above 0 and at most 1.
    pub share: f64,
    /// Threads of a processor; 0: as many as PyTorch takes.
    pub threads: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Place {
    /// Whether the server saves what its program has on the card.
    #[must_use]
    pub const fn saves(&self) -> bool {
        matches!(self, Self::Elsewhere { saves: true, .. })
    }

    fn arguments(&self) -> Vec<String> {
        let listen = |address| vec!["--listen".to_owned(), address];
        match self {
            Self::Here(socket) => listen(format!("unix:{}", socket.display())),
            Self::Elsewhere { listen: at, host: _, lease, saves } => {
                let mut words = listen(format!("tcp:{}", SocketAddr::new(*at, 0)));
                words.extend(["--lease".to_owned(), lease.as_secs_f64().to_string()]);
                words.extend(saves.then(|| "--checkpoints".to_owned()));
                words
            }
        }
    }
}

impl Plan {
    /// The plan for a worker with this slice.
    #[must_use]
    pub fn new(served: &Served, slice: &TorchDevice, place: Place, of_program: BTreeMap<String, String>) -> Self {
        let mut environment = served.environment.clone();
        environment.extend(slice.environment.clone());
        Self {
            command: served.command(),
            environment,
            of_program,
            build: served.build.display().to_string(),
            start_within: served.start_within,
            place,
            device: slice.name.clone(),
            share: f64::from(slice.share.0) / f64::from(Share::WHOLE.0),
            threads: slice.threads,
            memory_mib: slice.memory.0,
        }
    }

    /// The command of a worker whose program is `program`: this program, which starts the server first.
    ///
    /// # Errors
    /// When the plan cannot be written as JSON.
    pub fn wrap(&self, own: &SupervisorCommand, program: Vec<String>) -> serde_json::Result<Vec<String>> {
        let own = own.program.display().to_string();
        let plan = serde_json::to_string(self)?;
        Ok([own, WORD.to_owned(), plan].into_iter().chain(program).collect())
    }

    /// The arguments of the server.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec!["--device".to_owned(), self.device.clone()];
        words.extend(["--memory".to_owned(), format!("{}MiB", self.memory_mib)]);
        words.extend(["--share".to_owned(), format!("{:.3}", self.share)]);
        if self.threads > 0 {
            words.extend(["--threads".to_owned(), self.threads.to_string()]);
        }
        words.extend(self.place.arguments());
        words
    }
}
