//! The process beside a program that is dumped: it has the slice servers of the program's card, and is in no image.
//!
//! It is the supervisor's child as the program is, in the same control group and PID namespace, so that a lease, a stop
//! and a kill mean both (law L2). It is started first, and the program, or what restores it, once it says that it
//! answers the program's questions. When it ends while the program runs, the worker is over: what was on the card is
//! lost.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::message::{CompanionPlan, Launch};
use super::pid_namespace::PidNamespace;
use super::program::{NoStart, Program};
use super::status::{Cause, Exit};
use crate::cgroup::WorkerGroup;
use crate::device::Word;
use crate::device::unaware::{FAILED, IS_SAVED, Lines, READY, SAVE};
use crate::process::ProcessId;
use crate::worker::WORK_FOLDER;

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The program may begin: its questions are answered.
    Ready,
    /// What the program has on its card is saved in the worker's own folder, or why it is not.
    Saved(Result<(), String>),
}

/// The process beside the program.
#[derive(Debug)]
pub(super) struct Companion {
    process: ProcessId,
    channel: UnixStream,
    lines: Lines,
    speaks: bool,
}

impl Companion {
    /// Starts it.
    ///
    /// # Errors
    /// Why there is no process.
    pub fn start(
        launch: &Launch,
        plan: &CompanionPlan,
        group: &WorkerGroup,
        namespace: Option<&PidNamespace>,
        outputs: [OwnedFd; 2],
    ) -> Result<Self, NoStart> {
        let channel = || -> io::Result<_> {
            let (own, other) = UnixStream::pair()?;
            own.set_nonblocking(true)?;
            Ok((own, OwnedFd::from(other)))
        };
        let (channel, other) =
            channel().map_err(|error| NoStart::by_node(format!("no socket for its slice servers: {error}")))?;
        let process = Program::beside(launch, plan)?.fork(group, namespace, Some(other), outputs)?.release()?;
        Ok(Self { process, channel, lines: Lines::default(), speaks: true })
    }

    /// The process.
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// Can be read when it has said something.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.speaks.then(|| self.channel.as_fd())
    }

    /// What it has said since this was asked last. Waits for nothing.
    pub fn said(&mut self) -> Vec<Said> {
        if self.speaks {
            self.speaks = self.lines.read(&self.channel);
        }
        std::iter::from_fn(|| self.lines.next()).filter_map(|line| meant(&line)).collect()
    }

    /// Asks it to save what the program has on its card, while the program stands still.
    ///
    /// # Errors
    /// The sentence that tells why it cannot.
    pub fn save(&mut self) -> Result<(), String> {
        let asked = (&self.channel).write_all(format!("{SAVE}\n").as_bytes());
        asked.map_err(|error| format!("the slice servers of its card cannot be asked to save: {error}"))
    }

    /// Whose fault it is that it has ended so while the program was to run, and why it has.
    pub fn fault(exit: Exit) -> (Cause, String) {
        let word = Word::left(exit, Path::new(WORK_FOLDER)).map(|word| (word.cause, word.why));
        word.unwrap_or_else(|| (Cause::NodeFault, "the process with the slice servers of its card ended".to_owned()))
    }
}

fn meant(line: &str) -> Option<Said> {
    match line.split_once(' ').unwrap_or((line, "")) {
        (READY, _) => Some(Said::Ready),
        (IS_SAVED, _) => Some(Said::Saved(Ok(()))),
        (FAILED, why) => Some(Said::Saved(Err(format!("what it has on its card is not saved: {why}")))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_known_and_anything_else_means_nothing() {
        assert_eq!(meant("ready"), Some(Said::Ready));
        assert_eq!(meant("saved"), Some(Said::Saved(Ok(()))));
        let failed = Some(Said::Saved(Err("what it has on its card is not saved: the disk is full".to_owned())));
        assert_eq!(meant("failed the disk is full"), failed);
        assert_eq!(meant("kept 1 2"), None);
    }
}
