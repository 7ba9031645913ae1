//! A worker's place at the table: the connection to its supervisor, through which it is told to stand still or go on.

use std::io;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::cgroup::{GroupRecord, WorkerGroup};
use crate::supervisor::message::Request;
use crate::worker::folder::WorkerFolder;
use crate::worker::socket::{connect, send};

/// The longest time that a supervisor may take to let this agent in, or to take a request.
const PATIENCE: Duration = Duration::from_millis(200);

/// One worker.
#[derive(Debug)]
pub struct Seat {
    stream: UnixStream,
    group: WorkerGroup,
}

impl Seat {
    /// Takes a place for the worker in a folder.
    ///
    /// # Errors
    /// When its supervisor is not there, or does not answer.
    pub async fn take(folder: &WorkerFolder, group: GroupRecord) -> io::Result<Self> {
        let stream = timeout(PATIENCE, connect(folder)).await??;
        Ok(Self { stream, group: WorkerGroup::from_record(group) })
    }

    /// Has the worker stand still, for so long at most.
    ///
    /// # Errors
    /// When its supervisor is not there any more, or does not listen.
    pub async fn rest(&mut self, at_most: Duration) -> io::Result<()> {
        self.tell(Request::Rest { at_most }).await
    }

    /// Has it go on.
    ///
    /// # Errors
    /// When its supervisor is not there any more, or does not listen.
    pub async fn go_on(&mut self) -> io::Result<()> {
        self.tell(Request::GoOn).await
    }

    /// Processor time that it has used.
    pub fn used(&self) -> Duration {
        self.group.processor_time()
    }

    /// Ends when its supervisor does. What that says meanwhile is read and left: the worker's link hears it, too.
    pub async fn ended(&self) {
        while self.stream.readable().await.is_ok() && self.drain() {}
    }

    /// Reads what has come; answers whether more can come.
    fn drain(&self) -> bool {
        let mut buffer = [0; 8192];
        loop {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    async fn tell(&mut self, request: Request) -> io::Result<()> {
        if !self.drain() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        timeout(PATIENCE, send(&mut self.stream, &request)).await?
    }
}
