//! The newest lines of this process' log, in memory.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Bytes of the log that are kept.
const KEPT: usize = 512 << 10;

static NEWEST: Mutex<Newest> = Mutex::new(Newest(VecDeque::new()));

/// The newest bytes.
struct Newest(VecDeque<u8>);

impl Newest {
    fn keep(&mut self, bytes: &[u8]) {
        let own = &bytes[bytes.len().saturating_sub(KEPT)..];
        let over = (self.0.len() + own.len()).saturating_sub(KEPT);
        self.0.drain(..over);
        self.0.extend(own);
    }
}

/// A second destination of the log, which retains its newest lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        NEWEST.lock().unwrap_or_else(PoisonError::into_inner).keep(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that are kept; the first may be the end of one.
pub(crate) fn newest() -> Result<Vec<u8>, String> {
    let newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if newest.0.is_empty() {
        return Err("nothing was logged".to_owned());
    }
    Ok(newest.0.iter().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_is_kept() {
        let mut newest = Newest(VecDeque::new());
        let line = [b'x'; 1000];
        for _ in 0..2 * KEPT / line.len() {
            newest.keep(&line);
        }
        newest.keep(&[b'y'; 10]);
        assert_eq!(newest.0.len(), KEPT);
        assert!(newest.0.make_contiguous().ends_with(b"xyyyyyyyyyy"));
        newest.keep(&vec![b'z'; 3 * KEPT]);
        assert_eq!((newest.0.len(), newest.0.back()), (KEPT, Some(&b'z')));
    }
}
