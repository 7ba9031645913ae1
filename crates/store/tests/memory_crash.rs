//! Random requests, flushes and crashes on the modelled disk: what is there afterwards is what was flushed, plus what
//! the crash kept, and exactly what was flushed has been answered.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use bytes::Bytes;
use proptest::prelude::*;
use tessera_store::memory::{Crash, Flushing};
use tessera_store::{LogState, MemoryDisk, Store, StoreError};

use crate::contract::model::Model;
use crate::contract::{answer, id, records};

#[derive(Clone, Debug)]
enum Op {
    Append(u64),
    Vote(u8),
    Truncate(u64),
    Purge(u64),
    Flush(usize),
    Crash(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_u64..5).prop_map(Op::Append),
        3 => any::<u8>().prop_map(Op::Vote),
        3 => (0_u64..8).prop_map(Op::Truncate),
        2 => (0_u64..8).prop_map(Op::Purge),
        4 => (0_usize..6).prop_map(Op::Flush),
        2 => (0_usize..4).prop_map(Op::Crash),
    ]
}

struct Run {
    disk: MemoryDisk,
    store: Arc<dyn Store>,
    now: Model,
    /// The content of the disk.
    flushed: Model,
    pending: Vec<Waiting>,
}

/// A pending request.
struct Waiting {
    /// The content of the disk after the request.
    after: Model,
    accepted: bool,
    answer: Receiver<Result<(), StoreError>>,
}

impl Run {
    fn new() -> Self {
        let disk = MemoryDisk::new(Flushing::WhenTold);
        let store = disk.open().expect("an empty disk opens");
        let (now, flushed) = (Model::default(), Model::default());
        Run { disk, store, now, flushed, pending: Vec::new() }
    }

    fn request(&mut self, op: &Op) {
        let (done, answer) = answer();
        let accepted = match *op {
            Op::Append(count) => {
                self.now.term += 1;
                let begin = self.now.end();
                let records = records(self.now.term, begin..begin + count);
                self.store.append(records.clone(), done);
                self.now.append(&records)
            }
            Op::Vote(vote) => {
                let vote = Bytes::from(vec![vote]);
                self.store.save_vote(vote.clone(), done);
                self.now.vote = Some(vote);
                true
            }
            Op::Truncate(removed) => {
                let kept = self.now.end().checked_sub(removed + 1);
                let kept = kept.map(|index| id(self.now.term_of(index), index));
                self.store.truncate_after(kept, done);
                self.now.truncate(kept)
            }
            Op::Purge(count) => {
                let index = self.now.first() + count;
                let purged = id(self.now.term_of(index), index);
                self.store.purge_to(purged, done);
                self.now.purge(purged)
            }
            Op::Flush(_) | Op::Crash(_) => unreachable!("no request"),
        };
        self.pending.push(Waiting { after: self.now.clone(), accepted, answer });
    }

    fn flush(&mut self, n: usize) -> Result<(), TestCaseError> {
        let expected = n.min(self.pending.len());
        prop_assert_eq!(self.disk.flush_first(n), expected);
        for Waiting { after, accepted, answer } in self.pending.drain(..expected) {
            let answer = answer.try_recv().expect("what is flushed is answered");
            prop_assert_eq!(answer.is_ok(), accepted);
            self.flushed = after;
        }
        Ok(())
    }

    fn crash(&mut self, kept: usize) -> Result<(), TestCaseError> {
        self.disk.crash(if kept == 0 { Crash::LosePending } else { Crash::KeepFirst(kept) });
        for (n, Waiting { after, answer, .. }) in self.pending.drain(..).enumerate() {
            prop_assert_eq!(answer.try_recv().err(), Some(TryRecvError::Disconnected));
            if n < kept {
                self.flushed = after;
            }
        }
        self.store = self.disk.open().expect("a crash is no damage");
        // Terms stay apart, so that what was lost cannot be taken for what comes after.
        let term = self.now.term;
        self.flushed.term = term;
        self.now = self.flushed.clone();
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let state = self.store.log_state().expect("state");
        prop_assert_eq!(state, LogState { last_purged: self.now.purged, last: self.now.last() });
        prop_assert_eq!(&self.store.vote().expect("vote"), &self.now.vote);
        let log = self.store.read(self.now.first()..u64::MAX, u64::MAX).expect("the log");
        prop_assert_eq!(&log, &self.now.log);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_crash_leaves_what_was_flushed_and_what_it_kept(ops in prop::collection::vec(op(), 1..60)) {
        let mut run = Run::new();
        for op in &ops {
            match op {
                Op::Flush(n) => run.flush(*n)?,
                Op::Crash(kept) => run.crash(*kept)?,
                request => run.request(request),
            }
            run.compare()?;
        }
    }
}
