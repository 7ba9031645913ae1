//! Requests that were handed to the modelled disk and are not flushed yet.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::keys::SnapshotId;
use crate::record::EntryId;
use crate::request::{Request, Submission};

/// The queue of a modelled disk.
#[derive(Default)]
pub(crate) struct Pending {
    queue: VecDeque<Submission>,
    /// The number of queued requests that may be flushed.
    told: usize,
    /// Somebody is flushing: others only raise `told`, so that answers keep their order.
    flushing: bool,
    /// The last committed entry, waiting for something that is flushed.
    rider: Option<Option<EntryId>>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn push(&mut self, submission: Submission) {
        self.queue.push_back(submission);
    }

    pub(crate) fn ride(&mut self, committed: Option<EntryId>) {
        self.rider = Some(committed);
    }

    /// Allows `n` more to be flushed; says whether the caller must do it.
    pub(crate) fn tell(&mut self, n: usize) -> bool {
        self.told = self.told.saturating_add(n).min(self.queue.len());
        !std::mem::replace(&mut self.flushing, true)
    }

    /// The next one to flush, and the last committed entry if it may go along: only with the last one in the queue, so
    /// that it is never ahead of the log. `None` ends the flushing.
    pub(crate) fn next(&mut self) -> Option<(Submission, Option<Option<EntryId>>)> {
        let submission = match self.told.checked_sub(1) {
            Some(told) => {
                self.told = told;
                self.queue.pop_front()
            }
            None => None,
        };
        let Some(submission) = submission else {
            self.flushing = false;
            return None;
        };
        let rider = if self.queue.is_empty() { self.rider.take() } else { None };
        Some((submission, rider))
    }

    /// A chunk that is not flushed yet.
    pub(crate) fn chunk(&self, wanted: SnapshotId, number: u32) -> Option<Bytes> {
        self.queue.iter().find_map(|submission| match submission.to_write() {
            Some(Request::Chunk { id, n, chunk }) if (*id, *n) == (wanted, number) => Some(chunk.clone()),
            _ => None,
        })
    }

    /// Takes everything out: the process died.
    pub(crate) fn take(&mut self) -> VecDeque<Submission> {
        self.told = 0;
        self.rider = None;
        std::mem::take(&mut self.queue)
    }
}
