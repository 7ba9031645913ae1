//! Snapshots: the whole state as a stream of length-delimited records, cut into chunks of about a mebibyte wherever a
//! chunk is full; a record may go on in the next chunk.

use std::ops::Bound;

use planted::Bug;
use prost::Message;
use prost::bytes::Bytes;

use super::FORMAT;
use super::events::entry_to_wire;
use super::field::duration_to_wire;
use super::job::{allocation_to_wire, job_to_wire, move_to_wire};
use super::pool::{config_to_wire, queue_to_wire};
use super::record::{answer_record, card_record, node_record, past_record};
use super::stored::{self, snapshot_record::Record};
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, RequestId};
use crate::kept::Kept;
use crate::state::{PersistentMap, State};
use crate::units::Revision;

/// Size from which a chunk is handed out.
const CHUNK: usize = 1 << 20;

/// Writes the state as chunks of about a mebibyte. The state is copied, which is cheap, so that the chunks can be made
/// on another thread while the ledger goes on. The same state gives the same bytes on every member.
#[must_use]
pub fn encode_snapshot(state: &State) -> SnapshotChunks {
    let mut state = state.clone();
    if planted::is(Bug::RequestsForgotten) {
        state.requests = Kept::default();
    }
    if planted::is(Bug::SnapshotWithoutLast) {
        state.jobs = state.jobs.into_iter().rev().skip(1).map(|(id, job)| (*id, job.clone())).collect();
    }
    SnapshotChunks { state, next: Section::Header, records: 0, buffer: Vec::new() }
}

/// The chunks of a snapshot, in order.
pub struct SnapshotChunks {
    state: State,
    next: Section,
    records: u64,
    buffer: Vec<u8>,
}

/// The section that is written next: within a section of things, the things after the named one.
enum Section {
    Header,
    Nodes(Option<NodeId>),
    Cards(Option<CardId>),
    Queues(Option<String>),
    Past(Option<String>),
    Jobs(Option<JobId>),
    Allocations(Option<AllocationId>),
    Moves(Option<MoveId>),
    Requests(Option<RequestId>),
    History(Option<Revision>),
    Trailer,
    End,
}

impl Iterator for SnapshotChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.buffer.len() < CHUNK && !matches!(self.next, Section::End) {
            self.write_section();
        }
        (!self.buffer.is_empty()).then(|| Bytes::from(std::mem::take(&mut self.buffer)))
    }
}

impl SnapshotChunks {
    /// Writes the rest of the present section, or as much of it as fills the chunk, and notes what comes next.
    fn write_section(&mut self) {
        let mut writer = Writer { buffer: &mut self.buffer, records: &mut self.records };
        let state = &self.state;
        let now = std::mem::replace(&mut self.next, Section::End);
        self.next = match now {
            Section::Header => {
                let digest = state.digest().to_be_bytes().to_vec();
                writer.put(Record::Header(stored::SnapshotHeader { digest, ..header(state) }));
                Section::Nodes(None)
            }
            Section::Nodes(after) => writer
                .put_map(&state.nodes, after, |_, node| Record::Node(node_record(node)))
                .map_or(Section::Cards(None), |last| Section::Nodes(Some(last))),
            Section::Cards(after) => writer
                .put_map(&state.cards, after, |id, card| Record::Card(card_record(*id, card)))
                .map_or(Section::Queues(None), |last| Section::Cards(Some(last))),
            Section::Queues(after) => writer
                .put_map(&state.queues, after, |_, queue| Record::Queue(queue_to_wire(&queue.settings)))
                .map_or(Section::Past(None), |last| Section::Queues(Some(last))),
            Section::Past(after) => writer
                .put_some(&state.queues, after, |_, queue| past_record(queue).map(Record::QueuePast))
                .map_or(Section::Jobs(None), |last| Section::Past(Some(last))),
            Section::Jobs(after) => writer
                .put_map(&state.jobs, after, |_, job| Record::Job(job_to_wire(job)))
                .map_or(Section::Allocations(None), |last| Section::Jobs(Some(last))),
            Section::Allocations(after) => writer
                .put_map(&state.allocations, after, |_, allocation| Record::Allocation(allocation_to_wire(allocation)))
                .map_or(Section::Moves(None), |last| Section::Allocations(Some(last))),
            Section::Moves(after) => writer
                .put_map(&state.moves, after, |_, movement| Record::Move(move_to_wire(movement)))
                .map_or(Section::Requests(None), |last| Section::Moves(Some(last))),
            Section::Requests(after) => writer
                .put_map(&state.requests, after, |id, answer| Record::Request(answer_record(*id, answer)))
                .map_or(Section::History(None), |last| Section::Requests(Some(last))),
            Section::History(after) => writer
                .put_map(&state.history, after, |_, entry| Record::Entry(entry_to_wire(entry)))
                .map_or(Section::Trailer, |last| Section::History(Some(last))),
            Section::Trailer => {
                let records = *writer.records;
                writer.put(Record::Trailer(stored::SnapshotTrailer { records }));
                Section::End
            }
            Section::End => Section::End,
        };
    }
}

/// Appends records to the chunk being made.
struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    records: &'a mut u64,
}

impl Writer<'_> {
    fn is_full(&self) -> bool {
        self.buffer.len() >= CHUNK
    }

    fn put(&mut self, record: Record) {
        let record = stored::SnapshotRecord { record: Some(record) };
        self.buffer.extend_from_slice(&record.encode_length_delimited_to_vec());
        *self.records += 1;
    }

    /// Writes what is behind `after` until the chunk is full; answers the last key when something may be left.
    fn put_map<K: Ord + Clone, V: Clone>(
        &mut self,
        map: &PersistentMap<K, V>,
        after: Option<K>,
        record: impl Fn(&K, &V) -> Record,
    ) -> Option<K> {
        self.put_some(map, after, |key, value| Some(record(key, value)))
    }

    /// The same for things that are not all worth a record.
    fn put_some<K: Ord + Clone, V: Clone>(
        &mut self,
        map: &PersistentMap<K, V>,
        after: Option<K>,
        record: impl Fn(&K, &V) -> Option<Record>,
    ) -> Option<K> {
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for (key, value) in map.range((from, Bound::Unbounded)) {
            let Some(record) = record(key, value) else { continue };
            self.put(record);
            if self.is_full() {
                last = Some(key.clone());
                break;
            }
        }
        last
    }
}

/// The header: the state apart from the things in it and from its digest. Taken apart field by field, so that a new
/// field of the state cannot be forgotten here: it is either written, or named among those that are computed on
/// reading.
fn header(state: &State) -> stored::SnapshotHeader {
    let State {
        revision,
        time,
        level,
        config,
        request_floor,
        lease_ceiling,
        next_node,
        next_block,
        next_job,
        next_allocation,
        next_move,
        compacted,
        // The digest is made of it and of this header.
        records_sum: _,
        // Written as records of their own.
        nodes: _,
        cards: _,
        queues: _,
        jobs: _,
        allocations: _,
        moves: _,
        requests: _,
        history: _,
        // Computed on reading.
        node_names: _,
        waiting: _,
        unguarded: _,
        checkpointed: _,
        checkpoint_bytes: _,
        windowed: _,
        idlers: _,
        ended: _,
        request_times: _,
        node_workers: _,
        ports: _,
        counts: _,
        capacity: _,
        job_counts: _,
        requests_held: _,
        spec_bytes: _,
        ended_spec_bytes: _,
        events_held: _,
        // Empty between entries.
        pending_events: _,
        host_use: _,
        touched: _,
    } = state;
    stored::SnapshotHeader {
        format: FORMAT,
        revision: revision.0,
        time_ms: time.0,
        digest: vec![],
        config: Some(config_to_wire(config)),
        next_node: next_node.0,
        next_block: next_block.0,
        next_job: next_job.0,
        next_allocation: next_allocation.0,
        next_move: next_move.0,
        compacted: compacted.0,
        request_floor_ms: request_floor.0,
        regrant_ceiling: (lease_ceiling.regrant_after != config.leases.regrant_after)
            .then(|| duration_to_wire(lease_ceiling.regrant_after)),
        leases_changed_at: lease_ceiling.changed_at.0,
        level: level.number(),
    }
}

/// The header as it is part of the digest.
pub(crate) fn header_to_digest(state: &State) -> Vec<u8> {
    header(state).encode_to_vec()
}
