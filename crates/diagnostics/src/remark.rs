//! Remarks: what a process says on standard error while it does something else.
//!
//! To say something must never end who says it: `eprintln!` panics when a log is on a disk that is full, or when nobody
//! reads what it is piped into any more, and with a thread of a supervisor that panicked its worker was gone, too. So
//! everything that only *remarks* goes through here, and what cannot be said is lost.

use std::fmt;
use std::io::{self, Write};

/// Standard error as it takes everything: what it cannot take is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remarks;

impl Write for Remarks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // There is nowhere else to say it.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says a line on standard error; see [`remark!`](crate::remark!).
pub fn say(line: fmt::Arguments<'_>) {
    // In one piece, so that lines of several processes in one file stay whole. It never fails.
    let _ = Remarks.write_all(format!("{line}\n").as_bytes());
}

/// Says a line on standard error, as `eprintln!` does, and goes on also where that cannot be written.
#[macro_export]
macro_rules! remark {
    ($($line:tt)*) => {
        $crate::say(::std::format_args!($($line)*))
    };
}
