//! Reads a worker's output at its agent and passes it on.

use std::sync::Arc;
use std::time::Duration;

use tessera_api::error::reason_of;
use tessera_api::v1::worker_service_client::WorkerServiceClient;
use tessera_api::v1::{self, ErrorReason};
use tessera_connection::{KeepAlive, Outbound, Terms};
use tessera_ledger::State;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use super::locate::{Location, Wanted, locate};
use crate::services::refusal;

/// The longest time that an agent may take to accept a connection; and the silence after which it is probed, and given
/// up when it does not answer.
pub(in crate::services) const TERMS: Terms = {
    let asked_after = Duration::from_secs(5);
    Terms {
        connect_timeout: Some(Duration::from_secs(2)),
        keep_alive: Some(KeepAlive { interval: asked_after, timeout: asked_after, while_idle: false }),
        window_bytes: None,
    }
};

/// The time for which a follower is kept while the agent cannot be reached, before it gets the error.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause before an agent is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Passes on the output of one worker.
pub(super) struct Proxy {
    pub outbound: Outbound,
    pub wanted: Wanted,
    pub stream: v1::LogStream,
    /// The byte that the reader lacks first.
    pub offset: u64,
    pub follow: bool,
    pub states: watch::Receiver<Arc<State>>,
    pub pieces: mpsc::Sender<Result<v1::StreamLogsResponse, Status>>,
}

/// The end of one conversation with an agent.
enum Ended {
    /// All that was asked for was passed on.
    Done,
    /// The reader has left.
    Left,
    /// The agent cannot be reached, or was lost.
    Unreachable(Status),
    /// The agent refused.
    Refused(Status),
}

impl Proxy {
    /// Runs until everything was passed on.
    ///
    /// # Errors
    /// What the reader is told at the end of its stream.
    pub(super) async fn run(mut self) -> Result<(), Status> {
        let mut location = self.wait_for_location().await?;
        // From the first try on, it is that one that is read.
        self.wanted.attempt = location.attempt;
        let mut silent_since = Instant::now();
        loop {
            let before = self.offset;
            let status = match self.converse(&location).await {
                Ended::Done | Ended::Left => return Ok(()),
                Ended::Refused(status) if self.may_come_yet(&status, &location) => status,
                Ended::Refused(status) => return Err(expired(&location, status)),
                Ended::Unreachable(status) => unreachable(&location, &status),
            };
            if self.offset != before {
                silent_since = Instant::now();
            }
            if !self.follow || (silent_since.elapsed() > PATIENCE && !location.perhaps_unknown) {
                return Err(status);
            }
            sleep(PAUSE).await;
            // The agent may have come back at another address, and the worker may have started.
            location = self.wait_for_location().await?;
        }
    }

    /// A worker that was just granted is not known to its agent before the order has come.
    fn may_come_yet(&self, status: &Status, location: &Location) -> bool {
        self.follow && location.perhaps_unknown && reason_of(status) == Some(ErrorReason::WorkerUnknown)
    }

    async fn wait_for_location(&mut self) -> Result<Location, Status> {
        loop {
            let located = locate(&self.states.borrow_and_update(), &self.wanted)?;
            if let Some(location) = located {
                return Ok(location);
            }
            if self.states.changed().await.is_err() {
                return Err(refusal::member_stopping().into());
            }
        }
    }

    async fn converse(&mut self, location: &Location) -> Ended {
        let channel = match self.outbound.connect(&location.address, &TERMS).await {
            Ok(channel) => channel,
            Err(error) => return Ended::Unreachable(Status::unavailable(error.to_string())),
        };
        let request = v1::ReadLogsRequest {
            worker: Some(location.worker),
            stream: self.stream.into(),
            offset: self.offset,
            follow: self.follow,
        };
        let mut pieces = match WorkerServiceClient::new(channel).read_logs(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return judge(status),
        };
        loop {
            match pieces.message().await {
                Ok(None) => return Ended::Done,
                Err(status) => return judge(status),
                Ok(Some(v1::ReadLogsResponse { offset, data })) => {
                    self.offset = offset.saturating_add(data.len() as u64);
                    let piece = v1::StreamLogsResponse { offset, data, attempt: location.attempt };
                    if self.pieces.send(Ok(piece)).await.is_err() {
                        return Ended::Left;
                    }
                }
            }
        }
    }
}

/// A refusal that names its reason comes from the agent; everything else from what lies between.
fn judge(status: Status) -> Ended {
    match (reason_of(&status), status.code()) {
        (Some(_), _) => Ended::Refused(status),
        (None, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal) => Ended::Unreachable(status),
        (None, _) => Ended::Refused(status),
    }
}

/// Says of a worker that has run, and of which its node knows nothing, that its output was kept as long as it had to
/// be.
fn expired(location: &Location, status: Status) -> Status {
    if !location.has_ended || reason_of(&status) != Some(ErrorReason::WorkerUnknown) {
        return status;
    }
    let sentence = format!(
        "nothing of the output of attempt {} is on node {:?} any more: it was kept as long as its job, its node or the \
         pool says, or the data folder of that node was removed",
        location.attempt, location.node
    );
    refusal::because(ErrorReason::OutputExpired, sentence)
}

fn unreachable(location: &Location, status: &Status) -> Status {
    let sentence = format!(
        "node {:?} at {} does not answer: {}; retry from the same offset, or look at the node",
        location.node,
        location.address,
        status.message()
    );
    refusal::because(ErrorReason::NodeUnreachable, sentence)
}
