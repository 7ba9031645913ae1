//! Items that exist once per store: vote, committed entry, identity, the store itself.

use bytes::Bytes;
use tessera_store::{Reserve, StoreError};

use super::{Bed, append, id, records, save_vote, wait};

pub fn the_newest_vote_stays(bed: &dyn Bed) {
    let store = bed.open();
    for vote in ["one", "two", "three"] {
        save_vote(&*store, vote).unwrap();
        assert_eq!(store.vote().unwrap().unwrap(), vote);
    }
    drop(store);
    assert_eq!(bed.open().vote().unwrap().unwrap(), "three");
}

pub fn committed_rides_with_the_next_request(bed: &dyn Bed) {
    let store = bed.open();
    append(&*store, records(1, 0..5)).unwrap();
    store.save_committed(Some(id(1, 2)));
    assert_eq!(store.committed().unwrap(), Some(id(1, 2)), "readable at once");
    store.save_committed(Some(id(1, 4)));
    save_vote(&*store, "vote").unwrap();
    drop(store);
    let store = bed.open();
    assert_eq!(store.committed().unwrap(), Some(id(1, 4)));
    store.save_committed(None);
    save_vote(&*store, "vote").unwrap();
    drop(store);
    assert_eq!(bed.open().committed().unwrap(), None);
}

pub fn the_identity_is_written_once(bed: &dyn Bed) {
    let save = |store: &dyn tessera_store::Store, identity: &'static [u8]| {
        wait(|done| store.save_identity(Bytes::from_static(identity), done))
    };
    let store = bed.open();
    save(&*store, b"member 1").unwrap();
    save(&*store, b"member 1").expect("the same again is no error");
    assert!(matches!(save(&*store, b"member 2"), Err(StoreError::IdentityTaken)));
    drop(store);
    let store = bed.open();
    assert_eq!(store.identity().unwrap().unwrap(), "member 1");
    assert!(matches!(save(&*store, b"member 2"), Err(StoreError::IdentityTaken)));
    append(&*store, records(1, 0..1)).expect("a refusal leaves the store usable");
}

pub fn a_second_open_is_refused(bed: &dyn Bed) {
    let store = bed.open();
    let second = bed.try_open();
    assert!(matches!(second, Err(StoreError::Locked { .. })), "opened twice");
    drop(store);
    bed.open();
}

pub fn status_counts(bed: &dyn Bed) {
    let store = bed.open();
    for index in 0..10 {
        append(&*store, records(1, [index])).unwrap();
    }
    let status = store.status();
    assert_eq!(status.syncs.count, 10, "each waited for the one before");
    assert_eq!(status.syncs.requests, 10);
    assert_eq!(status.syncs.buckets.iter().sum::<u64>(), 10);
    assert_eq!(status.queued, 0);
    assert!(status.disk_bytes > 0);
    assert_eq!(status.reserve, Reserve::Off);
    assert!(status.failed.is_none());
}
