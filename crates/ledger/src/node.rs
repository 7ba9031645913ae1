//! Nodes: hosts with an agent and zero or more cards.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::HostCapacity;
use crate::ids::NodeId;
use crate::units::{BlockNumber, Epoch, LogTime};

/// The state of the pool's contact with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// Its agent has a session, or lost it so recently that its lease may still run.
    Ready,
    /// Its lease is provably over; nothing is granted on it until it returns and has reconciled.
    Lost,
    /// Declared dead by an operator; its name may be used by another machine.
    Forgotten,
}

/// The eligibility of a node for new work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Eligibility {
    #[default]
    Eligible,
    /// No new allocations; what runs goes on.
    Cordoned,
    /// No new allocations; what runs is asked to leave; blocks go offline as they become free.
    Draining,
}

/// Identity of one start of an agent, in one boot of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentStart {
    /// The boot of the host: with another one, what ran before is gone, or this is another host with a copy of
    /// the folder.
    pub boot_id: String,
    /// Drawn at every start of the agent: two agents with one identity differ in it.
    pub nonce: String,
}

/// The processes of a worker that its host ends by itself when the worker's supervisor dies (law L2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Containment {
    /// Every process, whatever it forked.
    Whole,
    /// Its first process; others may go on. The silence of such a node is never taken for a stop of its work.
    Partial {
        /// The reason why the host guarantees no more.
        missing: String,
    },
}

/// An agent's description of its node when it registers (P3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeDescription {
    /// Unique name in the pool.
    pub name: String,
    /// Identity of the agent's data folder: the name belongs to the first identity that used it.
    pub uid: String,
    /// Raised at every start of the agent.
    pub incarnation: u64,
    pub agent_version: String,
    /// Address at which members read logs, as `host:port`.
    pub address: String,
    /// Host under which workers of other nodes reach this one.
    pub worker_host: String,
    /// Labels that jobs can ask for.
    pub labels: BTreeMap<String, String>,
    /// Resources that the host offers besides its cards; `None`: not known, and not limited.
    pub host: Option<HostCapacity>,
    /// Names of the data on its disks: data sets, model weights, images.
    pub cached: BTreeSet<String>,
    pub start: AgentStart,
    /// The processes of a worker that surely end with its supervisor.
    pub containment: Containment,
}

impl NodeDescription {
    /// The value of a label; the key `node` names the node itself ([`NODE_KEY`]).
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        if key == NODE_KEY { Some(&self.name) } else { self.labels.get(key).map(String::as_str) }
    }

    /// Returns whether the node carries all of these labels.
    #[must_use]
    pub fn carries<'a>(&self, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
        labels.into_iter().all(|(key, value)| self.label(key) == Some(value))
    }
}

/// The label key that every node has without carrying it: its value is the node's name.
pub const NODE_KEY: &str = "node";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub id: NodeId,
    /// The agent's last description of the node.
    pub description: NodeDescription,
    pub state: NodeState,
    /// Eligibility for new work.
    pub eligibility: Eligibility,
    /// The reason for the eligibility, of an operator or of the ledger where it cordoned the node; empty when none was
    /// given.
    pub eligibility_reason: String,
    /// The time until which the jobs of a draining node are moved away; the jobs that are left then are suspended.
    /// `None`: no such time was given.
    pub drain_by: Option<LogTime>,
    /// Number of its first block (P2): handed out in registration order.
    pub base: BlockNumber,
    pub cards: u32,
    /// Index of the entry of the last registration, loss or return: fences reports of older sessions.
    pub epoch: Epoch,
    /// The time of its last change of state or eligibility.
    pub changed_at: LogTime,
    /// Workers in a row that could not be started for a reason that lies in the node.
    pub faults: u32,
}

/// Workers in a row that a node fails to start for reasons of its own before it gets no new work.
pub const FAULTS_UNTIL_CORDON: u32 = 3;

impl Node {
    /// Returns whether blocks of the node may be granted.
    #[must_use]
    pub fn grantable(&self) -> bool {
        self.state == NodeState::Ready && self.eligibility == Eligibility::Eligible
    }

    /// Returns whether jobs have to leave the node now.
    #[must_use]
    pub fn must_be_left(&self, now: LogTime) -> bool {
        self.eligibility == Eligibility::Draining && self.drain_by.is_none_or(|by| by <= now)
    }
}
