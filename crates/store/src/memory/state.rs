//! The content of a modelled disk and its changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::disk::{Flushing, Hook, OpenDisk, memory};
use super::image::{Batch, Image};
use super::pending::Pending;
use crate::body;
use crate::codec::Family;
use crate::error::{Cause, StoreError};
use crate::histogram::SyncHistogram;
use crate::keys::{self, SnapshotId};
use crate::record::EntryId;
use crate::recovery;
use crate::request::{Changes, Request, Submission, encode_committed};
use crate::reserve::{releases_below, remakes_from};

/// The disk behind every clone of a [`MemoryDisk`](super::MemoryDisk).
pub(super) struct State {
    pub(super) image: Image,
    pub(super) pending: Pending,
    /// The store that is open; a new number makes older ones useless.
    pub(super) generation: u64,
    pub(super) open: Option<Weak<OpenDisk>>,
    pub(super) flushing: Flushing,
    pub(super) hook: Option<Hook>,
    pub(super) capacity: Option<u64>,
    pub(super) reserve: u64,
    pub(super) reserve_held: bool,
    pub(super) failed: Option<Arc<StoreError>>,
    pub(super) syncs: SyncHistogram,
}

impl State {
    /// An empty disk without limits.
    pub(super) fn new(flushing: Flushing) -> Self {
        State {
            image: Image::default(),
            pending: Pending::default(),
            generation: 0,
            open: None,
            flushing,
            hook: None,
            capacity: None,
            reserve: 0,
            reserve_held: false,
            failed: None,
            syncs: SyncHistogram::default(),
        }
    }

    /// A new store: its format, and the reserve if there is room.
    pub(super) fn create(&mut self) -> Result<(), StoreError> {
        if self.image.bytes() > 0 {
            return Err(recovery::no_format(&memory()));
        }
        let mut batch = Batch::default();
        batch.put(Family::Meta, keys::FORMAT, body::seal_format());
        self.commit(batch, "creating the store")
    }

    /// Writes one request and what it means for the open store.
    pub(super) fn write(
        &mut self,
        submission: &Submission,
        rider: Option<Option<EntryId>>,
        open: Option<&OpenDisk>,
    ) -> Result<(), StoreError> {
        if let Some(first) = &self.failed {
            return Err(StoreError::Failed { path: memory(), first: first.clone() });
        }
        let mut batch = Batch::default();
        let mut whole = open.map(|open| open.core.shelf().whole().to_vec()).unwrap_or_default();
        if let Some(request) = submission.to_write() {
            request.encode(&mut whole, &mut batch);
        }
        if let Some(committed) = rider {
            encode_committed(committed, &mut batch);
        }
        self.commit(batch, "writing the log").inspect_err(|error| {
            self.failed = Some(Arc::new(error.clone()));
        })?;
        self.syncs.record(Duration::ZERO, 1);
        self.remake_reserve();
        if let Some(open) = open {
            open.core.shelf().set_whole(whole);
            open.core.view().written(submission.mark);
        }
        Ok(())
    }

    /// Applies a request that reached the disk although nobody was told.
    pub(super) fn keep(&mut self, request: &Request, whole: &mut Vec<body::Whole>) {
        let mut batch = Batch::default();
        request.encode(whole, &mut batch);
        self.image.apply(batch);
    }

    pub(super) fn commit(&mut self, batch: Batch, doing: &'static str) -> Result<(), StoreError> {
        if self.free().is_some_and(|free| batch.adds > free) {
            let source: Cause = Arc::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
            return Err(StoreError::Full { path: memory(), doing, source });
        }
        self.image.apply(batch);
        Ok(())
    }

    pub(super) fn free(&self) -> Option<u64> {
        let reserve = if self.reserve_held { self.reserve } else { 0 };
        self.capacity.map(|capacity| capacity.saturating_sub(self.image.bytes() + reserve))
    }

    /// Gives up the reserve when the disk is full.
    pub(super) fn release_reserve(&mut self) {
        if self.free().is_some_and(|free| free < releases_below(self.reserve)) {
            self.reserve_held = false;
        }
    }

    /// Makes the reserve when there is room.
    pub(super) fn remake_reserve(&mut self) {
        let room = self.free().is_none_or(|free| free >= remakes_from(self.reserve));
        self.reserve_held = self.reserve > 0 && (self.reserve_held || room);
    }

    /// Removes chunks of snapshots that nobody will finish: their process died.
    pub(super) fn remove_orphans(&mut self, wanted: &[SnapshotId]) {
        let chunks = self.image.range(Family::Snapshot, &[], &[u8::MAX; 16]);
        let orphans: Vec<_> = chunks
            .filter(|(key, _)| keys::chunk_owner(key).is_none_or(|owner| !wanted.contains(&owner)))
            .map(|(key, _)| key.to_vec())
            .collect();
        for key in orphans {
            self.image.remove(Family::Snapshot, key);
        }
    }

    /// No store is open any more.
    pub(super) fn forget_open(&mut self) {
        self.open = None;
    }

    pub(super) fn set_reserve(&mut self, bytes: u64) {
        self.reserve_held = false;
        self.reserve = bytes;
        self.remake_reserve();
    }
}
