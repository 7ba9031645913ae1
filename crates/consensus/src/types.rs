//! The types that openraft is instantiated with. Nothing of this leaves the crate.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use openraft::entry::{RaftEntry, RaftPayload};
use openraft::raft::responder::Responder;
use openraft::vote::leader_id_std::{CommittedLeaderId, LeaderId};

use crate::codec;
use crate::ids::{Member, MemberId};
use crate::machine::{LogIndex, LogTime, Term};

/// Commands that share one entry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Log time when the leader proposed it.
    pub time: LogTime,
    /// The commands in the order of their arrival.
    pub commands: Vec<Bytes>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commands at {}", self.commands.len(), self.time.0)
    }
}

/// The result of applying an entry: the machine's outcomes, whatever their type, for the proposer that knows it.
pub(crate) struct Reply(Mutex<Option<Box<dyn Any + Send>>>);

impl Reply {
    pub(crate) fn none() -> Self {
        Reply(Mutex::new(None))
    }

    pub(crate) fn of<T: Send + 'static>(outcomes: T) -> Self {
        Reply(Mutex::new(Some(Box::new(outcomes))))
    }

    pub(crate) fn into<T: 'static>(self) -> Option<T> {
        let erased = self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
        erased.downcast().ok().map(|outcomes| *outcomes)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Delivers an answer by calling a function: no task has to wake up between the apply and the callers.
pub(crate) struct Deliver<T>(pub Box<dyn FnOnce(T) + Send>);

impl<T: Send + 'static> Responder<TypeConfig, T> for Deliver<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// The data that the membership has on a member besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub name: String,
    pub address: String,
}

impl Place {
    pub(crate) fn of(member: &Member) -> Self {
        Place { name: member.name.clone(), address: member.address.clone() }
    }

    pub(crate) fn member(&self, id: u64) -> Member {
        Member { id: MemberId(id), name: self.name.clone(), address: self.address.clone() }
    }
}

/// The leader that a refusal points to.
pub(crate) fn leader_of(forward: &openraft::errors::ForwardToLeader<TypeConfig>) -> Option<Member> {
    Some(forward.leader_node.as_ref()?.member(forward.leader_id?))
}

pub(crate) type Membership = openraft::Membership<u64, Place>;

/// The content of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Blank,
    Membership(Membership),
    Batch(Batch),
}

/// An entry's content together with its encoded form, which is made once and then shared by the disk and every
/// follower.
#[derive(Clone)]
pub(crate) struct Payload(Arc<Shared>);

struct Shared {
    content: Content,
    encoded: OnceLock<Bytes>,
}

impl Payload {
    pub(crate) fn new(content: Content) -> Self {
        Payload(Arc::new(Shared { content, encoded: OnceLock::new() }))
    }

    pub(crate) fn decoded(content: Content, encoded: Bytes) -> Self {
        Payload(Arc::new(Shared { content, encoded: OnceLock::from(encoded) }))
    }

    pub(crate) fn content(&self) -> &Content {
        &self.0.content
    }

    pub(crate) fn encoded(&self) -> Bytes {
        self.0.encoded.get_or_init(|| codec::encode_content(&self.0.content)).clone()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.0.content == other.0.content
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.content.fmt(f)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.content {
            Content::Blank => f.write_str("blank"),
            Content::Membership(membership) => membership.fmt(f),
            Content::Batch(batch) => batch.fmt(f),
        }
    }
}

impl RaftPayload for Payload {
    type D = Batch;
    type NodeId = u64;
    type Node = Place;

    fn blank() -> Self {
        Payload::new(Content::Blank)
    }

    fn with_normal(self, data: Batch) -> Self {
        Payload::new(Content::Batch(data))
    }

    fn with_membership(self, membership: Membership) -> Self {
        Payload::new(Content::Membership(membership))
    }

    fn get_membership(&self) -> Option<Membership> {
        match &self.0.content {
            Content::Membership(membership) => Some(membership.clone()),
            Content::Blank | Content::Batch(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub id: LogId,
    pub payload: Payload,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.payload)
    }
}

impl RaftEntry for Entry {
    type CommittedLeaderId = CommittedLeaderId<u64>;
    type Payload = Payload;

    fn new(id: LogId, payload: Payload) -> Self {
        Entry { id, payload }
    }

    fn log_id_parts(&self) -> (&CommittedLeaderId<u64>, u64) {
        (&self.id.leader_id, self.id.index)
    }

    fn set_log_id(&mut self, new: LogId) {
        self.id = new;
    }

    fn get_membership(&self) -> Option<Membership> {
        self.payload.get_membership()
    }
}

/// Under simulation the raft core draws its randomness from the seed of the task scope it runs in.
#[cfg(feature = "simulation")]
pub(crate) type Runtime = openraft_rt::deterministic_rng::DeterministicRng<openraft_rt_tokio::TokioRuntime>;
#[cfg(not(feature = "simulation"))]
pub(crate) type Runtime = openraft_rt_tokio::TokioRuntime;

/// Standard Raft (at most one leader per term) over our own entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Batch;
    type R = Reply;
    type NodeId = u64;
    type Node = Place;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = Deliver<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type LogId = openraft::LogId<CommittedLeaderId<u64>>;
pub(crate) type Vote = openraft::Vote<LeaderId<u64, u64>>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Snapshot<S> = openraft::type_config::alias::SnapshotOf<TypeConfig, S>;
pub(crate) type RaftMetrics = openraft::RaftMetrics<TypeConfig>;
pub(crate) type RoleMetrics = openraft::metrics::RaftServerMetrics<TypeConfig>;

pub(crate) fn log_id(term: Term, index: LogIndex) -> LogId {
    LogId { leader_id: CommittedLeaderId::new(term.0), index: index.0 }
}

pub(crate) fn term_of(id: &LogId) -> Term {
    Term(id.leader_id.term)
}

pub(crate) fn index_of(id: Option<&LogId>) -> LogIndex {
    LogIndex(id.map_or(0, |id| id.index))
}
