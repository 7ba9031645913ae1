//! How a supervisor that was started ahead of its worker learns whose it is.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::unistd::{dup2_stderr, setsid};

use super::LOG_FILE;
use super::message::Inbox;

/// Waits for the folder, and leads what goes wrong into its log. `None` when the agent ended before it had a worker.
pub fn folder() -> io::Result<Option<PathBuf>> {
    // What is meant for the agent's terminal must not end it.
    let _ = setsid();
    // Without a buffer: what the agent says next is read by others.
    let mut agent = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut inbox = Inbox::default();
    let folder = loop {
        if let Some(folder) = inbox.take::<PathBuf>().map_err(io::Error::other)? {
            break folder;
        }
        let mut byte = [0];
        match agent.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => inbox.push(&byte),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    };
    dup2_stderr(OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE))?)?;
    Ok(Some(folder))
}
