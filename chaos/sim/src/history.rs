//! The requests of clients and the answers to them: the evidence against which promises are held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_ledger::RequestId;

use crate::machine::now;

/// The answer that a client received to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No answer yet.
    Open,
    /// The job and the revision that it was answered with.
    Accepted { job: u64, revision: u64 },
    /// Refused for good.
    Refused,
    /// It is not known whether it was made.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Submission {
    pub request: String,
    pub asked: Duration,
    pub answer: Answer,
    pub answered: Option<Duration>,
}

/// A linearizable read of one job.
#[derive(Clone, Debug)]
pub struct Read {
    pub job: u64,
    pub asked: Duration,
    pub answered: Duration,
    /// The revision that the answer was read at, and whether the job was there.
    pub found: (u64, bool),
}

/// A message that a watcher was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The list, or what had happened before, is complete up to this revision.
    Synced(u64),
    /// An event of a job.
    Event { revision: u64, ordinal: u32, job: u64 },
    /// Nothing else up to this revision.
    Progress(u64),
    /// The watch begins anew with a list.
    Relisting,
}

impl Shown {
    pub const fn revision(&self) -> u64 {
        match self {
            Self::Synced(revision) | Self::Progress(revision) | Self::Event { revision, .. } => *revision,
            Self::Relisting => 0,
        }
    }
}

/// The number that a request id stands for.
pub fn id_of(request: &str) -> Option<RequestId> {
    let digits: String = request.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(RequestId)
}

/// A request that a client was told to be refused: whatever was sent under its id, nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub request: String,
    pub told: Duration,
    pub reason: String,
}

#[derive(Default)]
struct Kept {
    refused: Vec<Refused>,
    shown: Vec<(usize, Shown)>,
    submissions: Vec<Arc<Submission>>,
    reads: Vec<Read>,
}

/// The history of all clients. Clones are the same history.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Kept>>);

impl History {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A submission is asked; answers its place.
    pub fn submit(&self, request: &str) -> usize {
        let mut kept = self.kept();
        kept.submissions.push(Arc::new(Submission {
            request: request.to_owned(),
            asked: now(),
            answer: Answer::Open,
            answered: None,
        }));
        kept.submissions.len() - 1
    }

    /// A submission is answered.
    pub fn answer(&self, place: usize, answer: Answer) {
        if let Some(submission) = self.kept().submissions.get_mut(place) {
            let submission = Arc::make_mut(submission);
            submission.answer = answer;
            submission.answered = Some(now());
        }
    }

    /// A client is told that a request is refused, and sends nothing under its id again.
    pub fn refuse(&self, request: &str, reason: String) {
        self.kept().refused.push(Refused { request: request.to_owned(), told: now(), reason });
    }

    /// All refusals but the first ones.
    pub fn refusals_after(&self, first: usize) -> Vec<Refused> {
        self.kept().refused[first..].to_vec()
    }

    /// A linearizable read was answered.
    pub fn read(&self, read: Read) {
        self.kept().reads.push(read);
    }

    /// A watcher was shown something.
    pub fn show(&self, watcher: usize, shown: Shown) {
        self.kept().shown.push((watcher, shown));
    }

    /// Takes everything that watchers were shown since the last call.
    pub fn take_shown(&self) -> Vec<(usize, Shown)> {
        std::mem::take(&mut self.kept().shown)
    }

    pub fn submissions(&self) -> Vec<Arc<Submission>> {
        self.kept().submissions.clone()
    }

    /// All reads but the first ones.
    pub fn reads_after(&self, first: usize) -> Vec<Read> {
        self.kept().reads[first..].to_vec()
    }
}
