//! Making a backup, a piece at a time.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tessera_ledger::wire::{SnapshotChunks, encode_snapshot};
use tessera_ledger::{JobState, State};

use super::{Counts, FORMAT, Header, MAGIC};
use crate::pool::PoolHandle;

/// The bytes of a backup, in pieces of about a mebibyte.
pub struct Encoder {
    chunks: SnapshotChunks,
    hash: Sha256,
    next: Next,
}

/// The next part of the backup to encode.
enum Next {
    Header(Box<Header>),
    Chunks,
    Nothing,
}

impl Encoder {
    /// Creates an encoder of a state of this member's ledger, with a header that describes it.
    #[must_use]
    pub fn of(state: Arc<State>, pool: &PoolHandle) -> Self {
        let header = Header {
            cluster_id: pool.consensus().identity().cluster.as_str().to_owned(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            level: state.level().number(),
            revision: state.revision().0,
            term: pool.status().borrow().term.0,
            log_time_ms: state.time().0,
            taken_at_ms: pool.right_time().0,
            counts: counts(&state),
        };
        Self::new(header, &state)
    }

    /// Creates an encoder of a state under a given header, which must describe that state.
    #[must_use]
    pub fn new(header: Header, state: &State) -> Self {
        Self { chunks: encode_snapshot(state), hash: Sha256::new(), next: Next::Header(Box::new(header)) }
    }

    fn hashed(&mut self, piece: BytesMut) -> Bytes {
        self.hash.update(&piece);
        piece.freeze()
    }
}

pub(super) fn counts(state: &State) -> Counts {
    let jobs = JobState::ALL.iter().map(|job_state| (job_state.name().to_owned(), state.job_count(*job_state)));
    Counts {
        nodes: state.node_count(),
        cards: state.card_count(),
        queues: state.queue_count(),
        allocations: state.allocations().count() as u64,
        jobs: jobs.filter(|(_, count)| *count > 0).collect(),
    }
}

impl Iterator for Encoder {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.next, Next::Chunks) {
            Next::Header(header) => {
                let header = serde_json::to_string(&header).expect("numbers and texts have a form in JSON");
                let lines = format!("{MAGIC}{FORMAT}\n{header}\n");
                Some(self.hashed(BytesMut::from(lines.as_bytes())))
            }
            Next::Chunks => {
                let chunk = self.chunks.next().unwrap_or_default();
                let mut piece = BytesMut::with_capacity(chunk.len() + 64);
                piece.put_u32(u32::try_from(chunk.len()).expect("a chunk has a few mebibytes"));
                piece.put_slice(&chunk);
                if !chunk.is_empty() {
                    return Some(self.hashed(piece));
                }
                self.next = Next::Nothing;
                self.hash.update(&piece);
                piece.put_slice(&self.hash.finalize_reset());
                Some(piece.freeze())
            }
            Next::Nothing => {
                self.next = Next::Nothing;
                None
            }
        }
    }
}
