//! The modelled disk and the store that is open on it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

use super::state::State;
use crate::body;
use crate::codec::Family;
use crate::engine::{Core, Disk, Engine, Source, Visit, held, submit};
use crate::error::StoreError;
use crate::keys::{self, SnapshotId};
use crate::record::EntryId;
use crate::recovery;
use crate::request::{Answer, Request, Submission};
use crate::store::{Reserve, Store, StoreStatus};

/// The number of entries that are copied out of the image at a time.
const SCAN_STEP: usize = 256;

/// The moment at which the modelled disk makes requests durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushing {
    /// Inside the call that asks for it, which also runs the callback.
    AtOnce,
    /// Only inside [`MemoryDisk::flush`] and [`MemoryDisk::flush_first`].
    WhenTold,
}

pub(super) type Hook = Arc<dyn Fn(&MemoryDisk) + Send + Sync>;

/// A modelled disk. Clones are the same disk.
#[derive(Clone)]
pub struct MemoryDisk {
    pub(super) state: Arc<Mutex<State>>,
}

/// A store that is open on a modelled disk.
pub(super) struct OpenDisk {
    disk: MemoryDisk,
    generation: u64,
    pub(super) core: Core,
}

impl MemoryDisk {
    /// An empty disk without limits.
    pub fn new(flushing: Flushing) -> Self {
        let state = State::new(flushing);
        MemoryDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Opens a store, as a starting process would: everything is read and checked.
    ///
    /// Dropping the store without [`MemoryDisk::flush`] loses what is pending, as a crash does.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another one is open; damage as on a real disk; [`StoreError::Full`].
    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        let mut state = self.state();
        if state.open.as_ref().is_some_and(|open| open.strong_count() > 0) {
            return Err(StoreError::Locked { path: memory() });
        }
        state.failed = None;
        state.release_reserve();
        if !recovery::check_format(&state.image, &memory())? {
            state.create()?;
        }
        let (view, shelf) = recovery::recover(&state.image, &memory(), 0)?;
        state.remove_orphans(&shelf.wanted());
        state.generation += 1;
        let core = Core::new(memory(), view, shelf);
        let open = Arc::new(OpenDisk { disk: self.clone(), generation: state.generation, core });
        state.open = Some(Arc::downgrade(&open));
        Ok(Arc::new(Engine::new(open)))
    }

    /// Another disk with all that is on this one now; what is pending is not.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = self.state();
        let copy = Self::new(state.flushing);
        copy.state().image = state.image.clone();
        copy
    }

    /// Calls `hook` after every request that is pending, without locks held. With it a simulation decides, on its own
    /// clock, when the disk is flushed. Only called with [`Flushing::WhenTold`].
    pub fn on_pending(&self, hook: impl Fn(&MemoryDisk) + Send + Sync + 'static) {
        self.state().hook = Some(Arc::new(hook));
    }

    pub fn pending(&self) -> usize {
        self.state().pending.len()
    }

    /// Flushes everything that is pending now and runs the callbacks, in order. Answers how many requests it flushed.
    pub fn flush(&self) -> usize {
        self.flush_first(usize::MAX)
    }

    /// Flushes the first `n` pending requests and runs their callbacks, in order. Answers how many it flushed; 0 while
    /// another flush is under way, which then does this one's share too.
    pub fn flush_first(&self, n: usize) -> usize {
        if !self.state().pending.tell(n) {
            return 0;
        }
        let mut flushed = 0;
        while let Some((submission, result)) = self.flush_next() {
            submission.settle(result);
            flushed += 1;
        }
        flushed
    }

    fn flush_next(&self) -> Option<(Submission, Result<(), StoreError>)> {
        let mut state = self.state();
        let (submission, rider) = state.pending.next()?;
        let open = state.open.as_ref().and_then(Weak::upgrade);
        let result = state.write(&submission, rider, open.as_deref());
        drop(state);
        Some((submission, result))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        held(&self.state)
    }
}

impl OpenDisk {
    /// The disk's state, as long as this store is the one that is open.
    fn current(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.disk.state();
        if state.generation == self.generation { Ok(state) } else { Err(StoreError::Closed) }
    }
}

impl Source for OpenDisk {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.current()?.image.get(family, key))
    }

    fn scan_log(&self, range: Range<u64>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut from = range.start;
        loop {
            let mut step = Vec::new();
            self.current()?.image.scan_log(from..range.end, &mut |index, frame| {
                step.push((index, frame));
                Ok(step.len() < SCAN_STEP)
            })?;
            let Some((last, _)) = step.last() else {
                return Ok(());
            };
            from = last.saturating_add(1);
            for (index, frame) in step {
                if !visit(index, frame)? {
                    return Ok(());
                }
            }
        }
    }
}

impl Disk for OpenDisk {
    fn core(&self) -> &Core {
        &self.core
    }

    fn readable(&self) -> Result<(), StoreError> {
        self.current().map(|_| ())
    }

    fn writable(&self) -> Result<(), StoreError> {
        match &self.current()?.failed {
            None => Ok(()),
            Some(first) => Err(StoreError::Failed { path: memory(), first: first.clone() }),
        }
    }

    fn queue(&self, submission: Submission) -> Option<Submission> {
        let Ok(mut state) = self.current() else {
            return Some(submission);
        };
        state.pending.push(submission);
        None
    }

    fn kick(&self) {
        let Ok(state) = self.current() else { return };
        let (flushing, hook) = (state.flushing, state.hook.clone());
        drop(state);
        match (flushing, hook) {
            (Flushing::AtOnce, _) => {
                self.disk.flush();
            }
            (Flushing::WhenTold, Some(hook)) => hook(&self.disk),
            (Flushing::WhenTold, None) => {}
        }
    }

    fn ride(&self, committed: Option<EntryId>) {
        if let Ok(mut state) = self.current() {
            state.pending.ride(committed);
        }
    }

    fn put_chunk(&self, id: SnapshotId, n: u32, chunk: Bytes) -> Result<(), StoreError> {
        submit(self, Answer::Nobody, |_| Ok(Some(Request::Chunk { id, n, chunk })));
        self.writable()
    }

    fn chunk(&self, id: SnapshotId, n: u32) -> Result<Option<Bytes>, StoreError> {
        let state = self.current()?;
        let pending = state.pending.chunk(id, n).map(|chunk| body::seal_chunk(id, n, &chunk).into());
        Ok(pending.or_else(|| state.image.get(Family::Snapshot, &keys::chunk(id, n))))
    }

    fn settle_chunks(&self) -> Result<(), StoreError> {
        self.writable()
    }

    fn status(&self) -> StoreStatus {
        let state = self.disk.state();
        let reserve = match (state.reserve, state.reserve_held) {
            (0, _) => Reserve::Off,
            (bytes, true) => Reserve::Held { bytes },
            (_, false) => Reserve::Released,
        };
        StoreStatus {
            path: memory(),
            disk_bytes: state.image.bytes(),
            free_bytes: state.free(),
            reserve,
            syncs: state.syncs,
            queued: state.pending.len(),
            failed: state.failed.as_deref().cloned(),
        }
    }
}

impl Drop for OpenDisk {
    fn drop(&mut self) {
        // Callbacks that nobody will call are dropped after the lock, for their own drops may come back here.
        let lost = self.current().map(|mut state| {
            state.generation += 1;
            state.pending.take()
        });
        drop(lost);
    }
}

pub(super) fn memory() -> PathBuf {
    Path::new("memory").to_owned()
}
