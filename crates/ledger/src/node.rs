//! Nodes: hosts with an agent and zero or more cards.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::HostCapacity;
use crate::ids::NodeId;
use crate::units::{BlockNumber, Epoch, LogTime};

/// Whether the pool trusts that it hears from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// Its agent has a session, or lost it so recently that its lease may still run.
    Ready,
    /// Its lease is provably over; nothing is granted on it until it returns and has reconciled.
    Lost,
    /// Declared dead by an operator; its name may be used by another machine.
    Forgotten,
}

/// Whether new work may go to the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Eligibility {
    #[default]
    Eligible,
    /// No new allocations; what runs goes on.
    Cordoned,
    /// No new allocations; what runs is asked to leave; blocks go offline as they become free.
    Draining,
}

/// Which start of an agent, in which boot of its host, speaks. Empty: an agent of an earlier release, which did
/// not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentStart {
    /// The boot of the host: with another one, what ran before is gone, or this is another host with a copy of
    /// the folder.
    pub boot_id: String,
    /// Drawn at every start of the agent: two agents with one identity differ in it.
    pub nonce: String,
}

/// What of a worker its host ends by itself when the worker's supervisor dies (law L2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Containment {
    /// Every process, whatever it forked.
    Whole,
    /// Its first process; others may go on. The silence of such a node is never taken for a stop of its work.
    Partial {
        /// Why the host gives no more.
        missing: String,
    },
}

/// What an agent says of its node when it registers (P3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeDescription {
    /// Unique name in the pool.
    pub name: String,
    /// Identity of the agent's data folder: the name belongs to the first identity that used it.
    pub uid: String,
    /// Raised at every start of the agent.
    pub incarnation: u64,
    pub agent_version: String,
    /// Where members read logs, as `host:port`.
    pub address: String,
    /// How workers of other nodes reach this one.
    pub worker_host: String,
    /// Labels that jobs can ask for.
    pub labels: BTreeMap<String, String>,
    /// What the host offers beside its cards; `None`: not known, and not limited.
    pub host: Option<HostCapacity>,
    /// Names of the data on its disks: data sets, model weights, images.
    pub cached: BTreeSet<String>,
    pub start: AgentStart,
    /// What ends by itself with a supervisor.
    pub containment: Containment,
}

impl NodeDescription {
    /// The value of a label; the key `node` names the node itself ([`NODE_KEY`]).
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        if key == NODE_KEY { Some(&self.name) } else { self.labels.get(key).map(String::as_str) }
    }

    /// Whether it carries all of these labels.
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
    /// What the agent said last.
    pub description: NodeDescription,
    pub state: NodeState,
    /// Whether new work may go to it.
    pub eligibility: Eligibility,
    /// Why an operator changed the eligibility; empty when none did.
    pub eligibility_reason: String,
    /// When what is left on it is suspended, if it is drained by some time; until then its jobs are moved away.
    pub drain_by: Option<LogTime>,
    /// Number of its first block (P2): handed out in registration order.
    pub base: BlockNumber,
    pub cards: u32,
    /// Index of the entry of the last registration, loss or return: fences reports of older sessions.
    pub epoch: Epoch,
    /// When it last changed state.
    pub changed_at: LogTime,
    /// Workers in a row that could not be started for a reason that lies in the node.
    pub faults: u32,
}

/// Workers in a row that a node fails to start for reasons of its own before it gets no new work.
pub const FAULTS_UNTIL_CORDON: u32 = 3;

impl Node {
    /// Whether blocks of the node may be granted.
    #[must_use]
    pub fn grantable(&self) -> bool {
        self.state == NodeState::Ready && self.eligibility == Eligibility::Eligible
    }

    /// Whether jobs have to leave the node now.
    #[must_use]
    pub fn must_be_left(&self, now: LogTime) -> bool {
        self.eligibility == Eligibility::Draining && self.drain_by.is_none_or(|by| by <= now)
    }
}
