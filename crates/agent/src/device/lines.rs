//! Messages between the processes of a worker: lines of text, read as they arrive.

use std::io::{self, Read};

/// Most bytes that are kept of what nobody has taken.
const MOST: usize = 64 << 10;

/// Bytes that were said so far, cut into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Reads what is there, once; false when nobody will say more, or says more than a line can hold.
    pub(crate) fn read(&mut self, mut from: impl Read) -> bool {
        let mut piece = [0; 1024];
        match from.read(&mut piece) {
            Ok(0) => false,
            Ok(length) => {
                self.0.extend_from_slice(&piece[..length]);
                self.0.len() <= MOST
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }

    /// The same until nothing more is there, of what does not wait.
    pub(crate) fn read_all(&mut self, mut from: impl Read) -> bool {
        loop {
            let before = self.length();
            if !self.read(&mut from) {
                return false;
            }
            if self.length() == before {
                return true;
            }
        }
    }

    /// Bytes that are not taken yet.
    pub(crate) const fn length(&self) -> usize {
        self.0.len()
    }

    /// The next whole line.
    pub(crate) fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).take(end).collect();
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::default();
        assert!(lines.read(&b"sav"[..]) && lines.next().is_none());
        assert!(lines.read(&b"ed\nfail"[..]));
        assert_eq!((lines.next().as_deref(), lines.next()), (Some("saved"), None));
        assert!(!lines.read(&b""[..]));
    }

    #[test]
    fn who_says_more_than_a_line_can_hold_is_heard_no_more() {
        let (mut lines, said) = (Lines::default(), vec![b'x'; 2 * MOST]);
        let mut from = &said[..];
        while lines.read(&mut from) {}
        assert!((MOST + 1..=MOST + 1024).contains(&lines.length()), "{} bytes are kept", lines.length());
    }
}
