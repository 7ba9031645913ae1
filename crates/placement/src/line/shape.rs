//! Shapes: jobs that ask for the same. If one of a shape does not fit, none of it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::LogTime;
use tessera_ledger::state::WaitingKey;

use crate::applicant::Applicant;

/// Number of a shape in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeId(pub(crate) usize);

/// Number of a queue's line in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) usize);

/// Why the first job of a shape could not start when it was tried last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Nothing free is large enough, and nobody may be made to give way for it.
    Capacity {
        /// When a job that was preempted too often can be preempted again.
        retry_at: Option<LogTime>,
        /// Whether room in its queue would help as well.
        in_queue: bool,
        /// Whether somebody could give way for it, if its queue might hold more.
        over_maximum: bool,
        /// Virtual cards for which there was no room: so many must find some before another try makes sense.
        missing: u32,
    },
    /// Its queue, or one above it, cannot take even the least that the job could be granted.
    Queue,
    /// Something in the present round forbids it; it is tried again in the next.
    Round {
        /// Whether that is only because the round was cut short.
        cut_short: bool,
    },
}

/// Jobs that ask for the same.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Any one of them, against the present classes: they are alike in all that matters here.
    pub(crate) one: Arc<Applicant>,
    /// The line of their queue.
    pub(crate) line: LineId,
    /// Jobs that may start now, in line order.
    pub(crate) jobs: BTreeSet<WaitingKey>,
    /// Jobs of this shape that wait for their backoff or were granted in an unconfirmed plan, beside `jobs`.
    pub(crate) others: usize,
    /// Why the first one cannot start; `None`: to be tried.
    pub(crate) block: Option<Block>,
    /// The pool's count of prospects when it had no cards that could be kept for the shape, even if everything on
    /// them ended.
    pub(crate) hopeless_at: Option<u64>,
}

impl Shape {
    /// The first job in line.
    pub(crate) fn head(&self) -> Option<WaitingKey> {
        self.jobs.first().copied()
    }
}
