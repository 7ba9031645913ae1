//! The socket of a supervisor, as agents use it.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::folder::WorkerFolder;
use crate::supervisor::SOCKET_FILE;
use crate::supervisor::message::{Inbox, Notice, Request, encode};
use crate::supervisor::status::Status;

/// The time that a supervisor may take to say how its worker stands.
const ANSWER: Duration = Duration::from_millis(500);

pub(crate) async fn send(stream: &mut UnixStream, request: &Request) -> io::Result<()> {
    let frame = encode(request).map_err(io::Error::other)?;
    stream.write_all(&frame).await
}

/// Connects through the open folder: the path of a socket may have 107 bytes only, that of a folder any number.
pub(crate) async fn connect(folder: &WorkerFolder) -> io::Result<UnixStream> {
    let opened = tokio::fs::File::open(folder.path()).await?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET_FILE}", opened.as_raw_fd())).await
}

/// Asks the supervisor in a folder how its worker stands; `None`: there is none, or it does not answer in time.
pub(crate) async fn ask_status(folder: &WorkerFolder) -> Option<Status> {
    let ask = async {
        let mut stream = connect(folder).await.ok()?;
        send(&mut stream, &Request::Status).await.ok()?;
        let mut inbox = Inbox::default();
        let mut buffer = [0; 4096];
        loop {
            let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
            inbox.push(&buffer[..length]);
            if let Some(notice) = inbox.take::<Notice>().ok()? {
                return Some(notice.status);
            }
        }
    };
    timeout(ANSWER, ask).await.ok().flatten()
}
