//! Hashes of the things of the state: of the records that a snapshot keeps of each.

use std::sync::Arc;

use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

use super::events::entry_to_wire;
use super::job::{allocation_to_wire, job_without_spec, move_to_wire};
use super::pool::queue_to_wire;
use super::record::{answer_record, card_record, node_record, past_record};
use super::spec::spec_to_wire;
use super::stored::{self, snapshot_record::Record};
use crate::allocation::{Allocation, Move};
use crate::card::Card;
use crate::event::EntryEvents;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, RequestId};
use crate::job::Job;
use crate::kept::Recorded;
use crate::node::Node;
use crate::queue::Queue;
use crate::spec::JobSpec;
use crate::state::AnsweredRequest;
use crate::units::Revision;

fn hash(record: Record) -> u128 {
    xxh3_128(&bytes_of(record))
}

fn bytes_of(record: Record) -> Vec<u8> {
    stored::SnapshotRecord { record: Some(record) }.encode_to_vec()
}

/// Hashes a spec. A spec may be long and never changes: its hash is taken once, and stands for it in the hash of the
/// job.
pub(crate) fn hash_of_spec(spec: &JobSpec) -> u128 {
    xxh3_128(&spec_to_wire(spec).encode_to_vec())
}

impl Recorded<NodeId> for Arc<Node> {
    fn hash_of_records(&self, _: &NodeId) -> u128 {
        hash(Record::Node(node_record(self)))
    }
}

impl Recorded<CardId> for Arc<Card> {
    fn hash_of_records(&self, id: &CardId) -> u128 {
        hash(Record::Card(card_record(*id, self)))
    }
}

impl Recorded<String> for Arc<Queue> {
    fn hash_of_records(&self, _: &String) -> u128 {
        let past = past_record(self).map_or(0, |past| hash(Record::QueuePast(past)));
        hash(Record::Queue(queue_to_wire(&self.settings))).wrapping_add(past)
    }
}

impl Recorded<JobId> for Arc<Job> {
    fn hash_of_records(&self, _: &JobId) -> u128 {
        let mut bytes = bytes_of(Record::Job(job_without_spec(self)));
        bytes.extend_from_slice(&self.spec_hash.to_be_bytes());
        xxh3_128(&bytes)
    }
}

impl Recorded<AllocationId> for Arc<Allocation> {
    fn hash_of_records(&self, _: &AllocationId) -> u128 {
        hash(Record::Allocation(allocation_to_wire(self)))
    }
}

impl Recorded<MoveId> for Arc<Move> {
    fn hash_of_records(&self, _: &MoveId) -> u128 {
        hash(Record::Move(move_to_wire(self)))
    }
}

impl Recorded<RequestId> for AnsweredRequest {
    fn hash_of_records(&self, id: &RequestId) -> u128 {
        hash(Record::Request(answer_record(*id, self)))
    }
}

impl Recorded<Revision> for EntryEvents {
    fn hash_of_records(&self, _: &Revision) -> u128 {
        hash(Record::Entry(entry_to_wire(self)))
    }
}
