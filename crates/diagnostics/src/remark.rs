//! Remarks: what a process says on standard error while it does something else.
//!
//! To say something must never end or hold up who says it: `eprintln!` panics when a log is on a disk that is full, or
//! when nobody reads what it is piped into any more, and with a thread of a supervisor that panicked its worker was
//! gone, too; and it waits for ever for room in a pipe that is held open and not read. So everything that only
//! *remarks* goes through here. What cannot be said is lost, and how much that was is said when something can be said
//! again. A line that repeats is said a few times a minute, and counted from then on: it would fill the disk on which a
//! log lies.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::shown;

/// The time for which a reader is waited for; one that did not read then is not waited for until it reads.
const PATIENCE_MS: u8 = 100;

/// The time after which repeats are counted anew.
const PERIOD: Duration = Duration::from_secs(60);
/// The number of times that one line is said in a period.
const SAID: u64 = 10;
/// Different lines that are told apart in a period; all beyond are said.
const TOLD_APART: usize = 256;

/// Remarks that were lost since the last that was not.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Lines that this process says.
static REPEATS: Mutex<Repeats> = Mutex::new(Repeats { since: None, counts: BTreeMap::new() });

/// The number of times that each line was to be said in this period.
#[derive(Debug)]
struct Repeats {
    since: Option<Instant>,
    counts: BTreeMap<String, u64>,
}

impl Repeats {
    /// Returns what is said now that this is to be said.
    fn said(&mut self, line: String, now: Instant) -> String {
        let mut said = String::new();
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            let counts = std::mem::take(&mut self.counts);
            for (line, count) in counts.into_iter().filter(|(_, count)| *count > SAID) {
                said += &format!("[{} more of these were left out: {}]\n", count - SAID, line.trim_end());
            }
            self.since = Some(now);
        }
        let is_told_apart = self.counts.len() < TOLD_APART || self.counts.contains_key(&line);
        let count = is_told_apart.then(|| self.counts.entry(line.clone()).or_insert(0));
        if let Some(count) = count {
            *count += 1;
            if *count > SAID {
                return said;
            }
        }
        said + &line
    }
}

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
    let line = format!("{line}\n");
    let line = shown::lines(&line);
    // A count is whole at any time.
    let said = REPEATS.lock().unwrap_or_else(PoisonError::into_inner).said(line.into(), Instant::now());
    if !said.is_empty() {
        // In one piece, so that lines of several processes in one file stay whole. It never fails.
        let _ = Remarks.write_all(said.as_bytes());
    }
}

/// Says a line on standard error, as `eprintln!` does, and goes on also where that cannot be written.
#[macro_export]
macro_rules! remark {
    ($($line:tt)*) => {
        $crate::say(::std::format_args!($($line)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_repeats_is_said_a_few_times_and_then_counted() {
        let mut repeats = Repeats { since: None, counts: BTreeMap::new() };
        let began = Instant::now();
        let mut say = |line: &str, seconds| repeats.said(format!("{line}\n"), began + Duration::from_secs(seconds));
        let said = (0..100).filter(|_| say("refused", 1) == "refused\n").count();
        assert_eq!(said, 10);
        assert_eq!(say("another", 1), "another\n", "it says something else");
        assert_eq!(say("refused", 62), "[90 more of these were left out: refused]\nrefused\n");
        let others = (0..1000).filter(|number| !say(&number.to_string(), 63).is_empty()).count();
        assert_eq!(others, 1000);
        assert!(repeats.counts.len() <= TOLD_APART, "it does not grow");
    }
}
