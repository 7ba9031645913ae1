//! Resources made before there is a worker for them: a folder, and a supervisor that waits to be told for which worker.
//!
//! Loading this program and making files take longer than all the rest of a launch. So one process of it waits ahead,
//! and one folder; when they are used, the next are made, while the worker that took them runs. Both go when the agent
//! does.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::process::Command;

use super::blank::BlankFolder;
use super::folder::{WorkerFolder, WorkerFolders};
use super::launch::Prepared;
use crate::config::SupervisorCommand;
use crate::supervisor::LOG_FILE;
use crate::supervisor::early::Ahead;
use crate::supervisor::message::encode;

/// The supervisor and the folder that wait, if they do. Clones speak of the same.
#[derive(Clone, Debug, Default)]
pub struct Spare {
    waiting: Arc<Mutex<Waiting>>,
    /// Held by whoever makes what waits: of several that had started a supervisor each, all but one would be for
    /// nothing.
    making: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Waiting {
    supervisor: Option<Prepared>,
    folder: Option<BlankFolder>,
}

impl Spare {
    /// A supervisor for the worker in `folder`: the one that waits, or else a new one.
    ///
    /// # Errors
    /// None waits, and none can be started.
    pub fn take(&self, command: &SupervisorCommand, folder: &WorkerFolder) -> io::Result<Prepared> {
        let waiting = self.lock().supervisor.take();
        if let Some(mut waiting) = waiting {
            // Somebody may have killed it: then a new one is started, as if none had waited.
            match tell(&mut waiting, folder) {
                Ok(()) => return Ok(waiting),
                Err(error) => tracing::debug!(%error, "the supervisor that waited is gone"),
            }
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.file(LOG_FILE))?;
        start(command, Some(folder), Stdio::from(log))
    }

    /// A folder for a worker: the one that waits, or else a new one.
    ///
    /// # Errors
    /// None waits, and none can be made.
    pub fn folder(&self, folders: &WorkerFolders) -> io::Result<BlankFolder> {
        // Somebody may have tidied up.
        let waiting = self.lock().folder.take().filter(|waiting| waiting.folder().path().is_dir());
        waiting.map_or_else(|| BlankFolder::make(folders), Ok)
    }

    /// Has a supervisor and a folder wait for the next worker, unless they do. Without them a launch takes longer, and
    /// nothing else.
    pub fn make(&self, command: &SupervisorCommand, ahead: &Ahead, folders: &WorkerFolders) {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let (supervises, lies) = {
            let waiting = self.lock();
            (waiting.supervisor.is_some(), waiting.folder.is_some())
        };
        // Not while it is locked: a launch meanwhile makes its own.
        if !supervises {
            let started = start(command, None, Stdio::inherit()).and_then(|mut started| {
                say(&mut started, ahead)?;
                Ok(started)
            });
            let started = started.inspect_err(|error| tracing::debug!(%error, "no supervisor waits")).ok();
            self.lock().supervisor = started;
        }
        if !lies {
            let made = BlankFolder::make(folders);
            let made = made.inspect_err(|error| tracing::debug!(%error, "no folder waits")).ok();
            self.lock().folder = made;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the supervisor that waits which folder is its worker's.
///
/// Whether it lives is asked first: its end of the socket outlives it for as long as a process that is being started
/// elsewhere in this program has not become another program yet, and takes the word for nobody.
fn tell(waiting: &mut Prepared, folder: &WorkerFolder) -> io::Result<()> {
    if let Some(status) = waiting.child.try_wait()? {
        return Err(io::Error::other(format!("it ended: {status}")));
    }
    say(waiting, &folder.path())
}

fn say(waiting: &mut Prepared, word: &impl Serialize) -> io::Result<()> {
    let frame = encode(word).map_err(io::Error::other)?;
    waiting.stream.write_all(&frame)
}

/// Starts a supervisor, for a folder or to be told which.
fn start(command: &SupervisorCommand, folder: Option<&WorkerFolder>, stderr: Stdio) -> io::Result<Prepared> {
    let (stream, theirs) = UnixStream::pair()?;
    let child = Command::new(&command.program)
        .args(&command.arguments)
        .args(folder.map(WorkerFolder::path))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(stderr)
        .kill_on_drop(false)
        .spawn()?;
    Ok(Prepared { child, stream })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::Read;
    use std::path::Path;
    use std::sync::Barrier;

    use futures::future::join_all;

    use super::super::id::WorkerId;
    use super::*;
    use tessera_ledger::{AllocationId, Epoch, Rank};

    const AHEAD: Ahead = Ahead { contained: false, cgroup_root: String::new() };

    /// A program that says whom it was started for, and else repeats what it is told.
    fn parrot() -> SupervisorCommand {
        let script = "if [ $# -gt 0 ]; then echo \"started for $1\" >&0; else cat >&0; fi";
        let arguments = ["-c", script, "parrot"].map(OsString::from).to_vec();
        SupervisorCommand { program: "/bin/sh".into(), arguments }
    }

    fn folder_in(data: &Path) -> (WorkerFolders, WorkerFolder) {
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
        let folders = WorkerFolders::open(data).expect("writable");
        let folder = folders.create(worker).expect("writable");
        (folders, folder)
    }

    fn said(prepared: Prepared) -> String {
        let Prepared { child, mut stream } = prepared;
        stream.shutdown(std::net::Shutdown::Write).expect("connected");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("text");
        drop(child);
        said
    }

    #[tokio::test]
    async fn one_that_waits_is_told_its_folder_and_a_new_one_is_started_for_it() {
        let data = tempfile::tempdir().expect("a folder");
        let (folders, folder) = folder_in(data.path());
        let path = folder.path().display().to_string();
        let (spare, command) = (Spare::default(), parrot());
        spare.make(&command, &AHEAD, &folders);
        let waiting = spare.take(&command, &folder).expect("it waits");
        assert!(said(waiting).ends_with(&format!("\"{path}\"")), "it was told");
        let started = spare.take(&command, &folder).expect("it starts");
        assert_eq!(said(started).trim(), format!("started for {path}"), "only one waited");
    }

    #[tokio::test]
    async fn of_many_that_make_one_at_once_one_does() {
        let data = tempfile::tempdir().expect("a folder");
        let (folders, folder) = folder_in(data.path());
        let started = data.path().join("started");
        let script = format!("echo one >> {}; cat >&0", started.display());
        let arguments = ["-c", &script].map(OsString::from).to_vec();
        let command = SupervisorCommand { program: "/bin/sh".into(), arguments };
        let (spare, together) = (Spare::default(), Arc::new(Barrier::new(8)));
        let makes = (0..8).map(|_| {
            let (spare, together) = (spare.clone(), Arc::clone(&together));
            let (command, folders) = (command.clone(), folders.clone());
            tokio::task::spawn_blocking(move || {
                together.wait();
                spare.make(&command, &AHEAD, &folders);
            })
        });
        for made in join_all(makes).await {
            made.expect("no panic");
        }
        // It says what it was told after it has written its line.
        said(spare.take(&command, &folder).expect("it waits"));
        assert_eq!(fs::read_to_string(started).expect("written"), "one\n");
    }

    #[tokio::test]
    async fn one_that_was_killed_while_it_waited_costs_nothing() {
        let data = tempfile::tempdir().expect("a folder");
        let (folders, folder) = folder_in(data.path());
        let (spare, command) = (Spare::default(), parrot());
        spare.make(&command, &AHEAD, &folders);
        let mut waiting = spare.lock().supervisor.take().expect("it waits");
        waiting.child.kill().await.expect("it can be killed");
        spare.lock().supervisor = Some(waiting);
        let started = spare.take(&command, &folder).expect("it starts");
        assert!(said(started).starts_with("started for "));
    }
}
