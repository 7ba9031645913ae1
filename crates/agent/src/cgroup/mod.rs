//! Control groups of workers: what a worker may use, and the proof that nothing of it is left.
//!
//! Linux offers them in two versions, often side by side ("hybrid"). [`Hierarchies`] finds out what this machine has;
//! [`WorkerGroup`] is the group of one worker over all hierarchies that it needs: one that *tracks* its processes
//! (version 2 where there is any, else a version 1 freezer) and those that limit CPU and memory. What cannot be had is
//! never passed over in silence: it is written into [`GroupRecord::missing`], which goes into the worker's status.

mod group;
mod measured;
mod mounts;

pub use group::{GroupRecord, Limits, Version, WorkerGroup};
pub use measured::GroupUse;
pub use mounts::{GROUP_OF_ALL, Hierarchies, leave_service_groups, remove_empty_groups};

use std::path::PathBuf;

/// A failed operation on a control group.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} control group file {}; check that the agent may write there (root, or a delegated subtree)", path.display())]
pub struct CgroupError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}
