//! The expected content of a store, modelled as simply as possible.

use bytes::Bytes;
use tessera_store::{EntryId, LogRecord};

/// A log, a vote and the last committed entry.
#[derive(Clone, Default)]
pub struct Model {
    pub log: Vec<LogRecord>,
    pub purged: Option<EntryId>,
    pub vote: Option<Bytes>,
    pub committed: Option<EntryId>,
    pub term: u64,
}

impl Model {
    pub fn first(&self) -> u64 {
        let after_purged = self.purged.map(|purged| purged.index + 1);
        after_purged.or(self.log.first().map(|record| record.id.index)).unwrap_or(0)
    }

    pub fn end(&self) -> u64 {
        self.log.last().map_or(self.first(), |record| record.id.index + 1)
    }

    pub fn last(&self) -> Option<EntryId> {
        self.log.last().map(|record| record.id).or(self.purged)
    }

    pub fn append(&mut self, records: &[LogRecord]) -> bool {
        let any_index = self.log.is_empty() && self.purged.is_none();
        let fits = records.first().is_none_or(|first| any_index || first.id.index == self.end());
        if fits {
            self.log.extend_from_slice(records);
        }
        fits
    }

    pub fn truncate(&mut self, kept: Option<EntryId>) -> bool {
        let from = kept.map_or(self.first(), |kept| kept.index + 1);
        let allowed = from >= self.first();
        if allowed {
            self.log.retain(|record| record.id.index < from);
        }
        allowed
    }

    pub fn purge(&mut self, purged: EntryId) -> bool {
        if self.purged.is_some_and(|before| before.index >= purged.index) {
            return true;
        }
        let allowed = self.log.is_empty() || purged.index + 1 >= self.first();
        if allowed {
            self.log.retain(|record| record.id.index > purged.index);
            self.purged = Some(purged);
        }
        allowed
    }

    pub fn read(&self, from: u64, to: u64, bytes: u64) -> Vec<LogRecord> {
        if self.purged.is_some_and(|purged| from <= purged.index) {
            return Vec::new();
        }
        let mut found: Vec<LogRecord> = Vec::new();
        let mut sum = 0;
        for record in self.log.iter().filter(|record| (from..to).contains(&record.id.index)) {
            sum += record.payload.len() as u64;
            if sum > bytes && !found.is_empty() {
                break;
            }
            found.push(record.clone());
        }
        found
    }

    /// The term of an entry, or the newest one.
    pub fn term_of(&self, index: u64) -> u64 {
        let found = self.log.iter().find(|record| record.id.index == index);
        found.map_or(self.term, |record| record.id.term)
    }
}
