//! Errors with which a member ended.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tessera_consensus::{Identity, StartError, StopReason};
use tessera_store::StoreError;

use crate::config::InvalidConfig;
use crate::grpc::ServeError;

/// The time for which a process that was given an identity waits for the others to admit it.
pub(crate) const ADMISSION: Duration = Duration::from_secs(60);

/// The reason for which a member ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    #[error("the store in the data folder cannot be opened")]
    Store(#[from] StoreError),
    #[error("{address} cannot be listened on; is another process there?")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("no thread can be started for consensus; look at the limits of processes and of open files")]
    NoThread(#[source] io::Error),
    #[error("this member cannot start")]
    Start(#[from] StartError),
    #[error("this member stopped")]
    Stopped(#[source] StopReason),
    /// The process was told who it is, and nobody admitted it.
    #[error(
        "this process was told that it is {identity}, and was not admitted within {}; start it again, and then \
         initialize the cluster or add this member anew",
        humane(ADMISSION)
    )]
    NotAdmitted { identity: Identity },
    /// The gRPC server of a process without identity failed.
    #[error("the server failed")]
    Waiting(#[from] tonic::transport::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The server of the pages ended, which it never should.
    #[error("the server of metrics, health and the console ended; report this")]
    Pages,
}

fn humane(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
