//! The slice servers of a program that is dumped and knows nothing of it.
//!
//! The supervisor has two children then: the program, which CRIU dumps, and this process with the servers, which is in
//! no image. What the program has on its card is saved by the first server, in the form that any card can go on from,
//! into a folder that travels with the image. The supervisor says when: the program stands still by then, so that no
//! server is ahead of what the program knows. Wherever the program goes on it finds its connection closed, and asks at
//! a socket that has the same path everywhere where its card is now.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::{Problem, Worker, ready};
use crate::device::lines::Lines;

/// Name of the socket at which the program asks for its card, in the folder of its worker.
pub(crate) const ASKED: &str = ".card.sock";
/// Name of the socket at which the first server is asked to save.
const CONTROL: &str = ".card.control";
/// Name of the folder into which the first server saves what the program has on the card, and from which it loads it.
pub(crate) const SAVED: &str = ".card";
/// The longest time for one question of the program, or for one line to a server or the supervisor.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest line that is taken.
const LONGEST: usize = 4096;
/// Line to the supervisor: questions of the program are answered from now on.
pub(crate) const READY: &str = "ready";
/// First words of the lines that tell of a save, from the first server to this process and from it to the supervisor:
/// the card is saved, or, with the reason, it cannot be saved.
pub(crate) const IS_SAVED: &str = "saved";
pub(crate) const FAILED: &str = "failed";
/// Line from the supervisor: the card is to be saved.
pub(crate) const SAVE: &str = "save";

/// Variables of a server that saves what a program has on its card.
pub(super) fn of_saving(folder: &Path) -> [(&'static str, PathBuf); 2] {
    [("TESSERA_CHECKPOINT_DIR", folder.join(SAVED)), ("TESSERA_CONTROL", folder.join(CONTROL))]
}

/// Somebody that speaks in lines.
struct Speaker {
    stream: UnixStream,
    lines: Lines,
}

impl Speaker {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, lines: Lines::default() })
    }

    fn say(&self, line: &str) -> io::Result<()> {
        (&self.stream).write_all(format!("{line}\n").as_bytes())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Save {
    /// None is wanted.
    Idle,
    /// The server is to be asked as soon as it is there.
    Wanted,
    Asked,
}

/// Everything that this process listens to.
struct Seams {
    supervisor: Speaker,
    program: UnixListener,
    control: UnixListener,
    /// The first server, as it hears when to save.
    server: Option<Speaker>,
    save: Save,
    /// The number of times that the server was asked to save.
    saves: u64,
    /// Address at which the server listens for the program; `None`: it does not listen yet.
    address: Option<String>,
}

impl Seams {
    fn open(folder: &Path, supervisor: UnixStream) -> io::Result<Self> {
        let listen = |name: &str| {
            let path = folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => UnixListener::bind(path),
            }
        };
        let (program, control) = (listen(ASKED)?, listen(CONTROL)?);
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join(SAVED))?;
        let supervisor = Speaker::new(supervisor)?;
        supervisor.say(READY)?;
        Ok(Self { supervisor, program, control, server: None, save: Save::Idle, saves: 0, address: None })
    }

    /// Answers one question of the program.
    fn answer(&self, token: &str, epoch: u64) {
        // One that hangs up has not heard it, and asks again.
        let _ = self.program.accept().and_then(|(stream, _)| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let (mut lines, until) = (Lines::default(), Instant::now() + PATIENCE);
            let question = loop {
                match lines.next() {
                    Some(line) => break line,
                    None if Instant::now() >= until || !lines.read(&stream) || lines.length() > LONGEST => {
                        return stream.shutdown(Shutdown::Both);
                    }
                    None => {}
                }
            };
            (&stream).write_all(format!("{}\n", answer_to(&question, self.address.as_deref(), token, epoch)).as_bytes())
        });
    }

    /// The server is asked anew when it comes again: what it says meanwhile nobody hears.
    fn miss_server(&mut self) {
        self.server = None;
        if self.save == Save::Asked {
            self.save = Save::Wanted;
        }
    }

    /// Passes on what the supervisor and the server say to each other.
    fn pass_on(&mut self) -> io::Result<()> {
        while let Some(line) = self.supervisor.lines.next() {
            if line == SAVE {
                self.save = Save::Wanted;
            }
        }
        let Some(mut server) = self.server.take() else { return Ok(()) };
        match self.converse(&mut server) {
            Ok(outcome) => {
                self.server = Some(server);
                outcome.map_or(Ok(()), |outcome| self.supervisor.say(&outcome))
            }
            // It comes again, or ends, which is told otherwise.
            Err(_) => {
                self.miss_server();
                Ok(())
            }
        }
    }

    /// Hears what the server has said, and asks it to save if that is wanted; gives what became of the last save.
    fn converse(&mut self, server: &mut Speaker) -> io::Result<Option<String>> {
        let mut outcome = None;
        while let Some(line) = server.lines.next() {
            let Some((number, said)) = outcome_of(&line) else { continue };
            // It may write there again: nothing reads the folder but together with a program that stands still.
            server.say("kept 0 0")?;
            // That of a save for which nobody waits any more says nothing of the one that is wanted now.
            if self.save == Save::Asked && number == self.saves {
                outcome = Some(said);
                self.save = Save::Idle;
            }
        }
        if self.save == Save::Wanted && self.address.is_some() {
            self.saves += 1;
            // Its program stands still: what is missing of a frame does not come.
            server.say(&format!("save still {}", self.saves))?;
            self.save = Save::Asked;
        }
        Ok(outcome)
    }
}

/// The number of a save, and what is said to the supervisor of it, when the server says this: `saved PROGRESS NUMBER`,
/// or `failed NUMBER WHY`.
fn outcome_of(said: &str) -> Option<(u64, String)> {
    let (word, rest) = said.split_once(' ')?;
    let (one, other) = rest.split_once(' ')?;
    match word {
        IS_SAVED => Some((other.parse().ok()?, IS_SAVED.to_owned())),
        FAILED => Some((one.parse().ok()?, format!("{FAILED} {other}"))),
        _ => None,
    }
}

/// The answer to a question of a program. Snapshots that outlive the server are none that it could go on from without
/// its own image: so none is safe, and its journal ends where the server has executed what it holds.
fn answer_to(question: &str, address: Option<&str>, token: &str, epoch: u64) -> serde_json::Value {
    let asked: serde_json::Value = serde_json::from_str(question).unwrap_or_default();
    match address {
        _ if asked.get("safe").is_some() => serde_json::json!({ "safe": 0 }),
        Some(address) => serde_json::json!({ "address": address, "token": token, "epoch": epoch }),
        None => serde_json::json!({ "wait": "its slice servers are starting" }),
    }
}

impl Worker {
    /// Serves a program that is not this process's child, until a server ends: how that is and when the worker is over
    /// is the supervisor's business.
    pub(super) fn serve_unaware(&mut self, folder: &Path) -> Result<ExitStatus, Problem> {
        let supervisor = self.supervisor.take();
        let supervisor = supervisor.ok_or_else(|| Problem::Reach("this worker has no supervisor".to_owned()))?;
        let mut seams = Seams::open(folder, supervisor)?;
        let epoch = std::env::var("TESSERA_EPOCH").ok().and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(|| Problem::Reach("this worker has no epoch".to_owned()))?;
        let mut servers =
            (0..self.plan.slices.len()).map(|slice| self.start_server(slice)).collect::<Result<Vec<_>, _>>()?;
        let first = servers.first_mut().and_then(|first| first.child.stdout.take());
        let Some(mut stdout) = first else { return Err(Problem::Ended(self.plan.devices())) };
        let until = self.plan.ready_within().map(|within| Instant::now() + within);
        let mut said = Lines::default();
        loop {
            let left = until.filter(|_| seams.address.is_none());
            let left = left.map(|until| until.saturating_duration_since(Instant::now()));
            let descriptors = [
                Some(self.signals.as_fd()),
                Some(seams.supervisor.stream.as_fd()),
                Some(seams.program.as_fd()),
                Some(seams.server.as_ref().map_or(seams.control.as_fd(), |server| server.stream.as_fd())),
                seams.address.is_none().then(|| stdout.as_fd()),
            ];
            let [signalled, told, asked, of_server, of_stdout] = ready(descriptors, left)?;
            if signalled {
                while self.next_signal()?.is_some() {}
                self.miss_none(&mut servers, seams.address.is_some())?;
            }
            if of_stdout {
                if !said.read(&mut stdout) {
                    return Err(Problem::Ended(self.plan.devices()));
                }
                while let Some(line) = said.next() {
                    if let Some(address) = line.strip_prefix("listening ") {
                        seams.address = Some(address.trim().to_owned());
                    }
                }
            } else if left == Some(Duration::ZERO) {
                return Err(self.late());
            }
            if told && !seams.supervisor.lines.read(&seams.supervisor.stream) {
                // It is gone, and with it all of this worker.
                return Err(Problem::Stopped(libc::SIGKILL));
            }
            if of_server {
                match &mut seams.server {
                    Some(server) => {
                        if !server.lines.read(&server.stream) {
                            seams.miss_server();
                        }
                    }
                    None => seams.server = Some(Speaker::new(seams.control.accept()?.0)?),
                }
            }
            if asked {
                seams.answer(&self.token, epoch);
            }
            seams.pass_on()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_where_its_card_is_and_that_no_snapshot_is_safe() {
        let asked = |question, address| answer_to(question, address, "secret", 7).to_string();
        assert!(asked(r#"{"where": true}"#, None).contains("wait"));
        let place = asked(r#"{"where": true}"#, Some("tcp:127.0.0.1:9"));
        assert_eq!(place, r#"{"address":"tcp:127.0.0.1:9","epoch":7,"token":"secret"}"#);
        assert_eq!(asked(r#"{"safe": true}"#, Some("tcp:127.0.0.1:9")), r#"{"safe":0}"#);
        assert!(asked("nonsense", None).contains("wait"));
    }

    #[test]
    fn only_what_became_of_a_save_is_passed_on() {
        assert_eq!(outcome_of("saved 120 3"), Some((3, "saved".to_owned())));
        assert_eq!(outcome_of("failed 3 no space left"), Some((3, "failed no space left".to_owned())));
        for nothing in ["hello", "saved", "saved 120", "failed no space left"] {
            assert_eq!(outcome_of(nothing), None);
        }
    }
}
