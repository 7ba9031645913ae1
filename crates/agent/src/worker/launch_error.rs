//! The reasons for which a worker could not be prepared, and whose fault each of them is.

use std::io;
use std::path::PathBuf;

use tessera_devices::DeviceError;

use super::account::AccountError;
use crate::device::MOST_SLICES;
use crate::supervisor::status::Cause;

/// A worker could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is neither a command nor a script.
    #[error("the job has neither a command nor a script")]
    NothingToRun,
    /// The job wants a device, and there is none.
    #[error("this node serves no devices: `[device]` is missing from its agent's configuration, or did not work")]
    NoDevice,
    /// The job is to be dumped or goes on from an image of its processes, and nothing here does that.
    #[error(
        "the job is saved by images of its processes, and CRIU cannot be used here: see the node's labels, and start \
         its agent anew when CRIU was changed"
    )]
    NoCriu,
    /// A device has too many slices.
    #[error(
        "its virtual card has {0} slices, and a device has {MOST_SLICES} at most: ask for less, or for larger cards \
         (`models`)"
    )]
    TooManySlices(usize),
    /// The socket of the slice server would lie too deep.
    #[error("{} has too long a name, and no socket can lie there; give the agent a shorter data folder", .0.display())]
    LongPath(PathBuf),
    /// The program of a device cannot be wrapped.
    #[error("the plan of the worker's device cannot be written: {0}")]
    Plan(#[from] serde_json::Error),
    /// The cards cannot be handed out.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// The same worker was here before.
    #[error("the worker was started here before; it is never started twice")]
    StartedBefore,
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A file cannot be written.
    #[error("the worker's folder cannot be prepared: {0}")]
    Folder(#[source] io::Error),
    #[error("the supervisor `{}` cannot be started: {source}", program.display())]
    Supervisor {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    /// The party at fault: the job itself, or this node, which cannot give something to any job.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        match self {
            Self::NothingToRun
            | Self::TooManySlices(_)
            | Self::Account(AccountError::Unknown(_) | AccountError::Closed { .. }) => Cause::StartFailed,
            Self::NoDevice
            | Self::NoCriu
            | Self::LongPath(_)
            | Self::Plan(_)
            | Self::Devices(_)
            | Self::StartedBefore
            | Self::Account(_)
            | Self::Folder(_)
            | Self::Supervisor { .. } => Cause::NodeFault,
        }
    }
}
