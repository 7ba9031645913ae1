//! The newest entries of the log in memory: those that are not written yet, and as many before them as a budget allows.

use std::collections::VecDeque;
use std::ops::Range;

use crate::record::LogRecord;

/// The approximate cost of an entry in bytes beside its payload.
const OVERHEAD: usize = 64;

/// A run of neighbouring entries that ends with the log's last.
pub(crate) struct Tail {
    entries: VecDeque<LogRecord>,
    bytes: usize,
    budget: usize,
    /// Entries before this index are on the disk.
    unwritten: u64,
}

impl Tail {
    /// An empty tail that keeps at most `budget` bytes of entries that are on the disk.
    pub(crate) fn new(budget: usize) -> Self {
        Tail { entries: VecDeque::new(), bytes: 0, budget, unwritten: 0 }
    }

    /// Index of the first entry in memory.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.front().map(|record| record.id.index)
    }

    /// Adds the log's new last entry, which is not written yet.
    pub(crate) fn push(&mut self, record: LogRecord) {
        self.bytes += cost(&record);
        self.entries.push_back(record);
    }

    /// Entries up to `index` are on the disk: those over the budget go.
    pub(crate) fn written(&mut self, index: u64) {
        self.unwritten = self.unwritten.max(index.saturating_add(1));
        while self.bytes > self.budget
            && let Some(front) = self.entries.pop_front_if(|entry| entry.id.index < self.unwritten)
        {
            self.bytes -= cost(&front);
        }
    }

    /// Drops the entries from `from` on; they will be written anew.
    pub(crate) fn truncate(&mut self, from: u64) {
        while let Some(back) = self.entries.pop_back_if(|entry| entry.id.index >= from) {
            self.bytes -= cost(&back);
        }
        self.unwritten = self.unwritten.min(from);
    }

    /// Drops the entries before `next`.
    pub(crate) fn purge(&mut self, next: u64) {
        while let Some(front) = self.entries.pop_front_if(|entry| entry.id.index < next) {
            self.bytes -= cost(&front);
        }
    }

    /// Entries of `range`, which lies within the tail, as many as fit into `max_bytes`, at least one.
    pub(crate) fn read(&self, range: Range<u64>, max_bytes: u64) -> Vec<LogRecord> {
        let Some(first) = self.first() else {
            return Vec::new();
        };
        let skip = usize::try_from(range.start.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        let mut bytes = 0;
        for record in self.entries.iter().skip(skip).take_while(|record| record.id.index < range.end) {
            bytes += record.payload.len() as u64;
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(record.clone());
        }
        found
    }
}

fn cost(record: &LogRecord) -> usize {
    record.payload.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::record::EntryId;

    fn filled(budget: usize) -> Tail {
        let mut tail = Tail::new(budget);
        for index in 1..=10 {
            tail.push(LogRecord { id: EntryId { term: 1, index }, payload: Bytes::from(vec![0; 100]) });
        }
        tail
    }

    fn indices(records: &[LogRecord]) -> Vec<u64> {
        records.iter().map(|record| record.id.index).collect()
    }

    #[test]
    fn nothing_unwritten_is_let_go() {
        let mut tail = filled(0);
        assert_eq!(tail.first(), Some(1));
        tail.written(4);
        assert_eq!(tail.first(), Some(5));
        assert_eq!(indices(&tail.read(5..11, u64::MAX)), [5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn the_budget_bounds_what_is_written() {
        let mut tail = filled(3 * (100 + OVERHEAD));
        tail.written(10);
        assert_eq!(tail.first(), Some(8));
    }

    #[test]
    fn a_truncated_index_counts_as_unwritten_again() {
        let mut tail = filled(0);
        tail.written(3);
        tail.truncate(6);
        tail.push(LogRecord { id: EntryId { term: 2, index: 6 }, payload: Bytes::new() });
        tail.written(5);
        assert_eq!(tail.first(), Some(6));
    }

    #[test]
    fn reading_stops_at_the_bytes_asked_for_but_gives_one() {
        let tail = filled(0);
        assert_eq!(indices(&tail.read(3..9, 250)), [3, 4]);
        assert_eq!(indices(&tail.read(3..9, 0)), [3]);
        assert_eq!(indices(&tail.read(3..3, 0)), Vec::<u64>::new());
    }
}
