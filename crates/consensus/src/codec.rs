//! Between our types and the versioned messages of `tessera.raft.v1`: what lies on the disk and travels between
//! members.
//!
//! Reading is strict (law L7): a version this release does not know, a kind it does not know, a missing part are all
//! [`Unreadable`], and whoever reads stops the member. Openraft's own structures are never written anywhere.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use crate::ids::{ClusterId, Identity, MemberId};
use crate::machine::{LogIndex, LogTime, Term, Unreadable};
use crate::pb;
use crate::types::{Batch, Content, LogId, Membership, Place, SnapshotMeta, StoredMembership, Vote, log_id};

/// Version of every record this release writes, and the newest it reads.
pub(crate) const RECORD_VERSION: u32 = 1;

pub(crate) fn unreadable(what: impl Into<String>) -> Unreadable {
    Unreadable { what: what.into() }
}

fn decode<M: Message + Default>(what: &str, bytes: Bytes) -> Result<M, Unreadable> {
    M::decode(bytes).map_err(|error| unreadable(format!("{what} is not a valid record ({error})")))
}

fn check_version(what: &str, version: u32) -> Result<(), Unreadable> {
    if version == RECORD_VERSION {
        return Ok(());
    }
    Err(unreadable(format!("{what} is in format version {version}, this release reads version {RECORD_VERSION}")))
}

pub(crate) fn log_id_to_pb(id: &LogId) -> pb::LogId {
    pb::LogId { term: id.leader_id.term, index: id.index }
}

pub(crate) fn log_id_from_pb(id: pb::LogId) -> LogId {
    log_id(Term(id.term), LogIndex(id.index))
}

pub(crate) fn encode_content(content: &Content) -> Bytes {
    let kind = match content {
        Content::Blank => pb::entry::Kind::Blank(pb::Blank {}),
        Content::Membership(membership) => pb::entry::Kind::Membership(membership_to_pb(membership)),
        Content::Batch(batch) => {
            pb::entry::Kind::Batch(pb::Batch { log_time_ms: batch.time.0, commands: batch.commands.clone() })
        }
    };
    pb::Entry { version: RECORD_VERSION, kind: Some(kind) }.encode_to_vec().into()
}

/// Reads the content of the entry at `index` (which only names it in errors).
pub(crate) fn decode_content(index: LogIndex, bytes: Bytes) -> Result<Content, Unreadable> {
    let what = || format!("log entry {}", index.0);
    let entry: pb::Entry = decode(&what(), bytes)?;
    check_version(&what(), entry.version)?;
    match entry.kind {
        Some(pb::entry::Kind::Blank(_)) => Ok(Content::Blank),
        Some(pb::entry::Kind::Membership(membership)) => {
            membership_from_pb(&what(), membership).map(Content::Membership)
        }
        Some(pb::entry::Kind::Batch(batch)) => {
            Ok(Content::Batch(Batch { time: LogTime(batch.log_time_ms), commands: batch.commands }))
        }
        None => Err(unreadable(format!("{} is of a kind this release does not know", what()))),
    }
}

pub(crate) fn membership_to_pb(membership: &Membership) -> pb::Membership {
    let voter_sets = membership
        .get_joint_config()
        .iter()
        .map(|ids| pb::VoterSet { member_ids: ids.iter().copied().collect() })
        .collect();
    let members = membership
        .nodes()
        .map(|(id, place)| pb::Member { id: *id, name: place.name.clone(), address: place.address.clone() })
        .collect();
    pb::Membership { voter_sets, members }
}

pub(crate) fn membership_from_pb(what: &str, membership: pb::Membership) -> Result<Membership, Unreadable> {
    let sets: Vec<BTreeSet<u64>> =
        membership.voter_sets.into_iter().map(|set| set.member_ids.into_iter().collect()).collect();
    let members: BTreeMap<u64, Place> = membership
        .members
        .into_iter()
        .map(|member| (member.id, Place { name: member.name, address: member.address }))
        .collect();
    if sets.is_empty() && members.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(sets, members)
        .map_err(|error| unreadable(format!("{what} holds an impossible membership ({error})")))
}

pub(crate) fn vote_to_pb(vote: &Vote) -> pb::Vote {
    pb::Vote {
        version: RECORD_VERSION,
        term: vote.leader_id.term,
        voted_for: vote.leader_id.voted_for,
        granted: vote.committed,
    }
}

pub(crate) fn vote_from_pb(vote: pb::Vote) -> Result<Vote, Unreadable> {
    check_version("a vote", vote.version)?;
    Ok(if vote.granted { Vote::new_committed(vote.term, vote.voted_for) } else { Vote::new(vote.term, vote.voted_for) })
}

pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    vote_to_pb(vote).encode_to_vec().into()
}

pub(crate) fn decode_vote(bytes: Bytes) -> Result<Vote, Unreadable> {
    decode("the stored vote", bytes).and_then(vote_from_pb)
}

pub(crate) fn encode_identity(identity: &Identity) -> Bytes {
    pb::Identity {
        version: RECORD_VERSION,
        cluster_id: identity.cluster.as_str().to_owned(),
        member_id: identity.member.0,
    }
    .encode_to_vec()
    .into()
}

pub(crate) fn decode_identity(bytes: Bytes) -> Result<Identity, Unreadable> {
    let identity: pb::Identity = decode("the stored identity", bytes)?;
    check_version("the stored identity", identity.version)?;
    let cluster = ClusterId::new(&identity.cluster_id)
        .map_err(|error| unreadable(format!("the stored identity is wrong: {error}")))?;
    Ok(Identity { cluster, member: MemberId(identity.member_id) })
}

/// The content of a snapshot besides the machine's chunks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Description {
    pub last: Option<LogId>,
    pub membership: StoredMembership,
    pub highest_member: MemberId,
    pub log_time: LogTime,
}

impl Description {
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last, last_membership: self.membership.clone() }
    }

    pub(crate) fn encode(&self) -> Bytes {
        pb::SnapshotDescription {
            version: RECORD_VERSION,
            last: self.last.as_ref().map(log_id_to_pb),
            membership_at: self.membership.log_id().as_ref().map(log_id_to_pb),
            membership: Some(membership_to_pb(self.membership.membership())),
            highest_member_id: self.highest_member.0,
            log_time_ms: self.log_time.0,
        }
        .encode_to_vec()
        .into()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Unreadable> {
        let what = "a snapshot's description";
        let description: pb::SnapshotDescription = decode(what, bytes)?;
        check_version(what, description.version)?;
        let membership = description
            .membership
            .ok_or_else(|| unreadable(format!("{what} holds no membership")))
            .and_then(|membership| membership_from_pb(what, membership))?;
        Ok(Description {
            last: description.last.map(log_id_from_pb),
            membership: StoredMembership::new(description.membership_at.map(log_id_from_pb), membership),
            highest_member: MemberId(description.highest_member_id),
            log_time: LogTime(description.log_time_ms),
        })
    }
}
