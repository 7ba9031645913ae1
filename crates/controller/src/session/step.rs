//! The events of a session, and the actions that it requests.

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
    /// The outcome of a proposal of the session.
    Proposed(Step, Result<Vec<Committed>, ProposeError>),
    /// The timings of the lease that answers a heartbeat, or the reason why none is granted.
    Leased(Heartbeat, Result<LeaseTimings, Withheld>),
    /// The ledger changed for this node.
    Changed(Concern),
    /// True if every lease of the node's earlier boot is over.
    Outlived(bool),
    /// A heartbeat was heard: what is the node to do with its checkpoints? This is what it knows nothing of by itself.
    Tend(Elsewhere),
    /// A pause is over.
    Resumed,
}

/// The subject of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The registration of its node.
    Register,
    /// The report of its agent.
    Report,
    /// That its node is back.
    Return,
    /// The checkpoints that its node keeps.
    Kept,
}

/// An action for the shell of the session.
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
