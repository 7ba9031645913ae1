//! The past of a member that has stopped: what its ledger was, and every command that was applied to it, read from its
//! data folder.

use std::path::Path;

use tessera_consensus::{History, HistoryError, Identity, LogIndex, PastEntry, Term, Unreadable};
use tessera_ledger::wire::{decode_request, decode_snapshot};
use tessera_ledger::{EntryPosition, Request, State};
use tessera_store::StoreError;
use tessera_store::rocks;

use crate::machine::{position, unreadable};

#[derive(Debug, thiserror::Error)]
pub enum PastError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A command or the snapshot.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// An entry of the log in the ledger's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: EntryPosition,
    /// Its requests; `None` for an entry without commands.
    pub requests: Option<Vec<Request>>,
    /// True if it is known to be committed.
    pub committed: bool,
}

/// The log of a stopped member.
pub struct Past {
    history: History,
}

impl Past {
    /// Opens the data folder of a stopped member, or a copy of it. Nothing in it is changed.
    ///
    /// # Errors
    /// [`PastError`].
    pub fn open(data_dir: &Path) -> Result<Self, PastError> {
        Ok(Self { history: History::new(rocks::open_to_read(data_dir)?)? })
    }

    /// The identity of the member whose log it is; `None` if the member never belonged to a cluster.
    ///
    /// # Errors
    /// [`PastError`].
    pub fn identity(&self) -> Result<Option<Identity>, PastError> {
        Ok(self.history.identity()?)
    }

    /// Term and index of its last entry.
    #[must_use]
    pub fn last(&self) -> (Term, LogIndex) {
        self.history.last()
    }

    /// Last entry that the member knew to be committed.
    #[must_use]
    pub fn committed(&self) -> LogIndex {
        self.history.committed()
    }

    /// The highest term that the member took part in.
    ///
    /// # Errors
    /// [`PastError`].
    pub fn term(&self) -> Result<Term, PastError> {
        Ok(self.history.term()?)
    }

    /// The ledger before the first entry.
    ///
    /// # Errors
    /// [`PastError`].
    pub fn beginning(&self) -> Result<State, PastError> {
        let Some(chunks) = self.history.beginning()? else { return Ok(State::new()) };
        decode_snapshot(chunks).map_err(|error| unreadable("the snapshot", &error).into())
    }

    /// The next entries in order; none at the end.
    ///
    /// # Errors
    /// [`PastError`].
    pub fn read_on(&mut self) -> Result<Vec<Entry>, PastError> {
        self.history.read_on()?.into_iter().map(read).collect()
    }
}

fn read(entry: PastEntry) -> Result<Entry, PastError> {
    let PastEntry { at, commands, committed } = entry;
    let decode = |commands: Vec<_>| -> Result<Vec<Request>, PastError> {
        let decoded = commands.iter().map(|command: &bytes::Bytes| decode_request(command));
        let decoded: Result<Vec<Request>, _> = decoded.collect();
        decoded.map_err(|error| unreadable(&format!("entry {}", at.index.0), &error).into())
    };
    Ok(Entry { at: position(at), requests: commands.map(decode).transpose()?, committed })
}
