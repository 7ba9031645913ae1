//! The accounts in SQLite: one row for what a worker held of one class of card, from when to when.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};
use tessera_ledger::{AllocationId, LogTime, Rank, Revision};

use crate::books::{Change, Entry, Holding, JobFacts};
use crate::query::{Answer, Gap, Query};
use crate::sums;

/// The version of the tables.
const VERSION: i64 = 1;
const TABLES: &str = "
CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cluster TEXT NOT NULL,
    revision INTEGER NOT NULL,
    time_ms INTEGER NOT NULL
);
CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    submitter TEXT NOT NULL,
    queue TEXT NOT NULL
);
CREATE TABLE label (
    job INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE holding (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    allocation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    kind TEXT NOT NULL,
    vendor TEXT NOT NULL,
    model TEXT NOT NULL,
    blocks INTEGER NOT NULL,
    block_milli_tflops INTEGER NOT NULL,
    memory_mib INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    lost INTEGER NOT NULL DEFAULT 0,
    saved_ms INTEGER
);
CREATE INDEX holding_of_allocation ON holding (allocation, rank);
CREATE INDEX holding_by_end ON holding (ended_ms, began_ms);
CREATE INDEX holding_of_job ON holding (job);
CREATE TABLE gap (
    after INTEGER NOT NULL,
    before INTEGER NOT NULL,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL
);
";

/// The reason for which the accounts cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("the accounts in {path} cannot be {what}; {}", remedy(source))]
    Sqlite {
        path: PathBuf,
        /// The operation that failed, as a participle.
        what: &'static str,
        #[source]
        source: rusqlite::Error,
    },
    #[error(
        "the accounts in {path} were written by a later release: their tables have version {found}, and this release \
         knows {VERSION}"
    )]
    TooNew { path: PathBuf, found: i64 },
    #[error("the accounts in {path} are of the pool {found}, not of {wanted}; set the file aside")]
    OtherPool { path: PathBuf, found: String, wanted: String },
    /// The thread that keeps them has ended.
    #[error("the accounts are not kept any more since an earlier error, which is in the log of this member")]
    Stopped,
}

/// The next step for whoever meets an error of SQLite. To set the file aside costs all that it holds: only a file that
/// is damaged is worth it.
fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full: make room on it",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "the file is damaged: set it aside, and they begin anew with a gap"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another process holds the file: try again",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            "see whether the file and its folder may be read and written"
        }
        Some(ErrorCode::SystemIoFailure) => "the disk fails, or is full: look at the log of the host",
        _ => "the file is not at fault: report this",
    }
}

#[derive(Debug)]
pub struct Database {
    connection: Connection,
    path: PathBuf,
}

type Result<T> = std::result::Result<T, UsageError>;

impl Database {
    /// Opens the accounts of a pool to keep them; they are made if they are not there.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn open(path: &Path, cluster: &str) -> Result<Self> {
        let say = |source| UsageError::Sqlite { path: path.to_owned(), what: "opened", source };
        let mut connection = Connection::open(path).map_err(say)?;
        prepare(&mut connection, cluster).map_err(say)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(say)?;
        if version > VERSION {
            return Err(UsageError::TooNew { path: path.to_owned(), found: version });
        }
        let found: String = connection.query_row("SELECT cluster FROM position", [], |row| row.get(0)).map_err(say)?;
        if found != cluster {
            return Err(UsageError::OtherPool { path: path.to_owned(), found, wanted: cluster.to_owned() });
        }
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Opens accounts that somebody else keeps, to read them.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn open_to_read(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let say = |source| UsageError::Sqlite { path: path.to_owned(), what: "opened", source };
        let connection = Connection::open_with_flags(path, flags).map_err(say)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(say)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn say(&self, what: &'static str) -> impl Fn(rusqlite::Error) -> UsageError + use<> {
        let path = self.path.clone();
        move |source| UsageError::Sqlite { path: path.clone(), what, source }
    }

    /// The entry up to which everything is kept.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn position(&self) -> Result<(Revision, LogTime)> {
        position(&self.connection).map_err(self.say("read"))
    }

    /// Keeps entries, and that everything up to `reached` is kept. Entries that are kept already change nothing.
    ///
    /// # Errors
    /// [`UsageError`]; nothing is changed then.
    pub fn keep(&mut self, entries: &[Entry], reached: (Revision, LogTime)) -> Result<()> {
        let say = self.say("written");
        let transaction = self.connection.transaction().map_err(&say)?;
        keep(&transaction, entries, reached).and_then(|()| transaction.commit()).map_err(say)
    }

    /// Takes over what is held in a state that was not reached entry by entry. Without a gap nothing is changed.
    ///
    /// # Errors
    /// [`UsageError`]; nothing is changed then.
    pub fn take_over(&mut self, held: &[Change], at: (Revision, LogTime)) -> Result<Option<Gap>> {
        let say = self.say("written");
        let transaction = self.connection.transaction().map_err(&say)?;
        let taken = take_over(&transaction, held, at).and_then(|gap| transaction.commit().map(|()| gap));
        taken.map_err(say)
    }

    /// Forgets what ended before a time. Answers how many rows went.
    ///
    /// # Errors
    /// [`UsageError`]; nothing is changed then.
    pub fn forget(&mut self, before: LogTime) -> Result<usize> {
        let say = self.say("written");
        let transaction = self.connection.transaction().map_err(&say)?;
        forget(&transaction, before).and_then(|rows| transaction.commit().map(|()| rows)).map_err(say)
    }

    /// Sums up.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn sums(&self, query: &Query) -> Result<Answer> {
        sums::sums(&self.connection, query).map_err(self.say("read"))
    }
}

fn prepare(connection: &mut Connection, cluster: &str) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // What is kept must be on disk before the ledger's snapshot lets go of the entries that it was made from.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.execute("INSERT INTO position VALUES (1, ?1, 0, 0)", [cluster])?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}

/// SQLite's integers are signed; nothing that is counted here comes near their end.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn position(connection: &Connection) -> rusqlite::Result<(Revision, LogTime)> {
    connection.query_row("SELECT revision, time_ms FROM position", [], |row| {
        Ok((Revision(unsigned(row.get(0)?)), LogTime(unsigned(row.get(1)?))))
    })
}

fn set_position(transaction: &Transaction<'_>, (revision, time): (Revision, LogTime)) -> rusqlite::Result<()> {
    let position = params![signed(revision.0), signed(time.0)];
    transaction.execute("UPDATE position SET revision = ?1, time_ms = ?2", position).map(drop)
}

fn keep(transaction: &Transaction<'_>, entries: &[Entry], reached: (Revision, LogTime)) -> rusqlite::Result<()> {
    let (known, _) = position(transaction)?;
    for entry in entries.iter().filter(|entry| entry.revision > known) {
        for change in &entry.changes {
            match change {
                Change::Began { job, holding } => begin(transaction, job, holding, entry.time)?,
                Change::Ended { allocation, rank } => end(transaction, *allocation, *rank, entry.time)?,
                Change::Lost { allocation, saved_at } => {
                    let text = "UPDATE holding SET lost = 1, saved_ms = ?2 WHERE allocation = ?1";
                    let mut lost = transaction.prepare_cached(text)?;
                    lost.execute(params![signed(allocation.0), saved_at.map(|time| signed(time.0))])?;
                }
            }
        }
    }
    if reached.0 > known { set_position(transaction, reached) } else { Ok(()) }
}

fn begin(transaction: &Transaction<'_>, job: &JobFacts, holding: &Holding, at: LogTime) -> rusqlite::Result<()> {
    let id = signed(job.id.0);
    let mut known = transaction.prepare_cached("INSERT OR IGNORE INTO job VALUES (?1, ?2, ?3, ?4)")?;
    if known.execute(params![id, job.name, job.submitter, job.queue])? > 0 {
        let mut label = transaction.prepare_cached("INSERT OR IGNORE INTO label VALUES (?1, ?2, ?3)")?;
        for (key, value) in &job.labels {
            label.execute(params![id, key, value])?;
        }
    }
    let mut row = transaction.prepare_cached(
        "INSERT INTO holding (job, allocation, attempt, rank, kind, vendor, model, blocks, block_milli_tflops, \
         memory_mib, began_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let Holding { allocation, attempt, rank, class, blocks, block_milli_tflops, memory_mib } = holding;
    row.execute(params![
        id,
        signed(allocation.0),
        attempt,
        rank.0,
        class.kind,
        class.vendor,
        class.model,
        signed(*blocks),
        signed(*block_milli_tflops),
        signed(*memory_mib),
        signed(at.0)
    ])
    .map(drop)
}

fn end(transaction: &Transaction<'_>, allocation: AllocationId, rank: Rank, at: LogTime) -> rusqlite::Result<()> {
    let mut row = transaction
        .prepare_cached("UPDATE holding SET ended_ms = ?3 WHERE allocation = ?1 AND rank = ?2 AND ended_ms IS NULL")?;
    row.execute(params![signed(allocation.0), rank.0, signed(at.0)]).map(drop)
}

fn take_over(transaction: &Transaction<'_>, held: &[Change], at: (Revision, LogTime)) -> rusqlite::Result<Option<Gap>> {
    let (revision, time) = position(transaction)?;
    if at.0 <= revision {
        return Ok(None);
    }
    let gap = Gap { after: revision, before: at.0, from: time, to: at.1 };
    let mut still: BTreeSet<(i64, i64)> = BTreeSet::new();
    let open: Vec<(i64, i64)> = {
        let mut rows = transaction.prepare("SELECT DISTINCT allocation, rank FROM holding WHERE ended_ms IS NULL")?;
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    let known: BTreeSet<(i64, i64)> = open.iter().copied().collect();
    for change in held {
        let Change::Began { job, holding } = change else { continue };
        let key = (signed(holding.allocation.0), i64::from(holding.rank.0));
        still.insert(key);
        // An allocation that was known before is the same all the time: it goes on.
        if !known.contains(&key) {
            begin(transaction, job, holding, at.1)?;
        }
    }
    // When the others ended is not known. They are counted as far as they are.
    for (allocation, rank) in open.into_iter().filter(|key| !still.contains(key)) {
        end(transaction, AllocationId(unsigned(allocation)), Rank(u32::try_from(rank).unwrap_or(0)), time)?;
    }
    let row = params![signed(gap.after.0), signed(gap.before.0), signed(gap.from.0), signed(gap.to.0)];
    transaction.execute("INSERT INTO gap VALUES (?1, ?2, ?3, ?4)", row)?;
    set_position(transaction, at)?;
    Ok(Some(gap))
}

fn forget(transaction: &Transaction<'_>, before: LogTime) -> rusqlite::Result<usize> {
    let before = signed(before.0);
    let rows = transaction.execute("DELETE FROM holding WHERE ended_ms < ?1", [before])?;
    transaction.execute("DELETE FROM gap WHERE to_ms < ?1", [before])?;
    if rows == 0 {
        return Ok(0);
    }
    transaction.execute("DELETE FROM job WHERE NOT EXISTS (SELECT 1 FROM holding WHERE job = job.id)", [])?;
    transaction.execute("DELETE FROM label WHERE NOT EXISTS (SELECT 1 FROM job WHERE id = label.job)", [])?;
    Ok(rows)
}
