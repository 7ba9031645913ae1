//! The messages on a supervisor's socket, and the files that it begins with and leaves behind.
//!
//! Every message is a frame: four bytes of length, most significant first, then JSON. The agent sends [`Request`]s; the
//! supervisor answers each with a [`Notice`] and sends one by itself whenever the status changes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::image::ImagePlan;
use super::status::{Cause, Status};
use crate::cgroup::Limits;
use crate::worker::{Account, Fence, Lease, StopPolicy, WorkerId};

/// Longest frame that is taken. A status is about a kilobyte.
pub const MAX_FRAME: usize = 256 * 1024;

/// Everything a supervisor needs to know, written by the agent into the worker's folder before the supervisor starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub worker: WorkerId,
    /// Its job, for people.
    pub job: u64,
    /// The time at which the agent began to start it, in milliseconds since the Unix epoch.
    pub ordered_unix_ms: Option<u64>,
    pub fence: Fence,
    /// Until when it may run; `None`: it may run on without (on_disconnect: keep).
    pub lease: Option<Lease>,
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// Under which identity it runs; `None`: that of the agent.
    pub account: Option<Account>,
    /// True if it runs in a PID namespace, which ends with its supervisor. A host that promised one and cannot make it
    /// does not start the worker.
    pub contained: bool,
    /// True if it begins as a process of ours that gives it a device.
    pub has_device: bool,
    /// The plan by which its processes are dumped when it is to be saved, and restored; `None`: its job does not want
    /// that.
    pub image: Option<ImagePlan>,
    /// The process that runs beside the program and has its card; `None`: there is none.
    pub companion: Option<CompanionPlan>,
    /// The whole environment.
    pub environment: BTreeMap<String, String>,
    /// The folder in which the program starts.
    pub working_directory: PathBuf,
    pub limits: Limits,
    /// Its control group, below each hierarchy's root.
    pub cgroup: String,
    /// The group under which all control groups of this node lie.
    pub cgroup_root: String,
    /// The stop policy where the reason for the stop gives none: time limit, shutdown of the host. A lease that expires
    /// takes its signal from here.
    pub stop: StopPolicy,
    pub time_limit: Option<Duration>,
    /// Bytes of one file of output.
    pub output_file_bytes: u64,
    /// Files kept of each output.
    pub output_files: u32,
    /// The longest time that a kill may take before it counts as unconfirmed.
    pub kill_confirmation: Duration,
    /// The furthest that a lease may reach from now, whoever grants it.
    pub longest_lease: Duration,
}

/// A process beside the program of a worker, in the same control group and under the same identity, and in no image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionPlan {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Memory of the whole card in MiB: what is saved of it is no more.
    pub card_mib: u64,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The order is durable: start the process.
    Begin,
    Renew {
        fence: Fence,
        lease: Lease,
    },
    Stop {
        fence: Fence,
        policy: StopPolicy,
        cause: Cause,
        /// True if its job is to resume later: its processes are dumped first, where they can be.
        save: bool,
    },
    /// Dump its processes and let them go on, unless they are being dumped.
    Snapshot {
        /// Its number, of the agent's choice.
        number: u64,
    },
    /// Let its processes stand still, because it is the turn of others on its card.
    Rest {
        /// They go on after that time by themselves, unless they are told otherwise.
        at_most: Duration,
    },
    /// Let its processes go on.
    GoOn,
    /// Only say how things are.
    Status,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The reason why the request was refused; `None`: it was not.
    pub refused: Option<String>,
    pub status: Status,
}

/// A frame that cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`MAX_FRAME`].
    #[error("a frame of {0} bytes is longer than the {MAX_FRAME} that are taken; the connection must be closed")]
    TooLong(usize),
    #[error("a frame does not hold a message of this release; the connection must be closed")]
    Malformed(#[source] serde_json::Error),
}

/// Makes a frame.
///
/// # Errors
/// When the message is too long.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let body = serde_json::to_vec(message).map_err(FrameError::Malformed)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME);
    let length = length.ok_or(FrameError::TooLong(body.len()))?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Bytes received so far, cut into messages.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds what was received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message.
    ///
    /// # Errors
    /// When the peer does not speak this protocol.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = self.bytes.get(4..4 + length) else { return Ok(None) };
        let message = serde_json::from_slice(body).map_err(FrameError::Malformed)?;
        self.bytes.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cutting() {
        let mut wire = encode(&Request::Begin).expect("short");
        wire.extend(encode(&Request::Status).expect("short"));
        let mut inbox = Inbox::default();
        let mut seen = Vec::new();
        for byte in wire {
            inbox.push(&[byte]);
            while let Some(request) = inbox.take::<Request>().expect("well formed") {
                seen.push(request);
            }
        }
        assert_eq!(seen, [Request::Begin, Request::Status]);
    }

    #[test]
    fn hostile_frames_are_refused() {
        let mut inbox = Inbox::default();
        inbox.push(&u32::MAX.to_be_bytes());
        assert!(matches!(inbox.take::<Request>(), Err(FrameError::TooLong(_))));
        let mut inbox = Inbox::default();
        inbox.push(&[0, 0, 0, 2, b'{', b'x']);
        assert!(matches!(inbox.take::<Request>(), Err(FrameError::Malformed(_))));
    }
}
