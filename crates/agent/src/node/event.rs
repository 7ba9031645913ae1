//! Everything that can happen to a node, and everything that it can want done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_ledger::wire::enum_from_wire;
use tessera_ledger::{MilliTflops, PartKey, Precision, SavedPart};

use super::readings::Readings;
use crate::boot::BootTime;
use crate::supervisor::status::{Cause, Status};
use crate::worker::{Fence, Lease, StopPolicy, Term, WorkerId};

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// The leader is about to be looked for: what is to be said to it?
    HelloWanted,
    FromLeader(Box<wire::SessionResponse>),
    /// The search was in vain, or the session ended, for whatever reason.
    SessionClosed,
    HeartbeatDue,
    /// [`Effect::KeepTerm`] is on disk.
    TermKept(Term),
    /// The status of a worker, from its supervisor or from the search for what it left.
    WorkerStatus(Box<Status>),
    /// Something came of a worker's checkpoints.
    Checkpoint(WorkerId, CheckpointNews),
    /// The checkpoints that this node keeps.
    Kept(BTreeSet<PartKey>),
    /// Checkpoints that the leader missed were looked for; these are not there.
    Absent(Vec<PartKey>),
    Measured(Box<Readings>),
    /// Cards whose health changed, all cards given.
    CardsChanged(Vec<wire::CardDescription>),
    /// The data on the node's disks changed; names of all of it.
    CachedChanged(BTreeSet<String>),
    /// The node carries these labels, too, from now on.
    Labelled(Vec<(String, String)>),
}

/// News of a worker's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointNews {
    Saved(SavedPart),
    /// Its part of the one that it was to go on from cannot be had.
    Unusable {
        /// And never can be.
        for_good: bool,
    },
    /// An image of its processes was made while it ran, or was to be.
    Snapshot {
        /// The reason that it is not kept; empty: it is.
        failed: String,
    },
}

/// The terms of the pool, as its leader gave them when it welcomed the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTerms {
    pub node_id: u32,
    /// Precision in which blocks are counted.
    pub reference: wire::Precision,
    /// Size of a block at that precision, in thousandths of a TFLOPS.
    pub block_milli_tflops: u64,
}

impl PoolTerms {
    /// Precision and size of a block; `None` when this release does not know the precision.
    pub(super) fn blocks(self) -> Option<(Precision, MilliTflops)> {
        let reference = enum_from_wire("reference_precision", self.reference.into()).ok()??;
        Some((reference, MilliTflops(self.block_milli_tflops)))
    }
}

/// A worker that is to be started.
#[derive(Clone, Debug)]
pub struct LaunchOrder {
    pub worker: WorkerId,
    /// The order as received.
    pub order: Arc<wire::WorkerOrder>,
    pub fence: Fence,
    /// Until when it may run; `None`: it needs no lease.
    pub lease: Option<Lease>,
    /// The terms of the pool, by which blocks become shares of cards.
    pub pool: PoolTerms,
}

/// Actions to perform, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Say this to the leader, once it is found.
    SayHello(Box<wire::Hello>),
    /// Send this on the session.
    Send(Box<wire::SessionRequest>),
    /// End the session, for this reason, and look for the leader again.
    CloseSession(String),
    /// The same, and look elsewhere first: its leader is silent.
    LeaveLeader(String),
    /// Warn the operator, in the log.
    Warn(String),
    /// Put the term and the pool's id on disk, then say so.
    KeepTerm {
        term: Term,
        cluster_id: String,
    },
    /// Send heartbeats that often.
    HeartbeatEvery(Duration),
    Launch(Box<LaunchOrder>),
    /// Let a worker run on.
    Renew {
        worker: WorkerId,
        fence: Fence,
        lease: Lease,
    },
    Stop {
        worker: WorkerId,
        fence: Fence,
        policy: StopPolicy,
        cause: Cause,
    },
    /// Sets whether the save that a worker leaves at its end, after it was told to stop, is kept: it is kept if the job
    /// is to resume.
    SaveAtEnd {
        worker: WorkerId,
        save: bool,
    },
    /// The slices of a worker's virtual card have other numbers or weights than before: its file is brought up to date.
    Readdress {
        worker: WorkerId,
        order: Arc<wire::WorkerOrder>,
    },
    /// Do this with the checkpoints on the node's disk.
    Tend(Box<wire::CheckpointOrders>),
    /// Look for these on the node's disk, and say which are not there.
    LookFor(Vec<wire::CheckpointSource>),
    /// Keep a worker's output that long, then remove it; nothing else of it is needed any more.
    Forget {
        worker: WorkerId,
        /// As its job says; `None`: it does not.
        retention: Option<Duration>,
    },
    /// Keep the output of jobs that do not say that long from now on, also of those that are over.
    KeepOutput(Duration),
}

/// Present time as events are taken.
pub type Now = BootTime;
