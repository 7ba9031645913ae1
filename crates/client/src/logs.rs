//! The output of a worker as one stream of bytes that goes on over broken connections: by offset, each byte once.

use std::collections::VecDeque;
use std::time::Duration;

use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::{StreamLogsRequest, StreamLogsResponse};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use crate::address::Address;
use crate::client::Client;
use crate::error::ClientError;
use crate::retry::{Next, Tries};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The try whose output it is, from 1.
    pub attempt: u32,
    /// Offset of its first byte, counted from the worker's start.
    pub offset: u64,
    /// Bytes before it that rotation has dropped and nobody will see.
    pub lost: u64,
    pub data: Vec<u8>,
}

/// A worker's output being read. Dropping it ends the reading.
#[derive(Debug)]
pub struct LogReader {
    client: Client,
    request: StreamLogsRequest,
    /// With when it was opened.
    stream: Option<(Address, Streaming<StreamLogsResponse>, Instant)>,
    pending: VecDeque<LogChunk>,
    over: bool,
}

impl Client {
    /// Reads the output that `request` names, from its offset on.
    #[must_use]
    pub fn stream_logs(&self, request: StreamLogsRequest) -> LogReader {
        LogReader { client: self.clone(), request, stream: None, pending: VecDeque::new(), over: false }
    }
}

impl LogReader {
    /// The offset after everything that was returned so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.request.offset
    }

    /// Has members that do not answer given up after `patience` from now on, instead of the client's deadline.
    pub fn within(&mut self, patience: Duration) -> &mut Self {
        self.client = self.client.with_deadline(patience);
        self
    }

    /// The next piece; `None` at the end. With `follow`, waits until there is more or the worker is over.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for an unknown job or worker, output that has expired, or a node that does not answer;
    /// [`ClientError::Unavailable`] when no member served it for the client's deadline. What was returned stays valid:
    /// calling again goes on after it.
    pub async fn next(&mut self) -> Result<Option<LogChunk>, ClientError> {
        let mut tries: Option<Tries> = None;
        loop {
            if let Some(chunk) = self.pending.pop_front() {
                return Ok(Some(chunk));
            }
            if self.over {
                return Ok(None);
            }
            let Err((from, status)) = self.advance().await else { continue };
            // What broke before a stream that held for longer than one call may take has nothing to do with it.
            let deadline = self.client.settings().deadline;
            if self.stream.take().is_some_and(|(.., opened)| opened.elapsed() > deadline) {
                tries = None;
            }
            let tries = tries.get_or_insert_with(|| Tries::new(&self.client, deadline, None));
            match tries.failed(&self.client, &from, &status) {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::GiveUp(error) => return Err(error),
            }
        }
    }

    async fn advance(&mut self) -> Result<(), (Address, Status)> {
        let Some((address, stream, _)) = self.stream.as_mut() else {
            let (address, stream) = self.open().await?;
            self.stream = Some((address, stream, Instant::now()));
            return Ok(());
        };
        match stream.message().await {
            Ok(Some(piece)) => self.take(piece),
            Ok(None) => self.over = true,
            Err(status) => return Err((address.clone(), status)),
        }
        Ok(())
    }

    async fn open(&self) -> Result<(Address, Streaming<StreamLogsResponse>), (Address, Status)> {
        let target = self.client.routes().current();
        let settings = self.client.settings();
        let mut request = tonic::Request::new(self.request);
        settings.headers.add_to(request.metadata_mut());
        let mut stub = JobServiceClient::new(target.channel).max_decoding_message_size(settings.max_message_bytes);
        let opening = tokio::time::timeout(settings.deadline.max(Duration::from_millis(1)), stub.stream_logs(request));
        match opening.await {
            Ok(Ok(response)) => {
                self.client.routes().answered(&target.address, Instant::now());
                Ok((target.address, response.into_inner()))
            }
            Ok(Err(status)) => Err((target.address, status)),
            Err(_elapsed) => Err((target.address, Status::unavailable("the output could not be opened in time"))),
        }
    }

    /// Keeps what is new of `piece`, and stays with the attempt that the first piece came from.
    fn take(&mut self, piece: StreamLogsResponse) {
        let expected = self.request.offset;
        if piece.attempt != 0 {
            self.request.attempt = piece.attempt;
        }
        let known = expected.saturating_sub(piece.offset);
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(piece.data.len());
        let data = piece.data[known..].to_vec();
        if data.is_empty() {
            return;
        }
        let offset = piece.offset.max(expected);
        self.request.offset = offset + data.len() as u64;
        self.pending.push_back(LogChunk { attempt: self.request.attempt, offset, lost: offset - expected, data });
    }
}
