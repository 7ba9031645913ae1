//! Checkpoints of the work on a node: saved, kept, handed to other agents, and brought to where a job goes on.
//!
//! ```text
//! DATA/checkpoints/            the node's own store: what its workers saved, and copies for other nodes
//! DATA/checkpoint-tickets/ID   what whoever fetches a checkpoint must show, and whether it lies in the shared store
//! DATA/checkpoint-store        which store was found under the name of the shared one
//! workers/WORKER/checkpoint/   TESSERA_CHECKPOINT_DIR: what the program writes, or finds there
//! workers/WORKER/control.sock  TESSERA_CONTROL: where a program is asked to save while it runs
//! workers/WORKER/saved.json    the newest part of a checkpoint that was saved of the worker
//! ```
//!
//! A worker's end is told to the leader after what it saved is kept: so its blocks are not free, and the job is not
//! granted elsewhere, before the checkpoint that it is to go on from is there. What is in a checkpoint, and how one is
//! found whole or not at all, is said in `tessera_checkpoint`; which are needed and where is the ledger's to say.

mod asking;
mod control;
mod dumped;
mod meters;
mod patience;
mod saver;
mod shared;
mod shelf;
mod tending;
mod tickets;

use tessera_checkpoint::CheckpointId;
use tessera_ledger::{CheckpointKey, Epoch, JobId, PartKey, Rank};

pub(crate) use control::CONTROL_FILE;
pub(crate) use saver::Saver;
pub use saver::is_due_at_the_end;
pub(crate) use shelf::{Hindrance, Shelf, Unusable};

/// The name of a part in checkpoint stores.
const fn id_of(part: &PartKey) -> CheckpointId {
    CheckpointId {
        job: part.job.0,
        attempt: part.checkpoint.attempt,
        epoch: part.epoch.0,
        sequence: part.checkpoint.sequence,
        rank: part.rank.0,
    }
}

const fn part_of(id: &CheckpointId) -> PartKey {
    PartKey {
        job: JobId(id.job),
        checkpoint: CheckpointKey { attempt: id.attempt, sequence: id.sequence },
        epoch: Epoch(id.epoch),
        rank: Rank(id.rank),
    }
}
