//! Workers: their names, the terms on which they run, their folders, how they are launched, watched, and searched for
//! when their supervisor is gone.

mod account;
mod addresses;
mod below;
mod blank;
mod ended;
mod environment;
pub mod folder;
mod going_on;
mod id;
mod image;
mod known;
pub mod launch;
mod launch_error;
pub mod link;
mod program;
mod settled;
mod slices_file;
pub(crate) mod socket;
pub mod spare;
mod straggler;
pub mod sweep;
mod terms;
mod used;
mod vcard;
mod written;

pub use account::{Account, AccountError, Accounts, LEAST_UID, NotARange, Person, RunAs, UserIds, closed_to_others};
pub use addresses::Addresses;

pub use ended::{Budget, Ended};
pub(crate) use environment::{
    INHERITED, WORKER_DIR, falls_back, has_servers, inherited as inherited_environment, is_cooperative, is_elastic,
    is_transparent,
};
pub(crate) use folder::WORK_FOLDER;
pub use id::WorkerId;
pub(crate) use image::snapshot_in;
pub(crate) use settled::Gone;
pub(crate) use straggler::Straggler;
pub use terms::{Fence, Lease, StopPolicy, StopSignal, Term};
pub use used::{Measurable, Meter, WorkerUse};
pub(crate) use written::written_by;
