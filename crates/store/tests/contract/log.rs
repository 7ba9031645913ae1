//! The log: append, read, truncate, purge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tessera_store::{LogState, StoreError};

use super::{Bed, PATIENCE, answer, append, id, ids, purge, record, records, save_vote, truncate};

pub fn a_new_store_is_empty(bed: &dyn Bed) {
    let store = bed.open();
    assert_eq!(store.log_state().unwrap(), LogState::default());
    assert_eq!(store.read(0..100, 1000).unwrap(), []);
    assert_eq!(store.vote().unwrap(), None);
    assert_eq!(store.committed().unwrap(), None);
    assert_eq!(store.identity().unwrap(), None);
    assert_eq!(store.snapshot().unwrap(), None);
}

pub fn appended_records_are_readable_at_once_and_after_reopening(bed: &dyn Bed) {
    let store = bed.open();
    let (done, first) = answer();
    store.append(records(1, 0..50), done);
    let (done, second) = answer();
    store.append(records(2, 50..60), done);
    assert_eq!(store.read(0..100, u64::MAX).unwrap().len(), 60, "readable before it is durable");
    assert_eq!(store.log_state().unwrap().last, Some(id(2, 59)));
    first.recv_timeout(PATIENCE).unwrap().unwrap();
    second.recv_timeout(PATIENCE).unwrap().unwrap();
    append(&*store, vec![]).unwrap();
    let before = ids(&*store);
    drop(store);
    let store = bed.open();
    assert_eq!(ids(&*store), before);
    assert_eq!(store.log_state().unwrap(), LogState { last_purged: None, last: Some(id(2, 59)) });
}

pub fn reading_is_a_prefix_within_bytes(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 1..=20)).unwrap();
    assert_eq!(store.read(5..9, u64::MAX).unwrap(), records(1, 5..9));
    assert_eq!(store.read(18..99, u64::MAX).unwrap(), records(1, 18..=20));
    assert_eq!(store.read(5..5, u64::MAX).unwrap(), []);
    assert_eq!(store.read(21..30, u64::MAX).unwrap(), []);
    #[allow(clippy::reversed_empty_ranges, reason = "an inverted range is what is tested")]
    let inverted = store.read(9..5, u64::MAX).unwrap();
    assert_eq!(inverted, []);
    let three = records(1, 5..8).iter().map(|record| record.payload.len() as u64).sum();
    assert_eq!(store.read(5..20, three).unwrap(), records(1, 5..8));
    assert_eq!(store.read(5..20, three - 1).unwrap(), records(1, 5..7));
    assert_eq!(store.read(5..20, 0).unwrap(), records(1, 5..6), "at least one");
}

pub fn an_append_must_follow_on_the_log(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 5..8)).unwrap();
    for wrong in [records(1, 9..11), records(1, 7..9), vec![record(1, 8), record(1, 10)]] {
        let error = append(&*store, wrong).unwrap_err();
        assert!(matches!(error, StoreError::OutOfOrder { last: Some(last), .. } if last == id(1, 7)));
    }
    append(&*store, records(1, 8..9)).expect("a refusal leaves the store usable");
    drop(store);
    assert_eq!(ids(&*bed.open()), [(5, 1), (6, 1), (7, 1), (8, 1)]);
}

pub fn a_truncated_end_is_written_anew(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 0..10)).unwrap();
    truncate(&*store, Some(id(1, 9))).expect("nothing to remove is no error");
    truncate(&*store, Some(id(1, 3))).unwrap();
    assert_eq!(store.log_state().unwrap().last, Some(id(1, 3)));
    assert_eq!(store.read(4..10, u64::MAX).unwrap(), []);
    append(&*store, records(2, 4..6)).unwrap();
    let expected = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)];
    assert_eq!(ids(&*store), expected);
    drop(store);
    assert_eq!(ids(&*bed.open()), expected);
}

pub fn truncating_everything_lets_any_index_come(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 3..6)).unwrap();
    truncate(&*store, None).unwrap();
    assert_eq!(store.log_state().unwrap(), LogState::default());
    drop(store);
    let store = bed.open();
    assert_eq!(store.log_state().unwrap(), LogState::default());
    append(&*store, records(4, 1..3)).unwrap();
    drop(store);
    assert_eq!(ids(&*bed.open()), [(1, 4), (2, 4)]);
}

pub fn purging_keeps_the_rest(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 0..100)).unwrap();
    purge(&*store, id(1, 89)).unwrap();
    purge(&*store, id(1, 20)).expect("what is purged already is no error");
    let expected = LogState { last_purged: Some(id(1, 89)), last: Some(id(1, 99)) };
    assert_eq!(store.log_state().unwrap(), expected);
    assert_eq!(store.read(80..100, u64::MAX).unwrap(), [], "begins with a purged entry");
    assert_eq!(store.read(90..100, u64::MAX).unwrap(), records(1, 90..100));
    drop(store);
    let store = bed.open();
    assert_eq!(store.log_state().unwrap(), expected);
    truncate(&*store, None).unwrap();
    assert_eq!(store.log_state().unwrap().last, Some(id(1, 89)), "what was purged stays known");
    assert!(append(&*store, records(2, 91..92)).is_err());
    append(&*store, records(2, 90..92)).unwrap();
    assert_eq!(ids(&*store), [(90, 2), (91, 2)]);
}

pub fn purging_beyond_the_end_empties_the_log(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 0..5)).unwrap();
    purge(&*store, id(3, 40)).unwrap();
    let expected = LogState { last_purged: Some(id(3, 40)), last: Some(id(3, 40)) };
    assert_eq!(store.log_state().unwrap(), expected);
    drop(store);
    let store = bed.open();
    assert_eq!(store.log_state().unwrap(), expected);
    append(&*store, records(3, 41..43)).unwrap();
    assert_eq!(ids(&*store), [(41, 3), (42, 3)]);
}

pub fn purging_before_a_first_entry_is_remembered(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 2..6)).unwrap();
    purge(&*store, id(1, 1)).unwrap();
    assert_eq!(store.log_state().unwrap().last_purged, Some(id(1, 1)));
    drop(store);
    let store = bed.open();
    assert_eq!(store.log_state().unwrap().last_purged, Some(id(1, 1)));
    assert_eq!(store.read(2..6, u64::MAX).unwrap(), records(1, 2..6));
}

pub fn what_cannot_be_removed_is_refused(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 4..10)).unwrap();
    let refused = |result: Result<(), StoreError>| matches!(result, Err(StoreError::OutOfRange { .. }));
    assert!(refused(purge(&*store, id(1, 1))), "would leave a hole before entry 4");
    assert!(refused(purge(&*store, id(1, u64::MAX))));
    assert!(refused(truncate(&*store, Some(id(1, 2)))));
    purge(&*store, id(1, 6)).unwrap();
    assert!(refused(truncate(&*store, Some(id(1, 5)))));
    truncate(&*store, Some(id(1, 6))).unwrap();
    assert_eq!(store.log_state().unwrap().last, Some(id(1, 6)));
}

pub fn answers_come_in_the_order_of_requests(bed: &dyn Bed) {
    const REQUESTS: u64 = 300;
    let store = bed.open();
    let order = Arc::new(Mutex::new(Vec::new()));
    for n in 0..REQUESTS {
        let order = order.clone();
        let done = Box::new(move |result: Result<(), StoreError>| {
            order.lock().unwrap().push((n, result.is_ok()));
        });
        match n % 5 {
            0 => store.append(records(1, [n / 5]), done),
            1 => store.save_vote(Bytes::from(n.to_be_bytes().to_vec()), done),
            2 => store.append(records(1, [999]), done),
            3 => store.truncate_after(Some(id(1, n / 5)), done),
            _ => store.purge_to(id(1, 0), done),
        }
    }
    save_vote(&*store, "last").unwrap();
    let expected: Vec<_> = (0..REQUESTS).map(|n| (n, n % 5 != 2)).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

pub fn many_removals_leave_what_they_should(bed: &dyn Bed) {
    let store = bed.open();
    let mut next = 0;
    for round in 1..=20 {
        append(&*store, records(round, next..next + 100)).unwrap();
        truncate(&*store, Some(id(round, next + 59))).unwrap();
        next += 60;
        purge(&*store, id(round, next - 30)).unwrap();
    }
    let expected: Vec<_> = (next - 29..next).map(|index| (index, 20)).collect();
    assert_eq!(ids(&*store), expected);
    drop(store);
    assert_eq!(ids(&*bed.open()), expected);
}

pub fn readers_see_whole_runs_while_the_log_moves(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 0..10)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !stop.load(Ordering::Relaxed) || reads == 0 {
                let state = store.log_state().unwrap();
                let first = state.last_purged.map_or(0, |purged| purged.index + 1);
                let found = store.read(first..u64::MAX, 500).expect("moving is no damage");
                for (index, record) in (first..).zip(&found) {
                    assert_eq!(record.id.index, index);
                }
                reads += 1;
            }
        });
        for round in 0..100 {
            let next = 10 + round * 7;
            append(&*store, records(1, next..next + 10)).unwrap();
            truncate(&*store, Some(id(1, next + 6))).unwrap();
            purge(&*store, id(1, next - 5)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader saw only whole runs");
    });
}
