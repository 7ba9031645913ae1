//! Reasons for which a worker with a device ended otherwise than by its program.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitStatus;
use std::time::Duration;

use super::word;
use crate::supervisor::status::Cause;
use crate::supervisor::unrunnable::Unrunnable;

/// The reason for the end of a worker that ended otherwise than by its program.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("the plan of this worker's device cannot be read: {0}; agent and supervisor are of different releases")]
    Plan(#[from] serde_json::Error),
    #[error("this worker cannot be prepared: {0}")]
    System(#[from] io::Error),
    #[error("the slice server {0} cannot be started: {1}; see `[device] python` of the agent's configuration")]
    NoServer(String, #[source] io::Error),
    #[error("the slice server for {0} ended before it listened; what it said is in the error output of the job")]
    Ended(String),
    #[error(
        "the slice server for {0} did not listen in time; see `[device] start_within` of the agent's configuration"
    )]
    Late(String),
    #[error(
        "the slice servers of this card did not find each other in time: those of {others} were to come to {address}; what they \
         said is in the error output of the job"
    )]
    Apart { others: String, address: String },
    #[error(
        "port {port}, at which the slice servers of this card were to be met, is taken by another process; {failed}"
    )]
    PortTaken { port: u16, failed: String },
    #[error("the first slice server of this program's card did not serve it: {0}")]
    NoCard(String),
    #[error("a part of the card on another node was lost, and with it what the program kept there")]
    PartLost,
    #[error("the worker was stopped by signal {0} before its program began")]
    Stopped(i32),
    #[error("{}", .0.explained())]
    Program(Unrunnable),
    #[error("how the slice server is reached cannot be told: {0}")]
    Reach(String),
    #[error("the slice server for {0} ended ({1}), and nobody had asked for that")]
    Died(String, ExitStatus),
    #[error("the host of the program was not heard of for {} s; its card is given back", .0.as_secs())]
    HostLost(Duration),
    #[error("the node of the program was not heard of for {} s by the slice server of its card", .0.as_secs())]
    ProgramLost(Duration),
}

impl Problem {
    /// Names the port for which a server has ended before it listened, if one of those that the pool has given is
    /// another process's.
    pub(super) fn with_port_of(self, given: &[SocketAddr]) -> Self {
        let is_taken =
            |at: &&SocketAddr| TcpListener::bind(at).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        match given.iter().find(is_taken).filter(|_| matches!(self, Self::Ended(_))) {
            Some(at) => Self::PortTaken { port: at.port(), failed: self.to_string() },
            None => self,
        }
    }

    /// The cause of the worker's end; `None` if the program that the job names cannot be run, for which no node is to
    /// blame. When the node could not give what the job may have, the job is tried elsewhere.
    pub(super) fn cause(&self) -> Option<Cause> {
        match self {
            // The job names it: that is nothing of which a node is to blame.
            Self::Program(_) => None,
            Self::HostLost(_) => Some(Cause::HostLost),
            Self::PortTaken { .. } => Some(Cause::PortTaken),
            _ => Some(Cause::NodeFault),
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Program(unrunnable) => unrunnable.exit_code(),
            _ => word::CODE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_somebody_else_is_no_fault_of_the_node() {
        let others = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = others.local_addr().expect("it has one");
        let ended = || Problem::Ended("cpu".to_owned());
        let problem = ended().with_port_of(&[taken]);
        assert_eq!(problem.cause(), Some(Cause::PortTaken));
        assert!(problem.to_string().starts_with(&format!("port {}, at which", taken.port())), "{problem}");
        let late = Problem::Late("cpu".to_owned()).with_port_of(&[taken]);
        assert_eq!(late.cause(), Some(Cause::NodeFault), "it may be its own");
        drop(others);
        assert_eq!(ended().with_port_of(&[taken]).cause(), Some(Cause::NodeFault));
    }
}
