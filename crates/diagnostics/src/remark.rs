//! Remarks: what a process says on standard error while it does something else.
//!
//! To say something must never end or hold up who says it: `eprintln!` panics when a log is on a disk that is full, or
//! when nobody reads what it is piped into any more, and with a thread of a supervisor that panicked its worker was
//! gone, too; and it waits for ever for room in a pipe that is held open and not read. So everything that only
//! *remarks* goes through here. What cannot be said is lost, and how much that was is said when something can be said
//! again.

use std::fmt;
use std::io::{self, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::shown;

/// The time for which a reader is waited for; one that did not read then is not waited for until it reads.
const PATIENCE_MS: u8 = 100;

/// Remarks that were lost since the last that was not.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Standard error as it takes everything: what it cannot take is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remarks;

impl Write for Remarks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = io::stderr().lock();
        let lost = LOST.load(Ordering::Relaxed);
        let patience = if lost == 0 { PollTimeout::from(PATIENCE_MS) } else { PollTimeout::ZERO };
        let said = (lost == 0 || put(&mut out, format!("[{lost} lines before this are lost]\n").as_bytes(), patience))
            && bytes.chunks(PIPE_BUF).all(|piece| put(&mut out, piece, patience));
        LOST.store(if said { 0 } else { lost + 1 }, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what a pipe with room takes without waiting; answers whether it was written.
fn put(out: &mut StderrLock<'_>, piece: &[u8], patience: PollTimeout) -> bool {
    let has_room = poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLOUT)], patience) != Ok(0);
    has_room && out.write_all(piece).is_ok()
}

/// Says a line on standard error; see [`remark!`](crate::remark!).
pub fn say(line: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes in one file stay whole. It never fails.
    let _ = Remarks.write_all(shown::lines(&format!("{line}\n")).as_bytes());
}

/// Says a line on standard error, as `eprintln!` does, and goes on also where that cannot be written.
#[macro_export]
macro_rules! remark {
    ($($line:tt)*) => {
        $crate::say(::std::format_args!($($line)*))
    };
}
