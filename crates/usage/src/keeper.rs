//! The thread that keeps the accounts. Applying the log never waits for it, but for the one moment before a snapshot of
//! the ledger: what the accounts have not kept by then could not be read again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use tessera_ledger::{LogTime, Revision};

use crate::books::{Change, Entry};
use crate::database::{Database, UsageError};
use crate::query::{Answer, Query};

/// The time for which entries are gathered before they are written together, unless somebody asks.
const GATHER: Duration = Duration::from_secs(1);
/// Most entries that are written together.
const MOST_GATHERED: usize = 4_096;
/// The interval, in the ledger's time, at which records that are too old are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub path: PathBuf,
    /// The pool that they are of.
    pub cluster: String,
    pub retention: Duration,
}

enum Order {
    Keep(Entry),
    TakeOver { known: (Revision, LogTime), held: Vec<Change>, at: (Revision, LogTime) },
    Flush { revision: Revision, time: LogTime, done: oneshot::Sender<bool> },
}

/// The accounts of a member. Clones are of the same.
#[derive(Clone, Debug)]
pub struct Keeper {
    orders: Sender<Order>,
    path: Arc<PathBuf>,
    failed: Arc<AtomicBool>,
}

impl Keeper {
    /// Opens the accounts and starts the thread that keeps them. It ends when the last clone is dropped.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn start(settings: Settings) -> Result<Self, UsageError> {
        let database = Database::open(&settings.path, &settings.cluster)?;
        let (orders, received) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let path = Arc::new(settings.path);
        let work = Work { database, retention: settings.retention, forgot_at: LogTime(0), failed: Arc::clone(&failed) };
        let spawned = thread::Builder::new().name("usage".to_owned()).spawn(move || work.run(&received));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread can be started for the accounts");
            failed.store(true, Ordering::Relaxed);
        }
        Ok(Self { orders, path, failed })
    }

    /// Returns whether accounts are still kept.
    #[must_use]
    pub fn keeps(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    /// Keeps what an entry changed, soon.
    pub fn keep(&self, entry: Entry) {
        self.order(Order::Keep(entry));
    }

    /// Takes over a state that was not reached entry by entry, in which this is held. Entries were applied one by one
    /// up to the one that is known.
    pub fn take_over(&self, known: (Revision, LogTime), held: Vec<Change>, at: (Revision, LogTime)) {
        self.order(Order::TakeOver { known, held, at });
    }

    fn order(&self, order: Order) {
        // A thread that has ended has said why; nobody waits for an answer to these.
        if self.keeps() {
            let _ = self.orders.send(order);
        }
    }

    /// Everything that was ordered is on disk, and with it that nothing up to this entry is missing.
    ///
    /// # Errors
    /// [`UsageError::Stopped`].
    pub async fn flushed(&self, revision: Revision, time: LogTime) -> Result<(), UsageError> {
        let (done, answer) = oneshot::channel();
        self.order(Order::Flush { revision, time, done });
        answer.await.ok().filter(|kept| *kept).map(drop).ok_or(UsageError::Stopped)
    }

    /// The same, for a thread that may wait.
    ///
    /// # Errors
    /// [`UsageError::Stopped`].
    pub fn flush(&self, revision: Revision, time: LogTime) -> Result<(), UsageError> {
        futures::executor::block_on(self.flushed(revision, time))
    }

    /// Sums up what is on disk. Reads the disk: for a thread that may wait.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn sums(&self, query: &Query) -> Result<Answer, UsageError> {
        Database::open_to_read(&self.path)?.sums(query)
    }
}

struct Work {
    database: Database,
    retention: Duration,
    forgot_at: LogTime,
    failed: Arc<AtomicBool>,
}

impl Work {
    fn run(mut self, orders: &Receiver<Order>) {
        if let Err(error) = self.work(orders) {
            self.failed.store(true, Ordering::Relaxed);
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%error, cause, "accounts are not kept any more until this member starts again");
        }
    }

    fn work(&mut self, orders: &Receiver<Order>) -> Result<(), UsageError> {
        while let Ok(first) = orders.recv() {
            let mut entries = Vec::new();
            let until = Instant::now() + GATHER;
            let mut next = Some(first);
            let urgent = loop {
                match next.take() {
                    Some(Order::Keep(entry)) => entries.push(entry),
                    Some(urgent) => break Some(urgent),
                    None => break None,
                }
                // Also while entries never cease to come, they are written.
                let left = until.saturating_duration_since(Instant::now());
                if !left.is_zero() && entries.len() < MOST_GATHERED {
                    next = orders.recv_timeout(left).ok();
                }
            };
            if let Some(last) = entries.last() {
                let reached = (last.revision, last.time);
                self.database.keep(&entries, reached)?;
                self.forget(reached.1)?;
            }
            match urgent {
                Some(Order::TakeOver { known, held, at }) => {
                    self.database.keep(&[], known)?;
                    if let Some(gap) = self.database.take_over(&held, at)? {
                        tracing::warn!(
                            after = gap.after.0,
                            before = gap.before.0,
                            "the accounts of this member have a gap: it took over a state of others"
                        );
                    }
                }
                Some(Order::Flush { revision, time, done }) => {
                    self.database.keep(&[], (revision, time))?;
                    // Whoever asked may have given up.
                    let _ = done.send(true);
                }
                Some(Order::Keep(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Forgets what is too old, now and then.
    fn forget(&mut self, now: LogTime) -> Result<(), UsageError> {
        if now.since(self.forgot_at) < FORGET_EVERY {
            return Ok(());
        }
        self.forgot_at = now;
        let retention = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let rows = self.database.forget(LogTime(now.0.saturating_sub(retention)))?;
        if rows > 0 {
            tracing::info!(rows, "accounts that are older than they are kept were forgotten");
        }
        Ok(())
    }
}
