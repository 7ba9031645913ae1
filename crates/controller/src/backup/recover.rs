//! A new cluster out of what one stopped member has on its disk, when the majority of its cluster is lost for good.

use std::path::{Path, PathBuf};

use tessera_consensus::{LogIndex, Term};

use super::found::{Begun, FoundError, Founder, Origin, found};
use crate::past::{Past, PastError};

/// A stopped member: its data folder, its identity, the extent of its log, and the highest term that it took part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub data_dir: PathBuf,
    pub cluster_id: String,
    pub member: u64,
    /// Term and index of the last entry in its log: of two members, the one with the higher term has more, and at the
    /// same term the one with the higher index.
    pub last: (Term, LogIndex),
    /// Last entry that it knew to be committed.
    pub committed: LogIndex,
    /// The highest term that it took part in.
    pub term: Term,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A folder cannot be read.
    #[error("{} cannot be read; stop the member first, or give a copy of its folder", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: Box<PastError>,
    },
    /// A folder of nobody.
    #[error("{} belongs to no member of a cluster", path.display())]
    Nobody { path: PathBuf },
    /// Folders of several clusters.
    #[error("the folders belong to different clusters, {} and {}; give those of one", clusters.0, clusters.1)]
    Clusters {
        /// Two of them.
        clusters: (String, String),
    },
    #[error("no data folder was given")]
    None,
    /// The new folder.
    #[error(transparent)]
    Found(#[from] FoundError),
}

impl Survivor {
    /// Looks at the data folder of a stopped member. Nothing in it is changed.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn look(data_dir: &Path) -> Result<Self, RecoverError> {
        let unread = |error| RecoverError::Unreadable { path: data_dir.to_owned(), source: Box::new(error) };
        let past = Past::open(data_dir).map_err(unread)?;
        let identity = past.identity().map_err(unread)?;
        let identity = identity.ok_or_else(|| RecoverError::Nobody { path: data_dir.to_owned() })?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            cluster_id: identity.cluster.as_str().to_owned(),
            member: identity.member.0,
            last: past.last(),
            committed: past.committed(),
            term: past.term().map_err(unread)?,
        })
    }

    /// Entries at the end of its log of which it did not know that they were committed.
    #[must_use]
    pub const fn uncommitted(&self) -> u64 {
        self.last.1.0.saturating_sub(self.committed.0)
    }
}

/// Makes the data folder of a new cluster out of that of the survivor with the most log. Every entry that it has is
/// taken, whether it knew it to be committed or not: the members that are lost may have acknowledged it.
///
/// # Errors
/// [`RecoverError`]; the new folder is then not there. The folders of the survivors are never changed.
pub fn recover(survivors: &[Survivor], founder: &Founder) -> Result<(Survivor, Begun), RecoverError> {
    let most = survivors.iter().max_by_key(|survivor| survivor.last).ok_or(RecoverError::None)?;
    if let Some(other) = survivors.iter().find(|survivor| survivor.cluster_id != most.cluster_id) {
        return Err(RecoverError::Clusters { clusters: (most.cluster_id.clone(), other.cluster_id.clone()) });
    }
    let unread = |error| RecoverError::Unreadable { path: most.data_dir.clone(), source: Box::new(error) };
    let mut past = Past::open(&most.data_dir).map_err(unread)?;
    let mut state = past.beginning().map_err(unread)?;
    loop {
        let entries = past.read_on().map_err(unread)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            match &entry.requests {
                Some(requests) => drop(state.apply(entry.at, requests)),
                None => state.observe(entry.at),
            }
        }
    }
    drop(past);
    let term = survivors.iter().map(|survivor| survivor.term).max().unwrap_or_default();
    let begun = found(Origin { cluster_id: most.cluster_id.clone(), term: term.0, state }, founder)?;
    Ok((most.clone(), begun))
}
