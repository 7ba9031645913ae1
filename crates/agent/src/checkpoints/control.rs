//! The control socket: where a program is asked to save while it runs on (docs/worker.md has the protocol).
//!
//! ```text
//! agent    save              write what you need to go on, then change nothing of it
//! program  saved [N]         done; N: how far the work is, in a count of the program's own
//! agent    kept N BYTES      it is kept; write again whenever you like
//! agent    failed WHY        it is not kept; the one before stands
//! ```
//!
//! A program that says `saved N` without being asked is answered `noted`: so far it is, should it be told to stop.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::worker::folder::WorkerFolder;

/// Name of the socket in a worker's folder.
pub(crate) const CONTROL_FILE: &str = "control.sock";
/// Longest line that a program may say.
const LONGEST: usize = 256;

/// A program on the control socket, and what it has said of a line that is not whole.
struct Program {
    stream: UnixStream,
    begun: Vec<u8>,
}

/// The control socket of a worker.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
    program: Option<Program>,
}

/// A program's report that it has saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// The progress of the work; 0: the program did not report it.
    pub progress: u64,
}

impl Control {
    /// Listens in a worker's folder; only the worker's own user may connect. One of an earlier agent is replaced.
    pub fn listen(folder: &WorkerFolder, owner: Option<(u32, u32)>) -> io::Result<Self> {
        let path = folder.file(CONTROL_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Through the open folder: the path of a socket may have 107 bytes only, that of a folder any number.
        let opened = fs::File::open(folder.path())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{CONTROL_FILE}", opened.as_raw_fd()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        if let Some((user, group)) = owner {
            chown(&path, Some(user), Some(group))?;
        }
        Ok(Self { listener, path, program: None })
    }

    /// Waits for the next thing that the program says. Dropping the future loses nothing.
    pub async fn heard(&mut self) -> Saved {
        loop {
            let Some(program) = &mut self.program else {
                self.accept().await;
                continue;
            };
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    // The newest connection counts: a program that was started anew inside the worker.
                    Ok((stream, _)) => self.program = Some(Program::new(stream)),
                    Err(error) => tracing::debug!(%error, path = %self.path.display(), "no connection"),
                },
                line = program.line() => match line {
                    Some(line) => {
                        if let Some(saved) = parse(&line) {
                            return saved;
                        }
                        self.say("failed that is not understood; say `saved` or `saved N`").await;
                    }
                    None => self.program = None,
                },
            }
        }
    }

    async fn accept(&mut self) {
        match self.listener.accept().await {
            Ok((stream, _)) => self.program = Some(Program::new(stream)),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "nobody can connect to a control socket");
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns whether a program is connected.
    pub const fn is_connected(&self) -> bool {
        self.program.is_some()
    }

    /// Says a line to the program; one that does not read is let go.
    pub async fn say(&mut self, line: &str) {
        let Some(program) = &mut self.program else { return };
        if program.stream.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            self.program = None;
        }
    }
}

impl Program {
    const fn new(stream: UnixStream) -> Self {
        Self { stream, begun: Vec::new() }
    }

    /// The next line; `None` when the program has left, or says more than a line can hold. Dropping the future loses
    /// nothing.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
                let line = self.begun.drain(..=end).take(end).collect();
                return String::from_utf8(line).ok();
            }
            if self.begun.len() > LONGEST {
                return None;
            }
            let mut piece = [0; LONGEST];
            let length = self.stream.read(&mut piece).await.ok().filter(|length| *length > 0)?;
            self.begun.extend_from_slice(&piece[..length]);
        }
    }
}

fn parse(line: &str) -> Option<Saved> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("saved") {
        return None;
    }
    let progress = words.next().map_or(Some(0), |word| word.parse().ok())?;
    words.next().is_none().then_some(Saved { progress })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_speaks_in_lines_and_one_that_does_not_is_let_go() {
        let data = tempfile::tempdir().expect("a folder");
        let mut control = Control::listen(&WorkerFolder::at(data.path()), None).expect("it listens");
        let connect = || UnixStream::connect(data.path().join(CONTROL_FILE));
        let mut program = connect().await.expect("it connects");
        program.write_all(b"sav").await.expect("written");
        program.write_all(b"ed 7\nsaved\n").await.expect("written");
        assert_eq!(control.heard().await, Saved { progress: 7 });
        assert_eq!(control.heard().await, Saved { progress: 0 });
        program.write_all(&[b'x'; 4 * LONGEST]).await.expect("written");
        let mut second = connect().await.expect("it connects");
        second.write_all(b"saved 8\n").await.expect("written");
        assert_eq!(control.heard().await, Saved { progress: 8 }, "the newest connection counts");
        control.say("save").await;
        let mut said = [0; 5];
        second.read_exact(&mut said).await.expect("it is asked");
        assert_eq!(&said, b"save\n");
    }

    #[test]
    fn a_program_says_that_it_saved_and_how_far_it_is() {
        assert_eq!(parse("saved"), Some(Saved { progress: 0 }));
        assert_eq!(parse("saved 1200"), Some(Saved { progress: 1200 }));
        for wrong in ["", "save", "saved x", "saved -1", "saved 1 2", "saved 99999999999999999999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
