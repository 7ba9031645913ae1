//! What an agent is told before it starts: who it is, where its files lie, whom it talks to, what it may use.
//!
//! A configuration is checked once, by [`AgentConfig::validate`]; everything behind it trusts what it holds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::geteuid;
use tessera_api::fields;
use tessera_client::{Address, BadAddress};
use tessera_connection::names::{KnownNames, name_of};
use tessera_connection::seats::SeatLimits;
use tessera_devices::TimeSlicing;
use tessera_ledger::wire::FieldError;
use tessera_ledger::{DEVICE_LABEL, DEVICE_VERSION_LABEL, TRANSPARENT_LABEL};

use crate::cgroup::GROUP_OF_ALL;
use crate::criu;
use crate::device::DeviceConfig;
use crate::offer::HostOffer;
use crate::turns::rounds::Terms;
use crate::worker::{Budget, RunAs};

/// Labels that agents set by themselves.
const OWN_LABELS: [&str; 4] = [DEVICE_LABEL.0, DEVICE_VERSION_LABEL, TRANSPARENT_LABEL.0, criu::VERSION_LABEL];
/// Longest name of a node, as for a host name.
const MAX_NAME_LENGTH: usize = 253;

/// Where the cards of the node come from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CardSource {
    /// The processors of this host.
    #[default]
    Local,
    /// Those, and the accelerators that the Python of [`DeviceConfig`] finds.
    Accelerators,
    /// Declared, simulated cards: the section of this node in an inventory file (see `tessera_devices::inventory`).
    Inventory(PathBuf),
    /// None: the node runs work on the cards of others only.
    None,
}

/// How a supervisor process is started: a program, its first arguments, and then the worker's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorCommand {
    pub program: PathBuf,
    /// Arguments before the folder.
    pub arguments: Vec<OsString>,
}

impl Default for SupervisorCommand {
    /// This very program, even when its file has been replaced by a newer release, with the hidden word `supervise`.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![OsString::from("supervise")] }
    }
}

/// Bounds on what workers may leave on the node, and on those who ask its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file of output before the next one is begun.
    pub output_file_bytes: u64,
    /// Files kept of each output; the oldest are removed first.
    pub output_files: u32,
    /// The time for which output is kept here after the end where the job does not say; `None`: the pool says it.
    pub output_retention: Option<Duration>,
    /// The room on the disk for what ended work leaves.
    pub ended: Budget,
    /// How long a kill may take before it is reported as unconfirmed (it is tried further).
    pub kill_confirmation: Duration,
    /// How far from now a lease may reach at most, whoever grants it.
    pub longest_lease: Duration,
    /// Processes and threads that a worker has at once at most.
    pub processes_per_worker: u64,
    /// Connections of those who ask this agent.
    pub seats: SeatLimits,
    /// Streams of output that are read at once.
    pub log_streams: usize,
}

/// How far a lease may reach unless configured otherwise: far longer than any pool's, and not for ever.
pub const LONGEST_LEASE: Duration = Duration::from_secs(600);

impl Default for Limits {
    fn default() -> Self {
        Self {
            output_file_bytes: 16 << 20,
            output_files: 4,
            output_retention: None,
            ended: Budget { bytes: 10 << 30, least_free: 5 },
            kill_confirmation: Duration::from_secs(3),
            longest_lease: LONGEST_LEASE,
            processes_per_worker: processes_per_worker(),
            seats: SeatLimits { connections: 1024, silence: Duration::from_secs(10) },
            log_streams: 1024,
        }
    }
}

/// Processes of a worker unless configured otherwise: far more than any program wants that does not fork without end,
/// and few enough for others to go on beside one that does. Programs start threads by the processors that they find.
fn processes_per_worker() -> u64 {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u64::try_from(processors).unwrap_or(u64::MAX).saturating_mul(256).clamp(16_384, MOST_PROCESSES)
}

/// Processes that Linux has at most.
const MOST_PROCESSES: u64 = 4_194_304;

/// How checkpoints of the work on a node are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// URL of the store that all nodes share: `file:///folder` or `s3://bucket/prefix`; `None`: checkpoints lie on the
    /// nodes, each on two.
    pub store: Option<String>,
    /// Most bytes in a second that are copied from other nodes, and as many that are handed to them.
    pub bytes_per_second: NonZeroU64,
    /// CRIU, which dumps and restores programs that know nothing of checkpoints; `None`: nothing is dumped here.
    pub criu: Option<PathBuf>,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { store: None, bytes_per_second: NonZeroU64::new(256 << 20).expect("not zero"), criu: None }
    }
}

/// Everything an agent needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Name of the node, unique in the pool.
    pub node_name: String,
    /// Folder for the agent's identity, the workers and their output. Must outlive reboots.
    pub data_dir: PathBuf,
    /// The operator's word that the data folder was moved here, and is used nowhere else.
    pub data_dir_moved: bool,
    /// The operator's word that the node's pool began anew under this id, restored from a backup or recovered.
    pub accept_pool: Option<String>,
    /// `host:port` of members; one that answers is enough.
    pub members: Vec<String>,
    /// Where members read logs from this agent (gRPC). Port 0 takes any.
    pub listen: SocketAddr,
    /// `host:port` under which members reach `listen`; `None`: where it listens, or `worker_host` when that is
    /// everywhere.
    pub advertise: Option<String>,
    /// Where `/metrics`, `/livez` and `/readyz` are served (HTTP); `None`: nowhere.
    pub http_listen: Option<SocketAddr>,
    /// Names beside that of the node and those in `advertise` and `worker_host` by which its metrics may be called.
    pub http_names: Vec<String>,
    /// Host name or address by which workers of other nodes reach this one (`MASTER_ADDR`).
    pub worker_host: String,
    pub labels: BTreeMap<String, String>,
    pub cards: CardSource,
    /// Control group under which workers run, relative to each hierarchy's root; `None`: `tessera/<node name>`.
    pub cgroup_root: Option<String>,
    pub run_as: RunAs,
    /// Groups that every worker gets, such as those that own device files. With [`RunAs::Agent`] workers have
    /// the agent's.
    pub worker_groups: Vec<String>,
    /// What of the host is offered to workers beside the cards.
    pub host: HostOffer,
    /// Folders whose entries are data that jobs read; jobs that read them are better placed here.
    pub data_dirs: Vec<PathBuf>,
    /// How often these folders are looked into.
    pub data_scan: Duration,
    pub checkpoints: CheckpointConfig,
    /// How devices of PyTorch are served.
    pub device: DeviceConfig,
    /// How the time of cards is divided that nobody else divides.
    pub time_slicing: Terms,
    /// Who divides the time of the cards that PyTorch finds.
    pub accelerator_slicing: TimeSlicing,
    pub limits: Limits,
    pub supervisor: SupervisorCommand,
}

impl AgentConfig {
    /// A configuration with defaults for everything but the node's name, its data folder and the members.
    #[must_use]
    pub fn new(node_name: impl Into<String>, data_dir: impl Into<PathBuf>, members: Vec<String>) -> Self {
        Self {
            node_name: node_name.into(),
            data_dir: data_dir.into(),
            data_dir_moved: false,
            accept_pool: None,
            members,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            http_listen: None,
            http_names: Vec::new(),
            worker_host: "127.0.0.1".to_owned(),
            labels: BTreeMap::new(),
            cards: CardSource::default(),
            cgroup_root: None,
            run_as: RunAs::default(),
            worker_groups: Vec::new(),
            host: HostOffer::default(),
            data_dirs: Vec::new(),
            data_scan: Duration::from_secs(30),
            checkpoints: CheckpointConfig::default(),
            device: DeviceConfig::default(),
            time_slicing: Terms::default(),
            accelerator_slicing: TimeSlicing::Device,
            limits: Limits::default(),
            supervisor: SupervisorCommand::default(),
        }
    }

    /// The control group under which this node's workers run.
    #[must_use]
    pub fn effective_cgroup_root(&self) -> String {
        self.cgroup_root.clone().unwrap_or_else(|| format!("{GROUP_OF_ALL}/{}", self.node_name))
    }

    /// The names by which people reach it.
    pub(crate) fn names(&self) -> KnownNames {
        let advertised = self.advertise.as_deref().map(|address| name_of(address).to_owned());
        let own = [self.node_name.clone(), self.worker_host.clone()].into_iter().chain(advertised);
        KnownNames::of(own.chain(self.http_names.iter().cloned()))
    }

    /// Checks everything that can be checked without starting.
    ///
    /// # Errors
    /// The first field that cannot work, with what to write instead.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_name(&self.node_name)?;
        if self.data_dir.as_os_str().is_empty() {
            return Err(ConfigError::new("data_dir", "it is empty", "name a folder that outlives reboots"));
        }
        if self.members.is_empty() {
            return Err(ConfigError::new("members", "no member is named", "give at least one `host:port`"));
        }
        for member in &self.members {
            address_in("members", member)?;
        }
        if let Some(address) = &self.advertise {
            let refuse = |error: FieldError| told_so("advertise", &error, "write it as `host:port`");
            fields::address("advertise", address).map_err(refuse)?;
        }
        let refuse = |error: FieldError| told_so("worker_host", &error, "name the host as other nodes reach it");
        fields::host("worker_host", &self.worker_host).map_err(refuse)?;
        if self.labels.keys().any(|key| key.trim().is_empty()) {
            return Err(ConfigError::new("labels", "a label has no name", "write labels as `name=value`"));
        }
        if let Some(label) = self.labels.keys().find(|key| OWN_LABELS.contains(&key.as_str())) {
            let problem = format!("`{label}` is a label that agents set by themselves");
            return Err(ConfigError::new(
                "labels",
                problem,
                "leave it out; `[device]` is what makes a node serve devices, and CRIU what makes it dump programs",
            ));
        }
        self.device.validate()?;
        if self.cards == CardSource::Accelerators && self.device.python.is_none() {
            return Err(ConfigError::new(
                "cards",
                "accelerators are found by a Python with PyTorch, and none is named",
                "name it as `python` in the section `[device]`",
            ));
        }
        if let Some(criu) = self.checkpoints.criu.as_ref().filter(|criu| !criu.is_absolute()) {
            let problem = format!("`{}` is not an absolute path", criu.display());
            return Err(ConfigError::new("checkpoints.criu", problem, "name the program from the root on"));
        }
        if let Some(folder) = self.data_dirs.iter().find(|folder| !folder.is_absolute()) {
            let problem = format!("`{}` is not an absolute path", folder.display());
            return Err(ConfigError::new("data_dirs", problem, "name folders from the root on"));
        }
        if self.data_scan < Duration::from_millis(100) {
            return Err(ConfigError::new("data_scan", "it is below 100ms", "look at most ten times a second"));
        }
        check_cgroup_root(&self.effective_cgroup_root())?;
        self.time_slicing.validate()?;
        if self.run_as != RunAs::Agent && !geteuid().is_root() {
            return Err(ConfigError::new(
                "run_as",
                "only root can give workers identities of their own",
                "run the agent as root, or set it to `agent`",
            ));
        }
        self.limits.validate()
    }
}

impl Limits {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.output_file_bytes < 4096 {
            return Err(ConfigError::new("output_file_bytes", "it is below 4096", "give at least 4096 bytes"));
        }
        if self.output_files == 0 {
            return Err(ConfigError::new("output_files", "it is zero", "keep at least one file"));
        }
        if self.ended.bytes < 1 << 20 {
            return Err(ConfigError::new("ended_disk", "it is below 1MiB", "leave room for the output of some jobs"));
        }
        if self.ended.least_free > 50 {
            let problem = "it is above 50";
            return Err(ConfigError::new(
                "ended_least_free",
                problem,
                "give the percentage that is to be free, such as 5",
            ));
        }
        if self.kill_confirmation.is_zero() {
            return Err(ConfigError::new("kill_confirmation", "it is zero", "give a kill at least some milliseconds"));
        }
        if self.longest_lease < Duration::from_secs(1) {
            return Err(ConfigError::new("longest_lease", "it is below 1s", "give more than the pool's kill_after"));
        }
        if self.seats.connections == 0 || self.log_streams == 0 {
            return Err(ConfigError::new("limits", "`connections` or `log_streams` is zero", "let in at least one"));
        }
        if self.seats.silence < Duration::from_secs(1) {
            return Err(ConfigError::new("silence", "it is below 1s", "give callers a second to say something"));
        }
        if !(1..=MOST_PROCESSES).contains(&self.processes_per_worker) {
            let problem = format!("it is not between 1 and {MOST_PROCESSES}");
            return Err(ConfigError::new(
                "processes_per_worker",
                problem,
                "leave it out, or give at least some hundreds",
            ));
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), ConfigError> {
    let fits = !name.is_empty()
        && name.len() <= MAX_NAME_LENGTH
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if fits {
        return Ok(());
    }
    Err(ConfigError::new(
        "node_name",
        format!("`{name}` is not a node name"),
        "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit, 253 at most",
    ))
}

/// Reads an address that an operator wrote.
pub(crate) fn address_in(field: &'static str, address: &str) -> Result<Address, ConfigError> {
    let refuse = |BadAddress { got, problem }| {
        ConfigError::new(field, format!("`{got}` is not an address: {problem}"), "write it as `host:port`")
    };
    address.parse().map_err(refuse)
}

/// A field of which the leader is told, and which it would refuse.
fn told_so(field: &'static str, error: &FieldError, remedy: &str) -> ConfigError {
    ConfigError::new(field, format!("it {}", error.problem), remedy)
}

fn check_cgroup_root(root: &str) -> Result<(), ConfigError> {
    let fits = !root.is_empty() && root.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if fits {
        return Ok(());
    }
    Err(ConfigError::new(
        "cgroup_root",
        format!("`{root}` is not a path below the root of the control groups"),
        "write it as `name/name`, without a leading `/` and without `..`",
    ))
}

/// A field of a configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the agent's configuration cannot be used: {problem}; {remedy}")]
pub struct ConfigError {
    pub field: &'static str,
    pub problem: String,
    pub remedy: String,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { field, problem: problem.into(), remedy: remedy.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AgentConfig {
        AgentConfig::new("node-a", "/var/lib/tessera", vec!["127.0.0.1:7400".to_owned()])
    }

    fn refused_field(change: impl FnOnce(&mut AgentConfig)) -> Option<&'static str> {
        let mut config = config();
        change(&mut config);
        config.validate().err().map(|error| error.field)
    }

    #[test]
    fn defaults_are_usable() {
        assert_eq!(config().validate(), Ok(()));
        assert_eq!(config().effective_cgroup_root(), "tessera/node-a");
    }

    #[test]
    fn every_unusable_field_is_named() {
        assert_eq!(refused_field(|c| c.node_name.clear()), Some("node_name"));
        assert_eq!(refused_field(|c| c.node_name = "../up".to_owned()), Some("node_name"));
        assert_eq!(refused_field(|c| c.data_dir = PathBuf::new()), Some("data_dir"));
        assert_eq!(refused_field(|c| c.members.clear()), Some("members"));
        assert_eq!(refused_field(|c| c.members = vec!["nowhere".to_owned()]), Some("members"));
        assert_eq!(refused_field(|c| c.members = vec!["host:0".to_owned()]), Some("members"));
        for address in [":1", "node-a:1 ", "http://node-a:1"] {
            assert_eq!(refused_field(|c| c.advertise = Some(address.to_owned())), Some("advertise"), "{address}");
        }
        for host in ["", " ", "node-a "] {
            assert_eq!(refused_field(|c| c.worker_host = host.to_owned()), Some("worker_host"), "{host}");
        }
        assert_eq!(refused_field(|c| c.cgroup_root = Some("/abs".to_owned())), Some("cgroup_root"));
        assert_eq!(refused_field(|c| c.cgroup_root = Some("a/../b".to_owned())), Some("cgroup_root"));
        let own = BTreeMap::from([("tessera.device".to_owned(), "mine".to_owned())]);
        assert_eq!(refused_field(|c| c.labels = own), Some("labels"));
        assert_eq!(refused_field(|c| c.checkpoints.criu = Some("criu".into())), Some("checkpoints.criu"));
        assert_eq!(refused_field(|c| c.device.python = Some("python3".into())), Some("device.python"));
        assert_eq!(refused_field(|c| c.device.build = Some("torch".into())), Some("device.build"));
        assert_eq!(refused_field(|c| c.device.start_within = Duration::ZERO), Some("device.start_within"));
        assert_eq!(refused_field(|c| c.data_dirs = vec![PathBuf::from("data")]), Some("data_dirs"));
        assert_eq!(refused_field(|c| c.data_scan = Duration::ZERO), Some("data_scan"));
        assert_eq!(refused_field(|c| c.time_slicing.quantum = Duration::ZERO), Some("time_slicing.quantum"));
        assert_eq!(refused_field(|c| c.time_slicing.round = Duration::from_secs(60)), Some("time_slicing.round"));
        assert_eq!(refused_field(|c| c.limits.output_files = 0), Some("output_files"));
        assert_eq!(refused_field(|c| c.limits.output_file_bytes = 1), Some("output_file_bytes"));
        assert_eq!(refused_field(|c| c.limits.ended.bytes = 0), Some("ended_disk"));
        assert_eq!(refused_field(|c| c.limits.ended.least_free = 95), Some("ended_least_free"));
        for most in [0, u64::MAX] {
            assert_eq!(refused_field(|c| c.limits.processes_per_worker = most), Some("processes_per_worker"));
        }
        assert_eq!(refused_field(|c| c.limits.log_streams = 0), Some("limits"));
        assert_eq!(refused_field(|c| c.limits.seats.silence = Duration::ZERO), Some("silence"));
    }
}
