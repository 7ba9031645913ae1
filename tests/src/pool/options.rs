//! The options of a test's pool.

use std::path::PathBuf;

/// One simulated card: kind and TFLOPS.
pub type CardSpec = (&'static str, u32);

/// The reference pool of the patent (P8): 200 blocks on four nodes.
pub const REFERENCE_POOL: [&[CardSpec]; 4] = [
    &[("gpu", 9), ("gpu", 9), ("npu", 20), ("fpga", 25)],
    &[("gpu", 10), ("gpu", 10), ("npu", 18), ("npu", 18)],
    &[("npu", 3), ("fpga", 8), ("fpga", 8), ("fpga", 7)],
    &[("gpu", 14), ("gpu", 14), ("npu", 15), ("fpga", 12)],
];

/// The kind of pool that a test wants.
#[derive(Clone, Debug)]
pub struct Options {
    pub members: usize,
    /// The cards of each node.
    pub nodes: Vec<Vec<CardSpec>>,
    /// Further properties of each card, in lines of the inventory.
    pub card_lines: &'static str,
    /// Lease times in milliseconds: heartbeat, stop, kill, regrant.
    pub lease: [u64; 4],
    /// Data folders of members by place, where a test brings its own file system.
    pub member_folders: Vec<(usize, PathBuf)>,
    /// The same of agents.
    pub agent_folders: Vec<(usize, PathBuf)>,
    /// Address on which members serve.
    pub host: &'static str,
    /// The node, by place, that lives in another network namespace, and the namespace's file.
    pub far_node: Option<(usize, PathBuf)>,
    /// Nodes whose cards are the processors of this machine, after the others.
    pub local_nodes: usize,
    /// Arguments of `cluster init` beside the members.
    pub init: Vec<&'static str>,
    /// True if each node registers before the next one starts, so that blocks are numbered in the order given.
    pub in_order: bool,
    /// Further arguments of members, by place.
    pub member_arguments: Vec<(usize, &'static str)>,
    /// Further text of the configuration files of members.
    pub member_config: String,
    /// The text of the configuration files of agents; [`super::PROGRAMS`] stands for the folder of the programs.
    pub agent_config: String,
    /// Variables of members and agents.
    pub environment: Vec<(&'static str, String)>,
    /// Variables with which members, agents and commands reach a bucket.
    pub bucket: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            members: 3,
            nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("gpu", 8)]],
            card_lines: "",
            lease: [200, 2_000, 3_000, 5_000],
            member_folders: vec![],
            agent_folders: vec![],
            host: "127.0.0.1",
            far_node: None,
            local_nodes: 0,
            init: vec![],
            in_order: false,
            member_arguments: vec![],
            member_config: String::new(),
            agent_config: String::new(),
            environment: vec![],
            bucket: vec![],
        }
    }
}

/// Lease times as the command line wants them.
pub(super) fn lease_options([heartbeat, stop, kill, regrant]: [u64; 4]) -> [String; 4] {
    [
        format!("--lease-heartbeat={heartbeat}ms"),
        format!("--lease-stop-after={stop}ms"),
        format!("--lease-kill-after={kill}ms"),
        format!("--lease-regrant-after={regrant}ms"),
    ]
}
