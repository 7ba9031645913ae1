//! The word about its end that a worker says beside its exit code, if it began as a process of this agent's program.
//!
//! It is a line on the socket to the supervisor that such a process finds as its standard input, and takes for itself
//! before anything of the job begins. Neither program nor slice servers have that socket, and `/proc` opens none: what
//! a job writes and the code with which it ends blame nobody.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{dup2_stdin, geteuid, getppid};
use serde::{Deserialize, Serialize};

use super::lines::Lines;
use crate::supervisor::status::{Cause, Exit};
use crate::untrusted;

/// The code with which a worker ends that says a word.
pub(super) const CODE: u8 = 125;
/// Begins the line that is the word.
const WORD: &str = "word ";

/// The reason for the end of a worker that ended otherwise than by its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    pub cause: Cause,
    /// For people.
    pub why: String,
}

impl Word {
    pub(super) fn say(&self, mut supervisor: &UnixStream) {
        // Without it the job is blamed, and its output says why.
        let _ = serde_json::to_string(self).map(|word| supervisor.write_all(format!("{WORD}{word}\n").as_bytes()));
    }

    /// The word that a line is.
    pub(crate) fn of(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(WORD)?).ok()
    }

    /// The cause and the reason for the end of a worker that said this and ended so.
    pub(crate) fn after(self, exit: Exit) -> Option<(Cause, String)> {
        let may = matches!(self.cause, Cause::NodeFault | Cause::HostLost | Cause::PortTaken);
        (may && exit == Exit::Code(CODE.into())).then_some((self.cause, self.why))
    }
}

/// The supervisor's end of the socket on which a word comes.
#[derive(Debug)]
pub(crate) struct Ear {
    stream: UnixStream,
    lines: Lines,
}

impl Ear {
    /// One, and the end that becomes the standard input of a process.
    ///
    /// # Errors
    /// When no socket can be had.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (stream, other) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        Ok((Self { stream, lines: Lines::default() }, other.into()))
    }

    /// The word that was said last. Does not wait.
    pub(crate) fn word(&mut self) -> Option<Word> {
        self.lines.read_all(&self.stream);
        std::iter::from_fn(|| self.lines.next()).filter_map(|line| Word::of(&line)).last()
    }
}

/// Takes the socket to the supervisor from standard input, which leads nowhere then, and hides this process's memory
/// and files from others of its account. `None`: there is no supervisor.
///
/// # Errors
/// What the system says.
pub(super) fn take_supervisor() -> io::Result<Option<UnixStream>> {
    let input = io::stdin();
    if fstat(&input)?.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFSOCK.bits() {
        return Ok(None);
    }
    let supervisor = input.as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?)?;
    // In a PID namespace of its own, so that no agent has to look at it without the rights of root.
    if getppid().as_raw() == 0 && !geteuid().is_root() {
        nix::sys::prctl::set_dumpable(false)?;
    }
    Ok(Some(supervisor.into()))
}

/// The beginning of a file in a worker's own folder, which may have put anything in its place.
pub(super) fn read(path: &Path, longest: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    untrusted::open(path).ok()?.take(longest).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_word_is_believed_only_about_the_node_and_the_host_and_only_from_who_ended_with_its_code() {
        let (mut ear, other) = Ear::new().expect("a socket");
        let supervisor = UnixStream::from(other);
        let mut said = |cause, code| {
            Word { cause, why: "so it was".to_owned() }.say(&supervisor);
            ear.word().and_then(|word| word.after(Exit::Code(code))).map(|(_, why)| why)
        };
        assert_eq!(said(Cause::NodeFault, 125).as_deref(), Some("so it was"));
        assert_eq!(said(Cause::HostLost, 125).as_deref(), Some("so it was"));
        assert_eq!(said(Cause::NodeFault, 1), None);
        assert_eq!(said(Cause::LeaseExpired, 125), None);
        (&supervisor).write_all(b"no word\nword {}\n").expect("it is read");
        assert_eq!(ear.word(), None);
        (&supervisor).write_all(&vec![b' '; 100 << 10]).expect("there is room");
        assert_eq!(ear.word(), None, "it does not wait for the end of a line");
    }

    #[test]
    fn what_a_worker_left_is_read_up_to_a_bound() {
        let work = tempfile::tempdir().expect("a folder");
        let file = work.path().join("left");
        fs::write(&file, vec![b' '; 1 << 20]).expect("writable");
        assert_eq!(read(&file, 10).map(|bytes| bytes.len()), Some(10));
        fs::remove_file(&file).expect("there");
        std::os::unix::fs::symlink("/etc/passwd", &file).expect("writable");
        assert_eq!(read(&file, 10), None, "a link leads out of the folder");
    }
}
