//! The plan for the process that starts slice servers: one word of its command line, in JSON.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tessera_devices::{Share, TorchDevice};

use super::served::Served;
use super::{Across, WORD};
use crate::config::SupervisorCommand;

/// The least time that the servers of other nodes are given.
const OTHER_NODES: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramPlace {
    /// Beside it, and reaches it by this socket.
    Here(PathBuf),
    /// On a host of its own.
    Elsewhere {
        /// Address at which the server listens, on any port.
        listen: IpAddr,
        /// Host name or address by which that is reached.
        host: String,
        /// The longest silence of the program's host before the card is given back.
        lease: Duration,
        /// True if the server saves what its program has on the card.
        saves: bool,
    },
    /// Beside it, and it is dumped: it knows of nothing, and asks at a socket of this folder where the server is.
    Unaware(PathBuf),
    /// With another worker: the first server of the card serves it, and these servers follow that one.
    WithFirst,
    /// With a worker of another node, which has no slices.
    OnOtherNode {
        /// Address at which the first server listens for the program.
        listen: String,
        /// The longest silence of the program, once it has connected, before the card is given back.
        lease: Duration,
    },
    /// With this worker, which has no slices.
    Apart {
        /// Address at which the first server of its card is reached.
        server: String,
        /// The longest wait of this worker for an answer of that server.
        within: Duration,
    },
}

/// The plan by which the slice servers of a worker are started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Program and arguments of a server, before those of its slice.
    pub command: Vec<String>,
    /// Variables of a server, beside a few of the worker's own.
    pub environment: BTreeMap<String, String>,
    /// Variables of the program that are not for the process between.
    pub of_program: BTreeMap<String, String>,
    /// Folder of the dispatcher, for servers and for the program.
    pub build: String,
    /// The time within which the first server must listen.
    pub start_within: Duration,
    pub place: ProgramPlace,
    /// The slices of the worker, with a server for each. The first one of the card serves the program.
    pub slices: Vec<PlannedSlice>,
    /// This worker's part of a card over several nodes; `None`: the card lies on one node, or on others alone.
    pub across: Option<Across>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedSlice {
    /// PyTorch's name of the device.
    pub device: String,
    /// Variables that make it the right one.
    pub environment: BTreeMap<String, String>,
    /// The part of its time that the server holds itself to, above 0 and at most 1.
    pub share: f64,
    /// The part that it has, whoever holds it to that.
    pub part: f64,
    /// Threads of a processor; 0: as many as PyTorch takes.
    pub threads: u32,
    pub memory_mib: u64,
}

impl ProgramPlace {
    /// Returns whether the server saves what its program has on the card.
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
            Self::OnOtherNode { listen: at, lease } => {
                let mut words = listen(at.clone());
                // A checkpoint may be fetched for it before it comes.
                words.extend(["--lease".to_owned(), lease.as_secs_f64().to_string(), "--await-host".to_owned()]);
                words
            }
            // A connection of TCP is one that a program may find closed when it is restored.
            Self::Unaware(_) => {
                let mut words = listen(format!("tcp:{}", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)));
                words.push("--checkpoints".to_owned());
                words
            }
            Self::WithFirst | Self::Apart { .. } => Vec::new(),
        }
    }
}

impl Plan {
    /// The plan for a worker with these slices.
    #[must_use]
    pub fn new(
        served: &Served,
        slices: &[TorchDevice],
        place: ProgramPlace,
        of_program: BTreeMap<String, String>,
    ) -> Self {
        Self {
            command: served.command(),
            environment: served.environment.clone(),
            of_program,
            build: served.build.display().to_string(),
            start_within: served.start_within,
            place,
            slices: slices.iter().map(PlannedSlice::new).collect(),
            across: None,
        }
    }

    /// The ports of this host, given by the pool, at which its servers are to be met.
    #[must_use]
    pub fn listens_at(&self) -> Vec<SocketAddr> {
        let with_others = self.across.as_ref().filter(|across| across.before == 0).map(|across| &across.listen);
        let with_program = match &self.place {
            ProgramPlace::OnOtherNode { listen, .. } => Some(listen),
            _ => None,
        };
        let addresses = with_others.into_iter().chain(with_program);
        addresses.filter_map(|address| address.strip_prefix("tcp:")?.parse().ok()).collect()
    }

    /// The same for a part of a card over several nodes.
    #[must_use]
    pub fn across(self, across: Option<Across>) -> Self {
        Self { across, ..self }
    }

    /// Returns whether other workers have slices or the program of the card: then all know the same secret.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.across.is_some() || matches!(self.place, ProgramPlace::OnOtherNode { .. } | ProgramPlace::Apart { .. })
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

    /// The arguments of the server of one of the worker's slices. Servers of one worker find each other at `group`.
    #[must_use]
    pub fn arguments(&self, slice: usize, group: &Path) -> Vec<String> {
        let mut words = self.slices.get(slice).map(PlannedSlice::arguments).unwrap_or_default();
        let (before, of) = self.across.as_ref().map_or((0, self.slices.len()), |across| (across.before, across.of));
        let rank = before + slice;
        let address = match &self.across {
            Some(across) => across.group(rank).to_owned(),
            None => format!("unix:{}", group.display()),
        };
        if of > 1 {
            words.extend(["--rank".to_owned(), rank.to_string(), "--of".to_owned(), of.to_string()]);
            words.extend(["--group".to_owned(), address]);
        }
        if self.across.is_some() {
            // The first one may not have been started for long, because its worker's checkpoint is fetched before:
            // whoever comes before it waits until it is told to stop.
            let patience = if rank == 0 { self.patience().as_secs_f64() } else { f64::INFINITY };
            words.extend(["--patience".to_owned(), patience.to_string()]);
        }
        if rank == 0 {
            words.extend(self.place.arguments());
        }
        words
    }

    /// The longest time that a card's first server waits for those of other nodes, whose disks may have to read PyTorch
    /// first.
    fn patience(&self) -> Duration {
        patience(self.start_within)
    }

    /// The time within which this worker's first server must report that it is ready; `None`: no limit until it ends.
    #[must_use]
    pub fn ready_within(&self) -> Option<Duration> {
        match (&self.place, &self.across) {
            (ProgramPlace::WithFirst, _) => None,
            // To start itself, and to wait for those of the other nodes.
            (_, Some(_)) => Some(self.start_within + self.patience()),
            (_, None) => Some(self.start_within),
        }
    }

    /// The names of the devices behind the worker's slices, for messages to people.
    #[must_use]
    pub fn devices(&self) -> String {
        self.slices.iter().map(|slice| &*slice.device).collect::<Vec<_>>().join(" + ")
    }
}

/// The longest time until a card's first server, on another node, serves, if a server may start for `start_within`.
pub(crate) fn until_served(start_within: Duration) -> Duration {
    start_within + patience(start_within)
}

fn patience(start_within: Duration) -> Duration {
    start_within.max(OTHER_NODES)
}

impl PlannedSlice {
    fn new(slice: &TorchDevice) -> Self {
        let part_of = |share: Share| f64::from(share.0) / f64::from(Share::WHOLE.0);
        Self {
            device: slice.name.clone(),
            environment: slice.environment.clone(),
            share: part_of(slice.share),
            part: part_of(slice.part),
            threads: slice.threads,
            memory_mib: slice.memory.0,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut words = vec!["--device".to_owned(), self.device.clone()];
        words.extend(["--memory".to_owned(), format!("{}MiB", self.memory_mib)]);
        words.extend(["--share".to_owned(), format!("{:.3}", self.share)]);
        words.extend(["--part".to_owned(), format!("{:.3}", self.part)]);
        if self.threads > 0 {
            words.extend(["--threads".to_owned(), self.threads.to_string()]);
        }
        words
    }
}
