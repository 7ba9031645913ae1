//! The bounded queue before the log-writer thread. Whoever hands in waits while it is full; the thread takes all
//! at once.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::engine::held;
use crate::record::EntryId;
use crate::request::Submission;

/// Everything that is to be written together.
pub(crate) struct Group {
    pub(crate) submissions: Vec<Submission>,
    /// The last committed entry, if it changed. The whole queue is taken, so it is never ahead of the log.
    pub(crate) rider: Option<Option<EntryId>>,
}

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    filled: Condvar,
    emptied: Condvar,
    max_requests: usize,
    max_bytes: usize,
}

#[derive(Default)]
struct Inner {
    submissions: Vec<Submission>,
    bytes: usize,
    rider: Option<Option<EntryId>>,
    closed: bool,
}

impl Queue {
    /// A queue that is full with so many requests or bytes (one request may be larger than the bytes).
    pub(crate) fn new(max_requests: usize, max_bytes: usize) -> Self {
        Queue {
            inner: Mutex::new(Inner::default()),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            max_requests: max_requests.max(1),
            max_bytes: max_bytes.max(1),
        }
    }

    /// Hands in; waits while the queue is full. What comes after closing is handed back.
    pub(crate) fn push(&self, submission: Submission) -> Option<Submission> {
        let mut inner = self
            .emptied
            .wait_while(held(&self.inner), |inner| {
                let full = inner.submissions.len() >= self.max_requests || inner.bytes >= self.max_bytes;
                full && !inner.closed
            })
            .unwrap_or_else(PoisonError::into_inner);
        if inner.closed {
            return Some(submission);
        }
        inner.bytes += submission.size();
        inner.submissions.push(submission);
        // A thread that is woken while the queue is locked goes back to sleep before the lock.
        drop(inner);
        self.filled.notify_one();
        None
    }

    /// Remembers the last committed entry for the next group.
    pub(crate) fn ride(&self, committed: Option<EntryId>) {
        held(&self.inner).rider = Some(committed);
    }

    /// Takes everything; waits while there is nothing. `None` once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Group> {
        let mut inner = self
            .filled
            .wait_while(held(&self.inner), |inner| inner.submissions.is_empty() && !inner.closed)
            .unwrap_or_else(PoisonError::into_inner);
        if inner.submissions.is_empty() {
            return None;
        }
        inner.bytes = 0;
        let submissions = std::mem::take(&mut inner.submissions);
        let rider = inner.rider.take();
        drop(inner);
        self.emptied.notify_all();
        Some(Group { submissions, rider })
    }

    /// Nothing more comes in; what is in is still taken.
    pub(crate) fn close(&self) {
        held(&self.inner).closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// The last committed entry, if it changed since the last group.
    pub(crate) fn take_rider(&self) -> Option<Option<EntryId>> {
        held(&self.inner).rider.take()
    }

    /// Takes what nobody will write any more.
    pub(crate) fn abandon(&self) -> Vec<Submission> {
        self.close();
        std::mem::take(&mut held(&self.inner).submissions)
    }

    /// Number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        held(&self.inner).submissions.len()
    }
}
