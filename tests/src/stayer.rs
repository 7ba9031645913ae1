//! Commands that stay: started, watched while they are at work, and told to end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::wait::PATIENCE;

/// A command that is at work; killed when it is dropped.
#[derive(Debug)]
pub struct Stayer {
    child: Child,
    input: Option<ChildStdin>,
    /// Readers of its output and of its errors.
    reads: Vec<JoinHandle<()>>,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Stayer {
    /// Starts one, and waits until it stays, which `shows` is the sign of.
    ///
    /// # Errors
    /// When it cannot be started, or shows nothing like that.
    pub async fn start(mut command: Command, shows: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("starting a command")?;
        let (output, said) = (child.stdout.take().context("no output")?, child.stderr.take().context("no errors")?);
        let (input, shown) = (child.stdin.take(), Arc::default());
        let reads = vec![read(output, Arc::clone(&shown)), read(said, Arc::clone(&shown))];
        let stayer = Self { child, input, reads, shown };
        stayer.shows(shows).await?;
        Ok(stayer)
    }

    /// Everything that it has printed so far.
    ///
    /// # Panics
    /// Never: nobody panics with it.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("nobody panics with it")).into_owned()
    }

    /// Waits until it has printed this.
    ///
    /// # Errors
    /// When it does not come; the error has what came.
    pub async fn shows(&self, word: &str) -> Result<()> {
        let shown = async {
            while !self.shown().contains(word) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, shown).await.with_context(|| format!("no `{word}`: {}", self.shown()))
    }

    /// Closes the reading end of its output.
    pub async fn unread(&mut self) {
        let output = self.reads.remove(0);
        output.abort();
        // It was aborted, which is what is waited for.
        let _ = output.await;
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// When that has ended.
    pub async fn types(&mut self, keys: &str) -> Result<()> {
        Ok(self.input.as_mut().context("its input has ended")?.write_all(keys.as_bytes()).await?)
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn tell(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id().context("it has ended")?)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Waits until it has ended, with this code, which is 128 + N where signal N has ended it.
    ///
    /// # Errors
    /// When it stays, or ends otherwise; the error has what it printed.
    pub async fn ends_with(&mut self, code: i32) -> Result<()> {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let ended = code_of(ended.with_context(|| format!("it stays: {}", self.shown()))??);
        ensure!(ended == code, "it ended with {ended} instead of {code}: {}", self.shown());
        Ok(())
    }
}

fn read(mut from: impl AsyncRead + Unpin + Send + 'static, shown: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut some = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut some).await {
            shown.lock().expect("nobody panics with it").extend_from_slice(&some[..length]);
        }
    })
}

/// The exit code as a shell tells it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
