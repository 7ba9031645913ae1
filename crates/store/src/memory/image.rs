//! The flushed content: keys and values, as a real disk would hold them.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::disk::memory;
use crate::codec::{self, Family};
use crate::engine::{Source, Visit};
use crate::error::StoreError;
use crate::keys;
use crate::request::Changes;

/// The flushed values.
#[derive(Clone, Default)]
pub(crate) struct Image {
    values: BTreeMap<(Family, Vec<u8>), Bytes>,
    bytes: u64,
}

/// One change to an image.
enum Change {
    Put { family: Family, key: Vec<u8>, frame: Vec<u8> },
    Remove { family: Family, key: Vec<u8> },
    RemoveRange { family: Family, from: Vec<u8>, to: Vec<u8> },
}

/// Changes that are applied together or not at all.
#[derive(Default)]
pub(crate) struct Batch {
    changes: Vec<Change>,
    /// Bytes the batch would add at most.
    pub(crate) adds: u64,
}

impl Changes for Batch {
    fn put(&mut self, family: Family, key: &[u8], frame: Vec<u8>) {
        self.adds += (key.len() + frame.len()) as u64;
        self.changes.push(Change::Put { family, key: key.to_vec(), frame });
    }

    fn remove(&mut self, family: Family, key: &[u8]) {
        self.changes.push(Change::Remove { family, key: key.to_vec() });
    }

    fn remove_range(&mut self, family: Family, from: &[u8], to: &[u8]) {
        self.changes.push(Change::RemoveRange { family, from: from.to_vec(), to: to.to_vec() });
    }
}

impl Image {
    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Option<Bytes> {
        self.values.get(&(family, key.to_vec())).cloned()
    }

    /// Keys and values of a family from `from` to before `to`.
    pub(crate) fn range(&self, family: Family, from: &[u8], to: &[u8]) -> impl Iterator<Item = (&[u8], &Bytes)> {
        // An inverted range is an empty one, not a panic.
        let to = to.max(from);
        self.values
            .range((family, from.to_vec())..(family, to.to_vec()))
            .map(|((_, key), frame)| (key.as_slice(), frame))
    }

    pub(crate) fn apply(&mut self, batch: Batch) {
        for change in batch.changes {
            match change {
                Change::Put { family, key, frame } => self.put(family, key, Bytes::from(frame)),
                Change::Remove { family, key } => self.remove(family, key),
                Change::RemoveRange { family, from, to } => {
                    let keys: Vec<_> = self.range(family, &from, &to).map(|(key, _)| key.to_vec()).collect();
                    for key in keys {
                        self.remove(family, key);
                    }
                }
            }
        }
    }

    pub(crate) fn put(&mut self, family: Family, key: Vec<u8>, frame: Bytes) {
        self.bytes += (key.len() + frame.len()) as u64;
        let length = key.len();
        if let Some(old) = self.values.insert((family, key), frame) {
            self.bytes -= (length + old.len()) as u64;
        }
    }

    pub(crate) fn remove(&mut self, family: Family, key: Vec<u8>) {
        let length = key.len();
        if let Some(old) = self.values.remove(&(family, key)) {
            self.bytes -= (length + old.len()) as u64;
        }
    }
}

impl Source for Image {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(Image::get(self, family, key))
    }

    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let (from, to) = (keys::entry(range.start), keys::entry(range.end));
        for (key, frame) in self.range(Family::Log, &from, &to) {
            if !visit(codec::index_of(key, &memory())?, frame.clone())? {
                break;
            }
        }
        Ok(())
    }
}
