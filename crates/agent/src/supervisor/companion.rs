//! The process beside a program that is dumped: it has the slice servers of the program's card, and is in no image.
//!
//! It is the supervisor's child as the program is, in the same control group and PID namespace, so that a lease, a stop
//! and a kill mean both (law L2). It is started first, and the program, or what restores it, once it says that it
//! answers the program's questions. When it ends while the program runs, the worker is over: what was on the card is
//! lost.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::image::time_for;
use super::message::{CompanionPlan, Launch};
use super::pid_namespace::PidNamespace;
use super::program::{NoStart, Program};
use super::status::{Cause, Exit};
use crate::cgroup::WorkerGroup;
use crate::device::Word;
use crate::device::lines::Lines;
use crate::device::unaware::{FAILED, IS_SAVED, READY, SAVE};
use crate::process::ProcessId;

/// The minimum time allowed for a save of the card: servers may have operations to execute before it.
const CARD_PATIENCE: Duration = Duration::from_secs(120);

/// A message from the companion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The program may begin: its questions are answered.
    Ready,
    /// The program's state on its card is saved in the worker's own folder, or the reason why it is not.
    Saved(Result<(), String>),
}

/// The process beside the program.
#[derive(Debug)]
pub(super) struct Companion {
    process: ProcessId,
    channel: UnixStream,
    lines: Lines,
    speaks: bool,
    /// The reason that it has given for its end.
    word: Option<Word>,
    /// The longest time that a save of the card may take.
    patience: Duration,
}

/// One that is to be started.
pub(super) struct Prepared {
    program: Program,
    outputs: [OwnedFd; 2],
    patience: Duration,
}

impl Prepared {
    /// One whose output goes where that of its program does.
    ///
    /// # Errors
    /// Whose fault it is that it cannot be, and why.
    pub fn new(launch: &Launch, plan: &CompanionPlan, outputs: &[OwnedFd; 2]) -> Result<Self, NoStart> {
        let more = || -> io::Result<_> { Ok([outputs[0].try_clone()?, outputs[1].try_clone()?]) };
        let outputs = more().map_err(|error| NoStart::by_node(format!("no pipe for its output: {error}")))?;
        let patience = CARD_PATIENCE.max(time_for(plan.card_mib << 20));
        Ok(Self { program: Program::beside(launch, plan)?, outputs, patience })
    }
}

impl Companion {
    /// Starts it.
    ///
    /// # Errors
    /// Why there is no process.
    pub fn start(prepared: Prepared, group: &WorkerGroup, namespace: &PidNamespace) -> Result<Self, NoStart> {
        let Prepared { program, outputs, patience } = prepared;
        let channel = || -> io::Result<_> {
            let (own, other) = UnixStream::pair()?;
            own.set_nonblocking(true)?;
            Ok((own, OwnedFd::from(other)))
        };
        let (channel, other) =
            channel().map_err(|error| NoStart::by_node(format!("no socket for its slice servers: {error}")))?;
        let process = program.fork(group, Some(namespace), Some(other), outputs)?.release()?;
        Ok(Self { process, channel, lines: Lines::default(), speaks: true, word: None, patience })
    }

    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// The longest time that a save of the card may take.
    pub const fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns whether no further message can arrive from it.
    pub const fn is_silent(&self) -> bool {
        !self.speaks
    }

    /// Can be read when it has said something.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.speaks.then(|| self.channel.as_fd())
    }

    /// Returns the messages received since the last call. Does not block.
    pub fn said(&mut self) -> Vec<Said> {
        if self.speaks {
            self.speaks = self.lines.read_all(&self.channel);
        }
        let mut said = Vec::new();
        while let Some(line) = self.lines.next() {
            self.word = Word::of(&line).or(self.word.take());
            said.extend(meant(&line));
        }
        said
    }

    /// Asks it to save what the program has on its card, while the program stands still.
    ///
    /// # Errors
    /// The sentence that tells why it cannot.
    pub fn save(&mut self) -> Result<(), String> {
        let asked = (&self.channel).write_all(format!("{SAVE}\n").as_bytes());
        asked.map_err(|error| format!("the slice servers of its card cannot be asked to save: {error}"))
    }

    /// The party at fault when it ended with `exit`, and the reason. Once the program has begun, a process of the
    /// worker may have killed it, and everything else that kills blames somebody by itself.
    pub fn fault(&mut self, exit: Exit, has_begun: bool) -> (Cause, String) {
        self.said();
        let word = self.word.take().and_then(|word| word.after(exit));
        word.unwrap_or_else(|| match exit {
            Exit::Signal(libc::SIGKILL) if has_begun => {
                (Cause::Exited, "the process with the slice servers of its card was killed by a signal".to_owned())
            }
            _ => (Cause::NodeFault, "the process with the slice servers of its card ended".to_owned()),
        })
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
