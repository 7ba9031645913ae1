//! Random operations on the store on disk, on the in-memory twin and on the simplest model of both, over restarts.

#![cfg(feature = "rocksdb")]

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;
use tessera_store::memory::Flushing;
use tessera_store::rocks::{self, RocksOptions};
use tessera_store::{LogRecord, LogState, MemoryDisk, Store};

use crate::contract::model::Model;
use crate::contract::{append, id, purge, truncate, wait};

#[derive(Clone, Debug)]
enum Op {
    /// Appends at the end, or `off` beside it.
    Append {
        count: u64,
        off: u64,
        length: usize,
    },
    Vote(u8),
    Committed,
    /// Keeps all but the last so many.
    Truncate(u64),
    TruncateAll,
    /// Purges so many, beyond the end too.
    Purge(u64),
    Read {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u64..40, prop_oneof![9 => Just(0_u64), 1 => 1_u64..3], 0_usize..300)
            .prop_map(|(count, off, length)| Op::Append { count, off, length }),
        2 => any::<u8>().prop_map(Op::Vote),
        1 => Just(Op::Committed),
        3 => (0_u64..60).prop_map(Op::Truncate),
        1 => Just(Op::TruncateAll),
        3 => (0_u64..60).prop_map(Op::Purge),
        4 => (0_u64..300, 0_u64..300, 0_u64..9000)
            .prop_map(|(from, to, bytes)| Op::Read { from, to, bytes }),
        2 => Just(Op::Reopen),
    ]
}

/// Both stores.
struct Pair {
    folder: TempDir,
    disk: MemoryDisk,
    stores: Vec<Arc<dyn Store>>,
}

impl Pair {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut pair = Pair { folder, disk: MemoryDisk::new(Flushing::AtOnce), stores: Vec::new() };
        pair.open();
        pair
    }

    fn open(&mut self) {
        self.stores.clear();
        // A tail this small puts reads on the disk, in memory and across both.
        let options = RocksOptions { reserve_bytes: 0, tail_bytes: 2000, ..RocksOptions::new(self.folder.path()) };
        self.stores.push(rocks::open(&options).expect("the store on disk opens"));
        self.stores.push(self.disk.open().expect("the twin opens"));
    }

    fn expect(&self, allowed: bool, request: impl Fn(&dyn Store) -> bool) -> Result<(), TestCaseError> {
        for store in &self.stores {
            prop_assert_eq!(request(&**store), allowed);
        }
        Ok(())
    }

    fn compare(&self, model: &Model) -> Result<(), TestCaseError> {
        for store in &self.stores {
            let state = store.log_state().expect("state");
            prop_assert_eq!(state, LogState { last_purged: model.purged, last: model.last() });
            prop_assert_eq!(&store.vote().expect("vote"), &model.vote);
            prop_assert_eq!(store.committed().expect("committed"), model.committed);
            let log = store.read(model.first()..u64::MAX, u64::MAX).expect("the log");
            prop_assert_eq!(&log, &model.log);
        }
        Ok(())
    }
}

fn run(op: &Op, model: &mut Model, pair: &mut Pair) -> Result<(), TestCaseError> {
    match *op {
        Op::Append { count, off, length } => {
            model.term += 1;
            let begin = model.end() + off;
            let records: Vec<_> = (begin..begin + count)
                .map(|index| LogRecord {
                    id: id(model.term, index),
                    payload: Bytes::from(vec![index.to_le_bytes()[0]; length]),
                })
                .collect();
            let allowed = model.append(&records);
            pair.expect(allowed, |store| append(store, records.clone()).is_ok())
        }
        Op::Vote(vote) => {
            let vote = Bytes::from(vec![vote; 3]);
            model.vote = Some(vote.clone());
            pair.expect(true, |store| wait(|done| store.save_vote(vote.clone(), done)).is_ok())
        }
        Op::Committed => {
            model.committed = model.last();
            let committed = model.committed;
            pair.expect(true, |store| {
                store.save_committed(committed);
                true
            })
        }
        Op::Truncate(removed) => {
            let kept = model.end().checked_sub(removed + 1).map(|index| id(model.term_of(index), index));
            let allowed = model.truncate(kept);
            pair.expect(allowed, |store| truncate(store, kept).is_ok())
        }
        Op::TruncateAll => {
            let allowed = model.truncate(None);
            pair.expect(allowed, |store| truncate(store, None).is_ok())
        }
        Op::Purge(count) => {
            let index = model.first() + count;
            let purged = id(model.term_of(index), index);
            let allowed = model.purge(purged);
            pair.expect(allowed, |store| purge(store, purged).is_ok())
        }
        Op::Read { from, to, bytes } => {
            let expected = model.read(from, to, bytes);
            for store in &pair.stores {
                prop_assert_eq!(&store.read(from..to, bytes).expect("readable"), &expected);
            }
            Ok(())
        }
        Op::Reopen => {
            // The last committed entry rides with the next write, so there must be one.
            run(&Op::Vote(0), model, pair)?;
            pair.open();
            Ok(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn disk_and_twin_do_what_the_model_does(ops in prop::collection::vec(op(), 1..50)) {
        let (mut model, mut pair) = (Model::default(), Pair::new());
        for op in &ops {
            run(op, &mut model, &mut pair)?;
            pair.compare(&model)?;
        }
        run(&Op::Reopen, &mut model, &mut pair)?;
        pair.compare(&model)?;
    }
}
