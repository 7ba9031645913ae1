//! The behaviour every store must have, written once. A *bed* is a disk on which a store can be opened again and again.

pub mod log;
pub mod model;
pub mod single;
pub mod snapshots;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use tessera_store::{Done, EntryId, LogRecord, SnapshotRecord, SnapshotWriter, Store, StoreError};

/// The longest time for an answer before the test fails; never waited for when all is well.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A disk on which stores are opened.
pub trait Bed {
    /// Opens the store; an earlier one must have been dropped.
    fn try_open(&self) -> Result<Arc<dyn Store>, StoreError>;

    fn open(&self) -> Arc<dyn Store> {
        self.try_open().expect("the store opens")
    }
}

pub fn id(term: u64, index: u64) -> EntryId {
    EntryId { term, index }
}

/// A record whose payload says what it is.
pub fn record(term: u64, index: u64) -> LogRecord {
    LogRecord { id: id(term, index), payload: Bytes::from(format!("{index} of {term}")) }
}

pub fn records(term: u64, indices: impl IntoIterator<Item = u64>) -> Vec<LogRecord> {
    indices.into_iter().map(|index| record(term, index)).collect()
}

/// A callback and where its answer arrives.
pub fn answer() -> (Done, Receiver<Result<(), StoreError>>) {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| {
        // A test that does not look at the answer has dropped the receiver.
        let _ = sender.send(result);
    });
    (done, receiver)
}

/// Makes a request and waits for its answer.
pub fn wait(request: impl FnOnce(Done)) -> Result<(), StoreError> {
    let (done, answer) = answer();
    request(done);
    answer.recv_timeout(PATIENCE).expect("the store answers")
}

pub fn append(store: &dyn Store, records: Vec<LogRecord>) -> Result<(), StoreError> {
    wait(|done| store.append(records, done))
}

pub fn truncate(store: &dyn Store, kept: Option<EntryId>) -> Result<(), StoreError> {
    wait(|done| store.truncate_after(kept, done))
}

pub fn purge(store: &dyn Store, purged: EntryId) -> Result<(), StoreError> {
    wait(|done| store.purge_to(purged, done))
}

pub fn save_vote(store: &dyn Store, vote: &'static str) -> Result<(), StoreError> {
    wait(|done| store.save_vote(Bytes::from_static(vote.as_bytes()), done))
}

pub fn finish(
    writer: Box<dyn SnapshotWriter>,
    last: Option<EntryId>,
    description: &'static str,
) -> Result<SnapshotRecord, StoreError> {
    let (sender, receiver) = channel();
    let done = Box::new(move |result| {
        let _ = sender.send(result);
    });
    writer.finish(last, Bytes::from_static(description.as_bytes()), done);
    receiver.recv_timeout(PATIENCE).expect("the store answers")
}

/// All entries, by index and term.
pub fn ids(store: &dyn Store) -> Vec<(u64, u64)> {
    let first = store.log_state().expect("state").last_purged.map_or(0, |purged| purged.index + 1);
    let found = store.read(first..u64::MAX, u64::MAX).expect("the log can be read");
    for record in &found {
        assert_eq!(record.payload, format!("{} of {}", record.id.index, record.id.term).as_bytes());
    }
    found.iter().map(|record| (record.id.index, record.id.term)).collect()
}

/// Instantiates every test of the suite for a bed.
#[macro_export]
macro_rules! contract {
    ($name:ident, $bed:expr) => {
        mod $name {
            use super::*;
            $crate::contract!(@tests $bed, log:
                a_new_store_is_empty, appended_records_are_readable_at_once_and_after_reopening,
                reading_is_a_prefix_within_bytes, an_append_must_follow_on_the_log,
                a_truncated_end_is_written_anew, truncating_everything_lets_any_index_come,
                purging_keeps_the_rest, purging_beyond_the_end_empties_the_log,
                purging_before_a_first_entry_is_remembered, what_cannot_be_removed_is_refused,
                answers_come_in_the_order_of_requests, many_removals_leave_what_they_should,
                readers_see_whole_runs_while_the_log_moves);
            $crate::contract!(@tests $bed, single:
                the_newest_vote_stays, committed_rides_with_the_next_request,
                the_identity_is_written_once, a_second_open_is_refused, status_counts);
            $crate::contract!(@tests $bed, snapshots:
                a_snapshot_is_read_as_written, the_newest_and_the_one_before_are_kept,
                an_older_snapshot_does_not_become_the_newest, an_unfinished_own_snapshot_leaves_nothing,
                a_received_snapshot_goes_on_where_it_broke, another_name_replaces_a_partial,
                a_discarded_partial_is_gone, one_named_writer_at_a_time);
        }
    };
    (@tests $bed:expr, $module:ident: $($test:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            $crate::contract::$module::$test(&$bed);
        })*
    };
}
