//! Making the data folder of the first member of a cluster that begins anew.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::Builder;
use tessera_consensus::{
    BadClusterId, BeginError, Beginning, ClusterId, LogIndex, LogTime, Member, MemberId, Term, begin_anew,
};
use tessera_ledger::wire::encode_snapshot;
use tessera_ledger::{Level, State};
use tessera_store::StoreError;
use tessera_store::rocks::{self, RocksOptions};

use super::encode::counts;
use super::{Backup, BackupError, Counts, Header};

/// The first member of a cluster that begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founder {
    /// Its data folder; must not be there yet, or be empty.
    pub data_dir: PathBuf,
    /// `host:port` under which members, agents and clients will reach it.
    pub address: String,
    /// Its name for people; may be empty.
    pub name: String,
    /// Id of the new cluster; empty: one is made up.
    pub cluster_id: String,
}

/// A cluster that began anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    pub cluster_id: String,
    pub old_cluster_id: String,
    /// The revision of the state that it was made of.
    pub old_revision: u64,
    /// The revision at which it begins.
    pub revision: u64,
    pub counts: Counts,
}

/// A data folder that was not made.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    ClusterId(#[from] BadClusterId),
    /// It would be the old cluster again.
    #[error(
        "the new cluster cannot have the id of the old one, {id}: members of the old one would be listened to; leave the id out"
    )]
    SameCluster { id: String },
    #[error("{} is not empty; give a folder that does not exist yet", path.display())]
    NotEmpty { path: PathBuf },
    #[error(
        "the pool is at release level {found}, and this release goes up to {highest}; use the release that the members ran"
    )]
    TooNew {
        found: Level,
        /// The highest release level that this release can apply.
        highest: Level,
    },
    #[error("{} cannot be made; nothing was left of it", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the store in the new data folder cannot be made; nothing was left of it")]
    Store(#[from] StoreError),
    #[error("the new data folder cannot be made; nothing was left of it")]
    Begin(#[from] BeginError),
}

/// The state from which a cluster begins anew, with the id and the term of the old cluster.
pub(super) struct Origin {
    pub cluster_id: String,
    pub term: u64,
    pub state: State,
}

/// Makes the data folder of a new cluster out of a backup.
///
/// # Errors
/// [`FoundError`]; the folder is then not there.
pub fn restore(backup: &Path, founder: &Founder) -> Result<Begun, FoundError> {
    let (Header { cluster_id, term, .. }, state) = Backup::state(backup)?;
    found(Origin { cluster_id, term, state }, founder)
}

/// Makes the data folder. It appears under its name when all of it is on the disk.
pub(super) fn found(origin: Origin, founder: &Founder) -> Result<Begun, FoundError> {
    let Origin { cluster_id: old_cluster_id, term, mut state } = origin;
    let cluster = match founder.cluster_id.as_str() {
        "" => ClusterId::new(&uuid::Uuid::new_v4().to_string())?,
        id if id == old_cluster_id => return Err(FoundError::SameCluster { id: id.to_owned() }),
        id => ClusterId::new(id)?,
    };
    if state.level() > Level::NEWEST {
        return Err(FoundError::TooNew { found: state.level(), highest: Level::NEWEST });
    }
    let old_revision = state.revision().0;
    state.begin_anew();
    let beginning = Beginning {
        cluster: cluster.clone(),
        member: Member { id: MemberId(1), name: founder.name.clone(), address: founder.address.clone() },
        old_term: Term(term),
        index: LogIndex(state.revision().0),
        log_time: LogTime(state.time().0),
    };
    write_folder(&founder.data_dir, &beginning, &state)?;
    Ok(Begun {
        cluster_id: cluster.as_str().to_owned(),
        old_cluster_id,
        old_revision,
        revision: state.revision().0,
        counts: counts(&state),
    })
}

fn write_folder(path: &Path, beginning: &Beginning, state: &State) -> Result<(), FoundError> {
    let failed = |source| FoundError::Io { path: path.to_owned(), source };
    match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(FoundError::NotEmpty { path: path.to_owned() }),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(failed)?;
    let being_made = Builder::new().prefix(".tessera-beginning-").tempdir_in(parent).map_err(failed)?;
    let store = rocks::open(&RocksOptions::new(being_made.path()))?;
    begin_anew(store.as_ref(), beginning, encode_snapshot(state))?;
    drop(store);
    // An empty folder of that name is replaced.
    fs::rename(being_made.path(), path).map_err(failed)?;
    // It is not there any more under its old name: nothing is removed.
    let _ = being_made.keep();
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}
