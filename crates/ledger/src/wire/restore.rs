//! Reading a snapshot back into a state.

use std::sync::Arc;

use planted::Bug;
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::decode_varint;

use super::events::entry_from_wire;
use super::field::{FieldError, duration_from_wire, required, wide_from_wire};
use super::job::{allocation_from_wire, job_from_wire, move_from_wire};
use super::pool::{config_from_wire, queue_from_wire};
use super::record::{answer_of_record, card_of_record, node_of_record, past_of_record};
use super::stored::{self, snapshot_record::Record};
use super::{FORMAT, WireError};
use crate::allocation::{Allocation, Move};
use crate::card::Card;
use crate::event::EntryEvents;
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, RequestId};
use crate::job::Job;
use crate::lease::{LeaseCeiling, LeaseTimings};
use crate::level::Level;
use crate::node::Node;
use crate::queue::Queue;
use crate::state::{AnsweredRequest, PersistentMap, State};
use crate::units::{BlockNumber, LogTime, Revision};

/// The name of a record in errors.
const WHAT: &str = "a record of the snapshot";
/// The name of the header in errors.
const HEADER: &str = "the header of the snapshot";
/// Longest record: no release writes longer ones, and a damaged length must not make the reader wait for gigabytes.
const RECORD_LIMIT: usize = 64 << 20;
/// Most bytes of the length before a record.
const LENGTH_BYTES: usize = 10;

/// Reads a snapshot that [`encode_snapshot`](super::encode_snapshot) of this or an older release wrote, and computes
/// what snapshots do not keep.
///
/// # Errors
/// [`WireError`] when it comes from a newer release, is damaged or is not whole; nothing is taken in part (law L7).
pub fn decode_snapshot(chunks: impl IntoIterator<Item = Bytes>) -> Result<State, WireError> {
    let mut restore = Restore::default();
    let mut buffer: Vec<u8> = Vec::new();
    for chunk in chunks {
        buffer.extend_from_slice(&chunk);
        let read = restore.take_records(&buffer)?;
        buffer.drain(..read);
    }
    if !buffer.is_empty() {
        return Err(not_whole(format!("{} bytes of a record are left over at the end", buffer.len())));
    }
    restore.finish()
}

fn not_whole(problem: impl Into<String>) -> WireError {
    WireError::NotWhole { problem: problem.into() }
}

/// The content of the records read so far.
#[derive(Default)]
struct Restore {
    records: u64,
    /// True once the last record, the trailer, was read.
    is_whole: bool,
    header: Option<stored::SnapshotHeader>,
    nodes: Vec<(NodeId, Arc<Node>)>,
    cards: Vec<(CardId, Arc<Card>)>,
    queues: Vec<(String, Arc<Queue>)>,
    jobs: Vec<(JobId, Arc<Job>)>,
    allocations: Vec<(AllocationId, Arc<Allocation>)>,
    moves: Vec<(MoveId, Arc<Move>)>,
    requests: Vec<(RequestId, AnsweredRequest)>,
    history: Vec<EntryEvents>,
}

impl Restore {
    /// Takes the whole records at the beginning of `bytes` and answers how many bytes they have.
    fn take_records(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        let mut rest = bytes;
        while let Some((record, after)) = split_record(rest)? {
            self.take(record)?;
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let record =
            stored::SnapshotRecord::decode(bytes).map_err(|source| WireError::Malformed { what: WHAT, source })?;
        if let Some(Record::Header(header)) = &record.record
            && header.format > FORMAT
        {
            return Err(WireError::UnknownFormat { what: "the snapshot", found: header.format });
        }
        // The decoder drops fields that it does not know; what it kept is then shorter than what it was given.
        if record.encoded_len() != bytes.len() {
            return Err(WireError::UnknownContent { what: WHAT });
        }
        let record = required("record", record.record).map_err(|field| WireError::of(WHAT, field))?;
        if self.is_whole {
            return Err(not_whole("records follow the last one"));
        }
        if (self.records == 0) != matches!(record, Record::Header(_)) {
            return Err(not_whole("it must have one header, at its beginning"));
        }
        if let Record::Trailer(trailer) = &record {
            if trailer.records != self.records {
                return Err(not_whole(format!("it announces {} records and has {}", trailer.records, self.records)));
            }
            self.is_whole = true;
        }
        self.records += 1;
        self.keep(record).map_err(|field| WireError::of(WHAT, field))
    }

    fn keep(&mut self, record: Record) -> Result<(), FieldError> {
        let under = |name: &'static str| move |error: FieldError| error.under(name);
        match record {
            Record::Header(header) => self.header = Some(header),
            Record::Node(node) => {
                let node = node_of_record(node).map_err(under("node"))?;
                self.nodes.push((node.id, Arc::new(node)));
            }
            Record::Card(card) => {
                let (id, card) = card_of_record(card).map_err(under("card"))?;
                self.cards.push((id, Arc::new(card)));
            }
            Record::Queue(queue) => {
                let settings = queue_from_wire(queue).map_err(under("queue"))?;
                self.queues.push((settings.name.clone(), Arc::new(Queue::new(settings))));
            }
            Record::QueuePast(past) => {
                let (name, past, closed_until) = past_of_record(past).map_err(under("queue_past"))?;
                let place = self.queues.binary_search_by(|(known, _)| known.cmp(&name));
                let place = place.map_err(|_| FieldError::invalid("name", "is of no queue").under("queue_past"))?;
                let queue = Arc::make_mut(&mut self.queues[place].1);
                (queue.past, queue.closed_until) = (past, closed_until);
            }
            Record::Job(job) => {
                let job = job_from_wire(job).map_err(under("job"))?;
                self.jobs.push((job.id, Arc::new(job)));
            }
            Record::Allocation(allocation) => {
                let allocation = allocation_from_wire(allocation).map_err(under("allocation"))?;
                self.allocations.push((allocation.id, Arc::new(allocation)));
            }
            Record::Move(movement) => {
                let movement = move_from_wire(&movement).map_err(under("move"))?;
                self.moves.push((movement.id, Arc::new(movement)));
            }
            Record::Request(answer) => self.requests.push(answer_of_record(&answer).map_err(under("request"))?),
            Record::Entry(entry) => self.history.push(entry_from_wire(entry).map_err(under("entry"))?),
            Record::Trailer(_) => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<State, WireError> {
        if !self.is_whole {
            return Err(not_whole("its last record is missing"));
        }
        let header = self.header.ok_or_else(|| not_whole("its header is missing"))?;
        if !self.history.is_sorted_by(|before, after| before.revision < after.revision) {
            return Err(not_whole("its events are not in order"));
        }
        let mut state = state_of_header(&header).map_err(|field| WireError::of(HEADER, field))?;
        state.nodes = map("nodes", self.nodes)?.into();
        state.cards = map("cards", self.cards)?.into();
        state.queues = map("queues", self.queues)?.into();
        state.jobs = map("jobs", self.jobs)?.into();
        state.allocations = map("allocations", self.allocations)?.into();
        state.moves = map("moves", self.moves)?.into();
        state.requests = map("requests", self.requests)?.into();
        state.history = self.history.into_iter().map(|entry| (entry.revision, entry)).collect();
        state.rebuild_derived();
        state.watch_records();
        check_digest(&state, &header)?;
        Ok(state)
    }
}

/// Compares what was read with what was written.
fn check_digest(state: &State, header: &stored::SnapshotHeader) -> Result<(), WireError> {
    let written = wide_from_wire("digest", &header.digest).map_err(|field| WireError::of(HEADER, field))?;
    let read = state.digest();
    if read == written || planted::is(Bug::RestoredUnchecked) {
        return Ok(());
    }
    Err(WireError::OtherState { read, written })
}

fn state_of_header(header: &stored::SnapshotHeader) -> Result<State, FieldError> {
    if header.format == 0 {
        return Err(FieldError::missing("format"));
    }
    let config = required("config", header.config.as_ref())?;
    let mut state = State::new();
    state.revision = Revision(header.revision);
    state.time = LogTime(header.time_ms);
    state.level = Level::from_number(header.level).ok_or_else(|| FieldError::unknown_level("level", header.level))?;
    state.config = Arc::new(config_from_wire(config).map_err(|error| error.under("config"))?);
    state.request_floor = LogTime(header.request_floor_ms);
    state.lease_ceiling = ceiling_of_header(header, &state.config.leases)?;
    state.next_node = NodeId(header.next_node);
    state.next_block = BlockNumber(header.next_block);
    state.next_job = JobId(header.next_job);
    state.next_allocation = AllocationId(header.next_allocation);
    state.next_move = MoveId(header.next_move);
    state.compacted = Revision(header.compacted);
    Ok(state)
}

fn ceiling_of_header(header: &stored::SnapshotHeader, timings: &LeaseTimings) -> Result<LeaseCeiling, FieldError> {
    const FIELD: &str = "regrant_ceiling";
    let given = header.regrant_ceiling.as_ref().map(|ceiling| duration_from_wire(FIELD, ceiling)).transpose()?;
    let regrant_after = given.unwrap_or(timings.regrant_after);
    if regrant_after < timings.regrant_after {
        return Err(FieldError::invalid(FIELD, "must not be less than config.leases.regrant_after"));
    }
    Ok(LeaseCeiling { regrant_after, changed_at: Revision(header.leases_changed_at) })
}

/// Makes a map of things that must be in the order of their keys, each once.
fn map<K: Ord + Clone, V: Clone>(what: &str, things: Vec<(K, V)>) -> Result<PersistentMap<K, V>, WireError> {
    if !things.is_sorted_by(|before, after| before.0 < after.0) {
        return Err(not_whole(format!("its {what} are not in order")));
    }
    Ok(PersistentMap::new().insert_many(things))
}

/// A record and what follows it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits a whole record from the beginning of `bytes`; `None` when more bytes are needed.
fn split_record(bytes: &[u8]) -> Result<Option<Split<'_>>, WireError> {
    let mut rest = bytes;
    let length = match decode_varint(&mut rest) {
        Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
        Err(_) if bytes.len() < LENGTH_BYTES => return Ok(None),
        Err(source) => return Err(WireError::Malformed { what: WHAT, source }),
    };
    if length > RECORD_LIMIT {
        return Err(not_whole(format!("a record of {length} bytes is longer than any release writes")));
    }
    Ok(rest.split_at_checked(length))
}
