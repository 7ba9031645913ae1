//! Between openraft's requests and the messages on the wire.

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use tessera_store::SnapshotRecord;

use crate::codec::{self, log_id_from_pb, log_id_to_pb, unreadable, vote_from_pb, vote_to_pb};
use crate::log::{entry_id, from_entry_id};
use crate::machine::{LogIndex, Unreadable};
use crate::pb;
use crate::types::{Entry, LogId, Payload, TypeConfig, Vote};

pub(super) fn required_vote(vote: Option<pb::Vote>) -> Result<Vote, Unreadable> {
    vote.ok_or_else(|| unreadable("a message without a vote")).and_then(vote_from_pb)
}

pub(super) fn append_to_pb(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    let entries = request
        .entries
        .iter()
        .map(|entry| pb::LogRecord { id: Some(log_id_to_pb(&entry.id)), payload: entry.payload.encoded() });
    pb::AppendRequest {
        vote: Some(vote_to_pb(&request.vote)),
        previous: request.prev_log_id.as_ref().map(log_id_to_pb),
        entries: entries.collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_to_pb),
    }
}

pub(super) fn append_from_pb(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Unreadable> {
    let entries = request.entries.into_iter().map(entry_from_pb).collect::<Result<_, _>>()?;
    Ok(AppendEntriesRequest {
        vote: required_vote(request.vote)?,
        prev_log_id: request.previous.map(log_id_from_pb),
        entries,
        leader_commit: request.leader_commit.map(log_id_from_pb),
    })
}

fn entry_from_pb(record: pb::LogRecord) -> Result<Entry, Unreadable> {
    let id = log_id_from_pb(record.id.ok_or_else(|| unreadable("a log entry without a name"))?);
    let content = codec::decode_content(LogIndex(id.index), record.payload.clone())?;
    Ok(Entry { id, payload: Payload::decoded(content, record.payload) })
}

pub(super) fn heartbeat_from_pb(request: pb::HeartbeatRequest) -> Result<AppendEntriesRequest<TypeConfig>, Unreadable> {
    Ok(AppendEntriesRequest {
        vote: required_vote(request.vote)?,
        prev_log_id: request.previous.map(log_id_from_pb),
        entries: Vec::new(),
        leader_commit: request.leader_commit.map(log_id_from_pb),
    })
}

pub(super) fn outcome_to_pb(outcome: StreamAppendResult<TypeConfig>) -> pb::AppendOutcome {
    use pb::append_outcome::Result as Outcome;
    let result = match outcome {
        Ok(last) => Outcome::Matched(pb::Matched { last: last.as_ref().map(log_id_to_pb) }),
        Err(StreamAppendError::Conflict(at)) => Outcome::Conflict(log_id_to_pb(&at)),
        Err(StreamAppendError::HigherVote(vote)) => Outcome::HigherVote(vote_to_pb(&vote)),
    };
    pb::AppendOutcome { result: Some(result) }
}

pub(super) fn outcome_from_pb(
    outcome: Option<pb::AppendOutcome>,
) -> Result<StreamAppendResult<TypeConfig>, Unreadable> {
    use pb::append_outcome::Result as Outcome;
    match outcome.and_then(|outcome| outcome.result) {
        Some(Outcome::Matched(matched)) => Ok(Ok(matched.last.map(log_id_from_pb))),
        Some(Outcome::Conflict(at)) => Ok(Err(StreamAppendError::Conflict(log_id_from_pb(at)))),
        Some(Outcome::HigherVote(vote)) => Ok(Err(StreamAppendError::HigherVote(vote_from_pb(vote)?))),
        None => Err(unreadable("an answer to an append of an unknown kind")),
    }
}

pub(super) fn head_to_pb(record: &SnapshotRecord) -> pb::SnapshotHead {
    pb::SnapshotHead {
        last: record.last.map(|last| log_id_to_pb(&from_entry_id(last))),
        description: record.description.clone(),
        chunks: record.chunks,
        bytes: record.bytes,
        hash: Bytes::copy_from_slice(&record.hash.to_be_bytes()),
    }
}

pub(super) fn head_from_pb(head: Option<pb::SnapshotHead>) -> Result<SnapshotRecord, Unreadable> {
    let head = head.ok_or_else(|| unreadable("a snapshot without a head"))?;
    let hash = <[u8; 16]>::try_from(head.hash.as_ref())
        .map_err(|_| unreadable(format!("a snapshot's hash of {} bytes instead of 16", head.hash.len())))?;
    let last: Option<LogId> = head.last.map(log_id_from_pb);
    Ok(SnapshotRecord {
        last: last.as_ref().map(entry_id),
        description: head.description,
        chunks: head.chunks,
        bytes: head.bytes,
        hash: u128::from_be_bytes(hash),
    })
}
