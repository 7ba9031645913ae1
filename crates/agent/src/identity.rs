//! Who this agent is, over restarts: the node's identity, how often it was started, the highest term it has seen.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::worker::Term;

const FILE: &str = "node.json";
/// Wait before a disk that refused is tried again.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// The identity of a node, kept in its data folder. Every change is on disk before it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Made at the first start: a name belongs to the first identity that used it.
    pub uid: String,
    /// Raised by one at every start.
    pub incarnation: u64,
    pub highest_term: Term,
    /// The pool; empty before the first session.
    pub cluster_id: String,
    /// Where the folder was when the identity was used last; absent in those of earlier releases.
    #[serde(default)]
    pub place: Option<FolderPlace>,
}

/// Where a data folder lies. A copy lies somewhere else, and must not speak for the same node: its agent would know
/// nothing of the work that the other one runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPlace {
    /// The host, by `/etc/machine-id`; empty where there is none.
    pub machine: String,
    pub inode: u64,
}

impl FolderPlace {
    /// Of a folder on this host.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of(data: &Path) -> io::Result<Self> {
        let machine = match fs::read_to_string("/etc/machine-id") {
            Ok(id) => id.trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { machine, inode: fs::metadata(data)?.ino() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("the node's identity {} cannot be read or kept; is the data folder writable?", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder is a copy of another one, or was moved.
    #[error(
        "the data folder {} was copied or moved from another place or host, where an agent may still speak for the node; empty it to make this a node of its own, or, if the other folder is not used any more, start the agent once with --moved-data-dir",
        path.display()
    )]
    Copied { path: PathBuf },
    /// The file does not hold an identity.
    #[error(
        "the node's identity {} is damaged; restore it from a copy, or empty the data folder, forget the node in the pool, and start again",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Identity {
    /// Reads the identity, or makes one at the first start, and raises the incarnation. `moved` is the operator's word
    /// that the folder lies elsewhere than before and is used here only.
    ///
    /// # Errors
    /// When the file cannot be read, understood or kept, or when the folder is a copy.
    pub fn begin(data: &Path, moved: bool) -> Result<Self, IdentityError> {
        let path = data.join(FILE);
        let place = FolderPlace::of(data).map_err(|source| IdentityError::File { path: path.clone(), source })?;
        let mut identity = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| IdentityError::Damaged { path: path.clone(), source })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self {
                uid: uuid::Uuid::new_v4().to_string(),
                incarnation: 0,
                highest_term: Term(0),
                cluster_id: String::new(),
                place: None,
            },
            Err(source) => return Err(IdentityError::File { path, source }),
        };
        if !moved && identity.place.as_ref().is_some_and(|before| *before != place) {
            return Err(IdentityError::Copied { path: data.to_owned() });
        }
        identity.place = Some(place);
        identity.incarnation += 1;
        identity.keep(data)?;
        Ok(identity)
    }

    /// The operator's word that the node's pool began anew under another id: it belongs to that one from now on.
    /// Answers the pool that it belonged to, when that was another one. Terms go on: those of a pool that began anew
    /// are higher.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn accept_pool(&mut self, pool: &str, data: &Path) -> Result<Option<String>, IdentityError> {
        if self.cluster_id.is_empty() || self.cluster_id == pool {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.cluster_id, pool.to_owned());
        self.keep(data)?;
        Ok(Some(before))
    }

    /// Puts it on disk.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub fn keep(&self, data: &Path) -> Result<(), IdentityError> {
        let path = data.join(FILE);
        let bytes =
            serde_json::to_vec_pretty(self).map_err(|source| IdentityError::Damaged { path: path.clone(), source })?;
        durable::replace(&path, &bytes).map_err(|source| IdentityError::File { path, source })
    }
}

/// Keeps terms on disk, one after the other, never a lower one after a higher one.
#[derive(Clone, Debug)]
pub struct TermKeeper {
    identity: Arc<Mutex<Identity>>,
    data: PathBuf,
}

impl TermKeeper {
    /// For an identity that lies in a data folder.
    #[must_use]
    pub fn new(identity: Identity, data: PathBuf) -> Self {
        Self { identity: Arc::new(Mutex::new(identity)), data }
    }

    /// Returns once the term is on disk, however long that takes.
    pub async fn keep(&self, term: Term, cluster_id: String) {
        loop {
            let (own, cluster_id) = (self.clone(), cluster_id.clone());
            match tokio::task::spawn_blocking(move || own.keep_now(term, cluster_id)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::error!(%error, %term, "orders wait: the term cannot be kept"),
                Err(error) => tracing::error!(%error, %term, "orders wait: keeping the term failed"),
            }
            tokio::time::sleep(KEEP_AGAIN).await;
        }
    }

    fn keep_now(&self, term: Term, cluster_id: String) -> Result<(), IdentityError> {
        // An identity is replaced as a whole, so a panic of another holder leaves none half made.
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        identity.highest_term = identity.highest_term.max(term);
        identity.cluster_id = cluster_id;
        identity.keep(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uid_stays_and_the_incarnation_rises() {
        let data = tempfile::tempdir().expect("a temporary folder");
        let first = Identity::begin(data.path(), false).expect("writable");
        assert_eq!((first.incarnation, first.highest_term), (1, Term(0)));
        let kept = Identity { highest_term: Term(7), cluster_id: "pool".to_owned(), ..first.clone() };
        kept.keep(data.path()).expect("writable");
        let second = Identity::begin(data.path(), false).expect("readable");
        assert_eq!(second, Identity { incarnation: 2, ..kept });
    }

    #[test]
    fn a_copied_folder_is_refused_until_an_operator_says_that_it_was_moved() {
        let (data, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let first = Identity::begin(data.path(), false).expect("writable");
        fs::copy(data.path().join(FILE), copy.path().join(FILE)).expect("readable");
        let refused = Identity::begin(copy.path(), false).expect_err("a copy").to_string();
        assert!(refused.contains("--moved-data-dir"), "{refused}");
        assert_eq!(Identity::begin(data.path(), false).expect("the original").incarnation, 2);
        let moved = Identity::begin(copy.path(), true).expect("the operator's word");
        assert_eq!((&moved.uid, moved.incarnation), (&first.uid, 2));
        assert_eq!(Identity::begin(copy.path(), false).expect("at home now").incarnation, 3);
    }

    #[test]
    fn a_pool_that_began_anew_is_accepted_by_the_operators_word_only() {
        let data = tempfile::tempdir().expect("a temporary folder");
        let mut first = Identity::begin(data.path(), false).expect("writable");
        assert_eq!(first.accept_pool("new", data.path()).expect("nothing to keep"), None, "it belongs to none yet");
        assert_eq!(first.cluster_id, "", "whose pool it joins first is decided by the first welcome");
        let mut old = Identity { cluster_id: "old".to_owned(), highest_term: Term(7), ..first };
        assert_eq!(old.accept_pool("new", data.path()).expect("writable").as_deref(), Some("old"));
        let mut again = Identity::begin(data.path(), false).expect("readable");
        assert_eq!((again.cluster_id.as_str(), again.highest_term), ("new", Term(7)));
        assert_eq!(again.accept_pool("new", data.path()).expect("nothing to keep"), None);
    }

    #[test]
    fn a_damaged_identity_is_not_replaced_by_a_new_one() {
        let data = tempfile::tempdir().expect("a temporary folder");
        fs::write(data.path().join(FILE), "{").expect("writable");
        let error = Identity::begin(data.path(), false).expect_err("damaged");
        assert!(error.to_string().contains("damaged"));
        assert_eq!(fs::read_to_string(data.path().join(FILE)).expect("there"), "{");
    }
}
