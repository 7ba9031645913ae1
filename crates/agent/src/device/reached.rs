//! The address of a slice server for a program on another host: the process that started the server writes it to a file
//! of the worker's own folder, and the agent reads it for the submitter of the job.

use std::fs::{OpenOptions, rename};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::word::read;

const FILE: &str = ".device";
/// Most bytes of it.
const LONGEST: u64 = 4096;

/// A slice server that listens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    /// As `tcp:host:port`.
    pub address: String,
    /// The secret of the server: a client that knows it may compute there.
    pub token: String,
    /// The longest silence of the program's host before the card is given back.
    pub lease: Duration,
}

impl Reached {
    /// Tells it. The file is whole or not there, and nobody else reads it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn tell(&self, work: &Path) -> io::Result<()> {
        let new = work.join(format!("{FILE}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        rename(new, work.join(FILE))
    }

    /// Returns what the worker wrote; `None` as long as its server does not listen.
    pub(crate) fn told(work: &Path) -> Option<Self> {
        serde_json::from_slice(&read(&work.join(FILE), LONGEST)?).ok()
    }
}
