//! Faults of disks: power goes, bits flip, writes tear, files vanish, space ends.

use bytes::Bytes;

use super::disk::MemoryDisk;
use super::state::State;
use crate::body;
use crate::codec::Family;
use crate::keys;

/// The effect of a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing that was pending reached the disk.
    LosePending,
    /// The first so many pending requests reached the disk, although nobody was told.
    KeepFirst(usize),
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The log entry with this index.
    Entry(u64),
    Vote,
    Identity,
    /// The last committed entry.
    Committed,
    /// A chunk of the newest whole snapshot.
    Chunk(u32),
}

impl MemoryDisk {
    /// The power goes: the open store is useless from now on ([`StoreError::Closed`](crate::StoreError::Closed)), and
    /// no pending callback is called.
    pub fn crash(&self, crash: Crash) {
        let mut state = self.state();
        let pending = state.pending.take();
        if let Crash::KeepFirst(kept) = crash {
            let mut whole = state.flushed_snapshots();
            for request in pending.iter().take(kept).filter_map(|submission| submission.to_write()) {
                state.keep(request, &mut whole);
            }
        }
        state.generation += 1;
        state.forget_open();
        drop(state);
        drop(pending);
    }

    /// Flips one bit of a flushed record (counted from its first byte, modulo its length). Answers whether there
    /// is one.
    pub fn flip_bit(&self, place: Place, bit: usize) -> bool {
        self.change(place, |frame| {
            let bit = bit % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        })
    }

    /// Cuts a flushed record in half, as a device does that reported a write it then did not finish. Answers whether
    /// there is one.
    pub fn tear(&self, place: Place) -> bool {
        self.change(place, |frame| frame.truncate(frame.len() / 2))
    }

    /// Loses a flushed record. Answers whether there was one.
    pub fn lose(&self, place: Place) -> bool {
        let mut state = self.state();
        let Some((family, key)) = state.locate(place) else {
            return false;
        };
        let there = state.image.get(family, &key).is_some();
        state.image.remove(family, key);
        there
    }

    /// Limits the disk to so many bytes of keys, values and reserve; what is flushed beyond fails with
    /// [`StoreError::Full`](crate::StoreError::Full). `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Keeps so many bytes in reserve, given up when a store is opened on a full disk; 0 for none.
    pub fn set_reserve(&self, bytes: u64) {
        self.state().set_reserve(bytes);
    }

    /// Bytes of flushed keys and values.
    pub fn used_bytes(&self) -> u64 {
        self.state().image.bytes()
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.state();
        let Some((family, key)) = state.locate(place) else {
            return false;
        };
        let Some(frame) = state.image.get(family, &key) else {
            return false;
        };
        let mut frame = frame.to_vec();
        change(&mut frame);
        state.image.put(family, key, Bytes::from(frame));
        true
    }
}

impl State {
    fn flushed_snapshots(&self) -> Vec<body::Whole> {
        let frame = self.image.get(Family::Meta, keys::SNAPSHOTS);
        frame.and_then(|frame| body::unseal_snapshots(&frame).ok()).unwrap_or_default()
    }

    fn locate(&self, place: Place) -> Option<(Family, Vec<u8>)> {
        let key = match place {
            Place::Entry(index) => return Some((Family::Log, keys::entry(index).to_vec())),
            Place::Chunk(n) => {
                let id = self.flushed_snapshots().first()?.id;
                return Some((Family::Snapshot, keys::chunk(id, n).to_vec()));
            }
            Place::Vote => keys::VOTE,
            Place::Identity => keys::IDENTITY,
            Place::Committed => keys::COMMITTED,
        };
        Some((Family::Meta, key.to_vec()))
    }
}
