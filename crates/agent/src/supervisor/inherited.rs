//! Resources that a supervisor has from its start: the lock of its folder, its signals, and the socket of the agent
//! that started it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, Flock, FlockArg, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::dup2_stdin;

use super::LOCK_FILE;
use super::shell::{SuperviseError, step};

pub(super) fn lock() -> Result<Flock<File>, SuperviseError> {
    let file = OpenOptions::new().create(true).append(true).open(LOCK_FILE).map_err(step("open the lock"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => SuperviseError::Taken,
        other => step("take the lock")(other),
    })
}

/// From here on they wait to be read. A supervisor that has no worker yet ends by them like any process.
pub(super) fn take_signals() -> Result<SignalFd, SuperviseError> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().map_err(step("block signals"))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(step("watch signals"))
}

/// Moves the agent's socket away from standard input, which becomes `/dev/null`.
#[allow(unsafe_code)]
pub(super) fn take_stdin() -> Result<OwnedFd, SuperviseError> {
    let copy = fcntl(io::stdin(), FcntlArg::F_DUPFD_CLOEXEC(3)).map_err(step("take the agent's socket"))?;
    // SAFETY: `fcntl` has just made this descriptor; nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(copy) };
    let null = File::open("/dev/null").map_err(step("open /dev/null"))?;
    dup2_stdin(null).map_err(step("close standard input"))?;
    Ok(socket)
}
