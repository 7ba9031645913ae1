//! The newest entries of the log, decoded, and the sizes of those before them.
//!
//! Applying and replicating read what was appended a moment ago: from here, not from the disk. The sizes serve
//! compaction by bytes; they are known for entries appended since the process started, older ones count as nothing.

use std::collections::VecDeque;
use std::ops::Range;

use crate::types::Entry;

/// A contiguous run of entries up to the log's end, bounded in bytes.
pub(crate) struct Recent {
    entries: VecDeque<Entry>,
    bytes: usize,
    limit: usize,
    sizes: VecDeque<u32>,
    next: u64,
}

fn size(entry: &Entry) -> usize {
    entry.payload.encoded().len()
}

impl Recent {
    pub(crate) fn new(limit: usize) -> Self {
        Recent { entries: VecDeque::new(), bytes: 0, limit, sizes: VecDeque::new(), next: 0 }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        if entry.id.index != self.next {
            self.entries.clear();
            self.sizes.clear();
            self.bytes = 0;
        }
        let size = size(&entry);
        self.next = entry.id.index + 1;
        self.bytes += size;
        self.sizes.push_back(u32::try_from(size).unwrap_or(u32::MAX));
        self.entries.push_back(entry);
        while self.bytes > self.limit && self.entries.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= size(&entry);
        }
    }

    /// Forgets every entry after `last_kept` (`None`: all).
    pub(crate) fn truncate_after(&mut self, last_kept: Option<u64>) {
        let next = last_kept.map_or(0, |index| index + 1);
        while self.next > next && !self.sizes.is_empty() {
            self.sizes.pop_back();
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= size(&entry);
            }
            self.next -= 1;
        }
        if self.sizes.is_empty() {
            self.entries.clear();
            self.bytes = 0;
        }
    }

    /// Forgets every entry up to and including `last_purged`.
    pub(crate) fn purge_to(&mut self, last_purged: u64) {
        while self.entries.front().is_some_and(|entry| entry.id.index <= last_purged) {
            self.drop_oldest();
        }
        while !self.sizes.is_empty() && self.next - self.sizes.len() as u64 <= last_purged {
            self.sizes.pop_front();
        }
    }

    /// The entries of `range`, as many as fit into `max_bytes` but at least one; `None` when the first is not here.
    pub(crate) fn read(&self, range: Range<u64>, max_bytes: u64) -> Option<Vec<Entry>> {
        let first = self.entries.front()?.id.index;
        if range.start < first || range.start >= self.next {
            return None;
        }
        let end = range.end.min(self.next);
        let mut taken = Vec::new();
        let mut bytes = 0u64;
        for entry in self.entries.range((range.start - first) as usize..(end - first) as usize) {
            bytes += size(entry) as u64;
            if bytes > max_bytes && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        Some(taken)
    }

    /// The highest index up to which entries may be purged so that at most `keep` bytes up to `upto` remain; `None`
    /// when fewer remain anyway.
    pub(crate) fn purgeable(&self, upto: u64, keep: u64) -> Option<u64> {
        let first = self.next - self.sizes.len() as u64;
        let mut kept = 0u64;
        for (offset, size) in self.sizes.iter().enumerate().rev() {
            let index = first + offset as u64;
            if index > upto {
                continue;
            }
            kept += u64::from(*size);
            if kept > keep {
                return Some(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::machine::{LogIndex, LogTime, Term};
    use crate::types::{Batch, Content, Payload, log_id};

    fn entry(index: u64) -> Entry {
        let batch = Batch { time: LogTime(0), commands: vec![Bytes::from_static(&[7; 100])] };
        Entry { id: log_id(Term(1), LogIndex(index)), payload: Payload::new(Content::Batch(batch)) }
    }

    fn filled(limit: usize) -> Recent {
        let mut recent = Recent::new(limit);
        (1..=10).for_each(|index| recent.push(entry(index)));
        recent
    }

    fn indices(read: Option<Vec<Entry>>) -> Option<Vec<u64>> {
        read.map(|entries| entries.iter().map(|entry| entry.id.index).collect())
    }

    #[test]
    fn reads_what_it_has_and_nothing_else() {
        let recent = filled(usize::MAX);
        assert_eq!(indices(recent.read(3..6, u64::MAX)), Some(vec![3, 4, 5]));
        assert_eq!(indices(recent.read(9..99, u64::MAX)), Some(vec![9, 10]));
        assert_eq!(indices(recent.read(3..9, 1)), Some(vec![3]));
        assert_eq!(indices(recent.read(11..12, u64::MAX)), None);
        assert_eq!(indices(recent.read(0..5, u64::MAX)), None);
    }

    #[test]
    fn the_oldest_go_first_when_it_is_full() {
        let recent = filled(size(&entry(1)) * 3);
        assert_eq!(indices(recent.read(7..8, u64::MAX)), None);
        assert_eq!(indices(recent.read(8..11, u64::MAX)), Some(vec![8, 9, 10]));
    }

    #[test]
    fn truncating_and_purging_shorten_the_ends() {
        let mut recent = filled(usize::MAX);
        recent.truncate_after(Some(7));
        recent.purge_to(2);
        assert_eq!(indices(recent.read(3..99, u64::MAX)), Some(vec![3, 4, 5, 6, 7]));
        recent.push(entry(8));
        assert_eq!(indices(recent.read(7..99, u64::MAX)), Some(vec![7, 8]));
        recent.truncate_after(None);
        assert_eq!(indices(recent.read(3..4, u64::MAX)), None);
    }

    #[test]
    fn purging_by_bytes_keeps_the_newest() {
        let recent = filled(usize::MAX);
        let one = size(&entry(1)) as u64;
        assert_eq!(recent.purgeable(8, 3 * one), Some(5));
        assert_eq!(recent.purgeable(8, 100 * one), None);
    }
}
