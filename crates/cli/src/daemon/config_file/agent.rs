//! The configuration file of an agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::Deserialize;
use tessera_agent::AgentConfig;
use tessera_agent::worker::UserIds;
use tessera_api::job_file::units::{Cpus, Memory, Size, Time};
use tessera_devices::TimeSlicing;

use super::{LogSection, set};
use crate::args::RunAsWord;

/// The file of an agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFile {
    pub name: Option<String>,
    pub data_dir: Option<PathBuf>,
    #[serde(default)]
    pub server: Vec<String>,
    pub listen: Option<SocketAddr>,
    pub advertise: Option<String>,
    pub http: Option<SocketAddr>,
    http_names: Option<Vec<String>>,
    pub worker_host: Option<String>,
    pub cards: Option<CardsWord>,
    pub inventory: Option<PathBuf>,
    cgroup_root: Option<String>,
    pub run_as: Option<RunAsWord>,
    pub user_ids: Option<UserIds>,
    pub least_uid: Option<u32>,
    #[serde(default)]
    pub worker_groups: Vec<String>,
    #[serde(default)]
    data_dirs: Vec<PathBuf>,
    data_scan: Option<Time>,
    #[serde(default)]
    host: HostSection,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub log: LogSection,
    #[serde(default)]
    checkpoints: CheckpointSection,
    #[serde(default)]
    device: DeviceSection,
    #[serde(default)]
    time_slicing: TimeSlicingSection,
    #[serde(default)]
    limits: LimitsSection,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeSlicingSection {
    round: Option<Time>,
    quantum: Option<Time>,
    accelerators: Option<TimeSlicing>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointSection {
    store: Option<String>,
    bytes_per_second: Option<Size>,
    criu: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceSection {
    python: Option<PathBuf>,
    build: Option<PathBuf>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    start_within: Option<Time>,
    host_lease: Option<Time>,
}

/// The source of cards that are not declared by an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardsWord {
    /// The processors of this host.
    Local,
    /// The processors of this host, and the accelerators that the Python of `[device]` finds.
    Accelerators,
    /// Nowhere.
    None,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSection {
    cpus: Option<Cpus>,
    memory: Option<Memory>,
    reserved_cpus: Option<Cpus>,
    reserved_memory: Option<Memory>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    output_file: Option<Size>,
    output_files: Option<u32>,
    output_retention: Option<Time>,
    ended_disk: Option<Size>,
    ended_least_free: Option<u8>,
    kill_confirmation: Option<Time>,
    longest_lease: Option<Time>,
    processes_per_worker: Option<u64>,
    connections: Option<usize>,
    silence: Option<Time>,
    log_streams: Option<usize>,
}

impl AgentFile {
    /// Puts what the file says, beyond what flags can say, into `config`.
    pub fn apply(&self, config: &mut AgentConfig) {
        let time = |time: Option<Time>| time.map(|time| time.0);
        if self.cgroup_root.is_some() {
            config.cgroup_root.clone_from(&self.cgroup_root);
        }
        set(&mut config.http_names, self.http_names.clone());
        config.data_dirs.clone_from(&self.data_dirs);
        set(&mut config.data_scan, time(self.data_scan));
        // `nodes` is the word for what is so when no store is named.
        config.checkpoints.store = self.checkpoints.store.clone().filter(|store| store != "nodes");
        let rate = self.checkpoints.bytes_per_second.and_then(|rate| NonZeroU64::new(rate.0));
        set(&mut config.checkpoints.bytes_per_second, rate);
        config.checkpoints.criu.clone_from(&self.checkpoints.criu);
        set(&mut config.time_slicing.round, time(self.time_slicing.round));
        set(&mut config.time_slicing.quantum, time(self.time_slicing.quantum));
        set(&mut config.accelerator_slicing, self.time_slicing.accelerators);
        config.device.python.clone_from(&self.device.python);
        config.device.build.clone_from(&self.device.build);
        config.device.environment.clone_from(&self.device.environment);
        set(&mut config.device.start_within, time(self.device.start_within));
        set(&mut config.device.host_lease, time(self.device.host_lease));
        let host = &self.host;
        config.host.cpu = host.cpus.map(|cpus| cpus.0).or(config.host.cpu);
        config.host.memory = host.memory.map(|memory| memory.0).or(config.host.memory);
        set(&mut config.host.reserved_cpu, host.reserved_cpus.map(|cpus| cpus.0));
        set(&mut config.host.reserved_memory, host.reserved_memory.map(|memory| memory.0));
        set(&mut config.limits.output_file_bytes, self.limits.output_file.map(|size| size.0));
        set(&mut config.limits.output_files, self.limits.output_files);
        config.limits.output_retention = time(self.limits.output_retention);
        set(&mut config.limits.ended.bytes, self.limits.ended_disk.map(|size| size.0));
        set(&mut config.limits.ended.least_free, self.limits.ended_least_free);
        set(&mut config.limits.kill_confirmation, time(self.limits.kill_confirmation));
        set(&mut config.limits.longest_lease, time(self.limits.longest_lease));
        set(&mut config.limits.processes_per_worker, self.limits.processes_per_worker);
        set(&mut config.limits.seats.connections, self.limits.connections);
        set(&mut config.limits.seats.silence, time(self.limits.silence));
        set(&mut config.limits.log_streams, self.limits.log_streams);
    }
}
