//! The facts that were observed. Nothing here is an opinion.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Something that was looked at: what it is, or why it could not be seen.
pub type Seen<T> = Result<T, String>;

/// All that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Files of configuration that cannot be used, and why.
    pub unusable: Vec<(String, String)>,
    /// The member of this host, as it is configured.
    pub member: Option<MemberSettings>,
    /// The agent of this host, as it is configured.
    pub agent: Option<AgentSettings>,
    pub clock: Seen<ClockFacts>,
    pub folders: Vec<FolderFacts>,
    /// The addresses that the member and the agent listen at.
    pub ports: Vec<PortFacts>,
    /// The way to each member.
    pub ways: Vec<WayFacts>,
    pub cluster: ClusterFacts,
    pub kernel: Seen<KernelFacts>,
    /// The containment that workers can be given here; absent on a host without an agent.
    pub containment: Option<Seen<ContainmentFacts>>,
    /// The limits of this process, or of the one that runs.
    pub limits: Seen<LimitFacts>,
    pub memory: Seen<MemoryFacts>,
    pub devices: Seen<DeviceFacts>,
}

/// The settings of a member that are judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSettings {
    /// Bytes that must be free.
    pub disk_reserve_bytes: u64,
    /// Connections of clients that it keeps.
    pub connections: usize,
    /// Pause between heartbeats of a leader, in milliseconds.
    pub heartbeat_ms: u64,
    /// Least silence after which another member stands for election, in milliseconds.
    pub election_ms: u64,
}

/// The settings of an agent that are judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    pub node: String,
    /// The cards that it offers, in words.
    pub cards: Seen<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// Tells whether the kernel regards the clock as synchronised.
    pub synchronised: bool,
    /// The largest error of the clock that the kernel reports, in microseconds.
    pub max_error_us: i64,
    /// The offsets that `/proc/self/timens_offsets` adds to the clocks of this process, in seconds: monotonic, boot
    /// time.
    pub namespace_offsets: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FolderFacts {
    /// The owner: `member` or `agent`.
    pub of: String,
    pub path: PathBuf,
    /// Tells whether the folder exists; while it does not, its nearest parent is examined.
    pub exists: bool,
    /// The file system.
    pub room: Seen<RoomFacts>,
    /// The time that writing and syncing four KiB took, in microseconds, each time.
    pub fsync_us: Seen<Vec<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomFacts {
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// Bytes that may still be written.
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Files that may still be made.
    pub free_files: u64,
    /// 0 where there is no limit.
    pub total_files: u64,
}

/// The address that something listens at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFacts {
    /// The listener: `member`, `member http`, `agent http`.
    pub of: String,
    pub address: String,
    pub answers: bool,
    /// Tells whether this process could listen there.
    pub bindable: Seen<()>,
}

/// The way to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayFacts {
    /// The member.
    pub address: String,
    /// The time that its name took to be resolved, in microseconds.
    pub resolved_us: Seen<u64>,
    /// The least of several round trips, in microseconds.
    pub round_trip_us: Seen<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// Tells whether mutations are accepted.
    pub writable: bool,
    /// Members with a vote.
    pub voters: usize,
    /// Release level in force.
    pub level: u32,
    /// Each member that was told of, or found.
    pub members: Vec<MemberFacts>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// The address that it serves at.
    pub address: String,
    /// The reason for which it did not answer.
    pub error: Option<String>,
    pub role: String,
    /// Its release.
    pub version: String,
    /// The highest release level that it can apply.
    pub highest_level: u32,
    /// Last entry that it knows to be committed.
    pub committed_index: u64,
    /// Last entry that it applied.
    pub applied_index: u64,
    /// Seconds by which its clock is ahead of the others'.
    pub clock_offset_seconds: Option<f64>,
    /// True if that offset is too large.
    pub clock_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    pub release: String,
    /// Tells whether `pidfd_open` works.
    pub pidfd: Seen<()>,
    /// User namespaces that may be made; absent: not built in.
    pub user_namespaces: Option<u64>,
    /// The actions that a filter of system calls may take; empty: there are no filters.
    pub seccomp_actions: String,
    /// True if this process can never gain privileges.
    pub no_new_privileges: bool,
    /// Bits of entropy.
    pub entropy: Option<u64>,
    /// The choice of huge pages that is in force.
    pub huge_pages: Option<String>,
}

/// The containment that workers can be given, as the agent's own code tried it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainmentFacts {
    /// Tells whether a whole tree of processes ends with its supervisor.
    pub whole_trees_end: Seen<()>,
    /// The hierarchies that are mounted, in words.
    pub hierarchies: String,
    /// Tells whether the processes of a worker can be tracked by a control group.
    pub tracked: bool,
    /// The limits that cannot be enforced, in sentences.
    pub missing: Vec<String>,
    /// Files of the group that was made, of those that are of use.
    pub group_files: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFacts {
    /// The process whose limits these are, in words.
    pub of: String,
    /// Files that may be open; none: no limit.
    pub open_files: Option<u64>,
    /// Processes of the user; none: no limit.
    pub processes: Option<u64>,
    /// Bytes that may be locked; none: no limit.
    pub locked_bytes: Option<u64>,
}

/// The host's memory, in KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryFacts {
    /// The memory that could be given to processes now.
    pub available_kib: u64,
    pub total_kib: u64,
    pub swap_kib: u64,
    pub swap_used_kib: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Accelerators on the PCI bus.
    pub accelerators: Vec<Accelerator>,
}

/// An accelerator on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// PCI address.
    pub address: String,
    /// PCI id of its maker, such as `0x10de`.
    pub vendor: String,
    /// The kernel's driver that has it.
    pub driver: Option<String>,
    /// The maker's library for programs.
    pub library: Option<String>,
}
