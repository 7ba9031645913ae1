//! The children of `tessera dev`: started with a pipe from here, watched, and ended by pid.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{ChildStdin, Command};
use tokio::time::timeout;

use crate::exit::Exit;
use crate::failure::Failure;

/// Lines of a log that are shown when its process ended too early.
const TAIL: usize = 12;

/// A process that was started here.
pub struct Child {
    name: String,
    log: PathBuf,
    process: tokio::process::Child,
    /// Held, not used: its end tells the child that this process is gone. (Left in `process`, waiting would close it.)
    _stdin: Option<ChildStdin>,
}

/// The end of a child.
pub struct Ended {
    pub name: String,
    /// Exit code or signal.
    pub how: String,
    pub log: PathBuf,
}

/// All processes that were started here and have not ended.
#[derive(Default)]
pub struct Children(Vec<Child>);

impl Children {
    /// Starts this very program with `arguments`, its output in `log`.
    ///
    /// # Errors
    /// A [`Failure`] when it cannot be started.
    pub fn start(&mut self, name: String, arguments: &[OsString], log: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::from_error(Exit::Failed, format!("{name} was not started"), &error);
        let program = std::env::current_exe().map_err(failed)?;
        let output = File::options().create(true).append(true).open(log).map_err(failed)?;
        let mut process = Command::new(program)
            .args(arguments)
            // Settings of this terminal are not meant for the children.
            .env_remove("TESSERA_SERVER_CONFIG")
            .env_remove("TESSERA_AGENT_CONFIG")
            .env_remove("TESSERA_ADVERTISE")
            // Ctrl-C of the terminal is for this process, which ends them in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        let stdin = process.stdin.take();
        self.0.push(Child { name, log: log.to_owned(), process, _stdin: stdin });
        Ok(())
    }

    /// Waits for the next child that ends.
    pub async fn first_end(&mut self) -> Ended {
        let (index, how) = {
            let mut waits: FuturesUnordered<_> = self
                .0
                .iter_mut()
                .enumerate()
                .map(|(index, child)| async move { (index, child.process.wait().await) })
                .collect();
            match waits.next().await {
                Some(first) => first,
                None => std::future::pending().await,
            }
        };
        let child = self.0.remove(index);
        let how = how.map_or_else(|error| error.to_string(), |status| status.to_string());
        Ended { name: child.name, how, log: child.log }
    }

    /// Ends those whose names are `wanted`, with SIGTERM, and with SIGKILL when that takes longer than `patience`.
    pub async fn end(&mut self, wanted: impl Fn(&str) -> bool, patience: Duration) {
        let (ending, staying): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|child| wanted(&child.name));
        self.0 = staying;
        for child in &ending {
            signal(child, Signal::SIGTERM);
        }
        let waits = ending.into_iter().map(|mut child| async move {
            if timeout(patience, child.process.wait()).await.is_err() {
                crate::print::remark(&format!("{} does not end; killing it", child.name));
                signal(&child, Signal::SIGKILL);
                // It is reaped by the runtime; nothing more can be done when even that fails.
                let _ = child.process.wait().await;
            }
        });
        futures::future::join_all(waits).await;
    }
}

/// A child that was not waited for keeps its pid, so no other process can be hit.
fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.process.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The last lines of a log.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
