//! Who this agent is, over restarts: the node's identity, how often it was started, the highest term it has seen.

use std::fs;
use std::io;
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
    /// Highest term seen.
    pub highest_term: Term,
    /// The pool; empty before the first session.
    pub cluster_id: String,
}

/// The identity cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("the node's identity {} cannot be read or kept; is the data folder writable?", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file does not hold an identity.
    #[error(
        "the node's identity {} is damaged; restore it from a copy, or empty the data folder, forget the node in the pool, and start again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl Identity {
    /// Reads the identity, or makes one at the first start, and raises the incarnation.
    ///
    /// # Errors
    /// When the file cannot be read, understood or kept.
    pub fn begin(data: &Path) -> Result<Self, IdentityError> {
        let path = data.join(FILE);
        let mut identity = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| IdentityError::Damaged { path: path.clone(), source })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self {
                uid: uuid::Uuid::new_v4().to_string(),
                incarnation: 0,
                highest_term: Term(0),
                cluster_id: String::new(),
            },
            Err(source) => return Err(IdentityError::File { path, source }),
        };
        identity.incarnation += 1;
        identity.keep(data)?;
        Ok(identity)
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
        let first = Identity::begin(data.path()).expect("writable");
        assert_eq!((first.incarnation, first.highest_term), (1, Term(0)));
        let kept = Identity { highest_term: Term(7), cluster_id: "pool".to_owned(), ..first.clone() };
        kept.keep(data.path()).expect("writable");
        let second = Identity::begin(data.path()).expect("readable");
        assert_eq!(second, Identity { incarnation: 2, ..kept });
    }

    #[test]
    fn a_damaged_identity_is_not_replaced_by_a_new_one() {
        let data = tempfile::tempdir().expect("a temporary folder");
        fs::write(data.path().join(FILE), "{").expect("writable");
        let error = Identity::begin(data.path()).expect_err("damaged");
        assert!(error.to_string().contains("damaged"));
        assert_eq!(fs::read_to_string(data.path().join(FILE)).expect("there"), "{");
    }
}
