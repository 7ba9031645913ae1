//! Checkpoints: folders that programs wrote to go on from, kept where they outlive the program, its node, or both.
//!
//! A checkpoint is a folder at one moment. [`save`] packs it into a stream, cuts the stream into chunks, stores them,
//! and writes a manifest last: with the manifest the checkpoint is complete, without it there is none, whatever
//! failed in between. [`restore`] is the way back: it believes nothing before its hash is right, and the folder
//! appears under its name when all of it is there. Chunks that an earlier checkpoint of the same program has where they
//! are needed are neither written nor sent again. Nothing keeps more than four chunks in memory.
//!
//! A checkpoint costs what its files hold: nothing is read, stored or sent of their holes, and a file of several names
//! is in it once. So sizes count neither.
//!
//! Where chunks and manifests are is behind one trait, [`Store`]. [`Objects`] keeps them in a folder, which is an
//! agent's own disk or a shared file system, or in a bucket that speaks S3. [`Remote`] reads what another agent has
//! on its disk, which that one hands out with [`serve`]. [`copy`] brings a checkpoint from one store to another; what
//! was copied before it failed is not copied again.
//!
//! This crate knows files and stores. What a job is, who may have which checkpoint, when one is made and how many are
//! kept is decided by those who call it.

mod before;
mod chunks;
mod copy;
mod earlier;
mod emptied;
mod error;
mod extents;
mod file_system;
mod further_name;
mod id;
mod limits;
mod measure;
mod objects;
mod pack;
mod published;
mod remote;
mod restore;
mod save;
mod serve;
mod space;
mod store;
mod unpack;
mod walk;

pub use copy::copy;
pub use error::Error;
pub use id::{BadCheckpointId, CheckpointId};
pub use limits::Limits;
pub use measure::{Measured, marks, measure};
pub use objects::Objects;
pub use published::{BadManifest, Chunk, FORMAT, Hash, Published};
pub use remote::Remote;
pub use restore::{Owner, restore};
pub use save::save;
pub use serve::{Guard, serve};
pub use space::{Reservation, free_bytes};
pub use store::{Store, StoredChunk, read_chunk, read_published};

/// Messages and service of `tessera.checkpoint.v1`.
#[allow(clippy::all, reason = "generated; documented in the .proto file")]
mod wire {
    tonic::include_proto!("tessera.checkpoint.v1");
}
