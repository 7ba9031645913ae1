//! What can happen to a session, and what it has done about it.

use std::time::Duration;

use tessera_api::Refusal;
use tessera_api::v1::SessionResponse;
use tessera_ledger::{LeaseTimings, NodeId, Request};

use super::concern::Concern;
use super::kept::Elsewhere;
use super::messages::{Heard, Heartbeat, Measured};
use crate::lifecycle::leases::Withheld;
use crate::pool::{Committed, ProposeError};

/// Everything that can happen to a session.
#[derive(Debug)]
pub(crate) enum Event {
    Heard(Heard),
    /// What the session proposed is committed, or is not.
    Proposed(Step, Result<Vec<Committed>, ProposeError>),
    /// Whether the heartbeat may be answered by a lease, and under which timings.
    Leased(Heartbeat, Result<LeaseTimings, Withheld>),
    /// The ledger changed for this node.
    Changed(Concern),
    /// Whether every lease of the node's earlier boot is over.
    Outlived(bool),
    /// A heartbeat was heard: what is the node to do with its checkpoints? This is what it knows nothing of by itself.
    Tend(Elsewhere),
    /// A pause is over.
    Resumed,
}

/// What a session proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The registration of its node.
    Register,
    /// What its agent reported.
    Report,
    /// That its node is back.
    Return,
    /// What its node keeps of checkpoints.
    Kept,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Tell the agent.
    Send(Box<SessionResponse>),
    /// Propose these, in this order, and tell what came of them.
    Propose(Step, Vec<Request>),
    /// The agent speaks from another boot than before: are all leases of the earlier one over?
    Outlive(NodeId),
    /// The session speaks for this node from now on: take its place in the directory.
    Meet(NodeId),
    /// Have a quorum confirm this leader, and grant a lease to the node if it may have one.
    Confirm(NodeId, Heartbeat),
    /// Keep what the agent measured.
    Note(NodeId, Measured),
    /// Come back after a pause.
    Pause(Duration),
    Close(Refusal),
}
