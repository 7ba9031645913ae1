//! The assignment of a worker to a supervisor that was started ahead of it: the agent names the worker's folder.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::unistd::dup2_stderr;
use serde::de::DeserializeOwned;

use super::LOG_FILE;
use super::early::{Ahead, Early};
use super::message::Inbox;

/// Makes what any worker needs, waits for the folder of one, and leads what goes wrong into its log. `None` when the
/// agent ended before it had a worker.
pub(super) fn folder() -> io::Result<Option<(PathBuf, Early)>> {
    // Without a buffer: what the agent says next is read by others.
    let mut agent = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Some(ahead) = said::<Ahead>(&mut agent)? else { return Ok(None) };
    let early = Early::make(&ahead).map_err(io::Error::other)?;
    let Some(folder) = said::<PathBuf>(&mut agent)? else {
        early.leave();
        return Ok(None);
    };
    dup2_stderr(OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE))?)?;
    Ok(Some((folder, early)))
}

/// Receives the next message of the agent; `None` when the agent has gone.
fn said<M: DeserializeOwned>(agent: &mut File) -> io::Result<Option<M>> {
    let mut inbox = Inbox::default();
    loop {
        if let Some(said) = inbox.take::<M>().map_err(io::Error::other)? {
            return Ok(Some(said));
        }
        let mut byte = [0];
        match agent.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => inbox.push(&byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
