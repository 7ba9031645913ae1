//! Helper processes and threads of the supervisor: their output, their time limits, and that they do not outlive it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

/// The minimum time allowed for CRIU, or for a driver.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// A disk that takes or gives less is out of order.
const SLOWEST_BYTES_PER_SECOND: u64 = 20 << 20;

/// Has a command end with the supervisor: nobody else would end what is outside of the worker's namespace.
pub(super) fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    #[allow(unsafe_code)]
    // SAFETY: the child makes system calls that are async-signal-safe, and nothing else.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            // It may have ended before it was asked for.
            if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
        });
    }
}

/// Does something on a thread of its own, which takes rights or a place that this one must not have, and waits for it.
pub(super) fn on_own_thread(act: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    let ended = thread::scope(|scope| io::Result::Ok(thread::Builder::new().spawn_scoped(scope, act)?.join()))?;
    ended.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
}

/// The time allowed for CRIU to process `bytes`, at least [`PATIENCE`].
pub(super) fn patience_for(bytes: u64) -> Duration {
    PATIENCE.max(time_for(bytes))
}

/// The longest time that a disk in working order takes to read or write `bytes`.
pub(in crate::supervisor) const fn time_for(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND)
}

/// Returns the file with the output of CRIU, to be read when CRIU has ended, and CRIU's end of it. A file in memory,
/// because nobody reads meanwhile: a process that writes much into a pipe would then wait for ever.
pub(super) fn hearing() -> io::Result<(File, OwnedFd)> {
    let says = File::from(memfd_create(c"criu", MFdFlags::MFD_CLOEXEC)?);
    let end = says.try_clone()?.into();
    Ok((says, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_image_may_take_long() {
        assert_eq!(patience_for(1 << 20), PATIENCE);
        assert_eq!(patience_for(100 << 30), Duration::from_secs((100 << 30) / SLOWEST_BYTES_PER_SECOND));
    }
}
