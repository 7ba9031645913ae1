//! The identity of this agent over restarts: the node's id and name, how often it was started, the highest term it has
//! seen. Whatever tells a node from others is kept together and compared at each start: a difference is a mistake that
//! would cost the node's work, or an operator's word.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::place::{Copied, FolderPlace};
use crate::worker::Term;
use crate::worker::folder::WorkerFolders;

const FILE: &str = "node.json";
/// Wait before a disk that refused is tried again.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// The identity of a node, kept in its data folder. Every change is on disk before it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Made at the first start: a name belongs to the first identity that used it.
    pub uid: String,
    /// Under another one the pool would take it for a second node; empty before the first session.
    pub node_name: String,
    /// Raised by one at every start.
    pub incarnation: u64,
    pub highest_term: Term,
    /// The pool; empty before the first session.
    pub cluster_id: String,
    /// The place of the folder when the identity was used last; `None`: it was not used yet.
    pub place: Option<FolderPlace>,
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
        "{0}; an agent may still speak for the node there: empty this folder to make it a node of its own, or, if the \
         other folder is not used any more, start the agent once with --moved-data-dir"
    )]
    Copied(Copied),
    /// The folder belongs to a node of another name.
    #[error(
        "the data folder {} belongs to the node {kept}, and the agent was started for the node {given}, which would \
         end the work of {kept} and bring its cards into the pool a second time; start it with --name {kept}, or, \
         to give the node another name, drain and forget {kept} in the pool (`tessera node drain`, `tessera node \
         forget`) and start the agent on an empty data folder",
        path.display()
    )]
    OtherName { path: PathBuf, kept: String, given: String },
    /// There are workers, and nothing that says whose.
    #[error(
        "the data folder {} holds workers, and the identity of their node is gone ({FILE}); restore it from a copy, \
         or drain and forget the node in the pool, empty the folder, and start again",
        path.display()
    )]
    Lost { path: PathBuf },
    /// The file does not hold an identity.
    #[error(
        "the node's identity {} is damaged; restore it from a copy, or empty the data folder, forget the node in \
         the pool, and start again",
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
    /// [`IdentityError`]: the file cannot be read, understood or kept, or the folder is a copy or of another node.
    pub fn begin(data: &Path, name: &str, moved: bool) -> Result<Self, IdentityError> {
        let here = FolderPlace::of(data).map_err(|source| IdentityError::File { path: data.join(FILE), source })?;
        let Self { uid, node_name, incarnation, highest_term, cluster_id, place } = match Self::kept(data)? {
            Some(kept) => kept,
            None => Self::first(data)?,
        };
        // The name in a copy is that of the other node.
        let here = here.confirmed(place, data, moved).map_err(IdentityError::Copied)?;
        if !node_name.is_empty() && node_name != name {
            return Err(IdentityError::OtherName { path: data.to_owned(), kept: node_name, given: name.to_owned() });
        }
        let (incarnation, place) = (incarnation + 1, Some(here));
        let identity = Self { uid, node_name, incarnation, highest_term, cluster_id, place };
        identity.keep(data)?;
        Ok(identity)
    }

    /// The identity as the folder has it; `None`: it was never used.
    fn kept(data: &Path) -> Result<Option<Self>, IdentityError> {
        let path = data.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|source| IdentityError::Damaged { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(IdentityError::File { path, source }),
        }
    }

    /// A new one, for a folder in which nobody has run anything.
    fn first(data: &Path) -> Result<Self, IdentityError> {
        if WorkerFolders::any_below(data).map_err(|source| IdentityError::File { path: data.to_owned(), source })? {
            return Err(IdentityError::Lost { path: data.to_owned() });
        }
        Ok(Self {
            uid: uuid::Uuid::new_v4().to_string(),
            node_name: String::new(),
            incarnation: 0,
            highest_term: Term(0),
            cluster_id: String::new(),
            place: None,
        })
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

/// The name of the node that a data folder belongs to; `None`: it does not say one, or not to this user.
#[must_use]
pub fn name_kept_in(data: &Path) -> Option<String> {
    Identity::kept(data).ok()?.map(|kept| kept.node_name).filter(|name| !name.is_empty())
}

/// Keeps terms on disk, one after the other, never a lower one after a higher one, and with them the name under which a
/// leader took the node: one that no leader has taken it under may be another node's.
#[derive(Clone, Debug)]
pub struct TermKeeper {
    identity: Arc<Mutex<Identity>>,
    name: String,
    data: PathBuf,
}

impl TermKeeper {
    /// For an identity that lies in a data folder, and the name that the agent says to leaders.
    #[must_use]
    pub fn new(identity: Identity, name: String, data: PathBuf) -> Self {
        Self { identity: Arc::new(Mutex::new(identity)), name, data }
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
        identity.node_name.clone_from(&self.name);
        identity.keep(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what a node keeps when a leader takes it under a name.
    fn welcomed(identity: &Identity, name: &str, data: &Path) {
        let keeper = TermKeeper::new(identity.clone(), name.to_owned(), data.to_owned());
        keeper.keep_now(Term(1), "pool".to_owned()).expect("writable");
    }

    #[test]
    fn the_uid_stays_and_the_incarnation_rises() {
        let data = tempfile::tempdir().expect("a temporary folder");
        let first = Identity::begin(data.path(), "n", false).expect("writable");
        assert_eq!((first.incarnation, first.highest_term), (1, Term(0)));
        let kept = Identity { highest_term: Term(7), cluster_id: "pool".to_owned(), ..first.clone() };
        kept.keep(data.path()).expect("writable");
        let second = Identity::begin(data.path(), "n", false).expect("readable");
        assert_eq!(second, Identity { incarnation: 2, ..kept });
    }

    #[test]
    fn a_copied_folder_is_refused_until_an_operator_says_that_it_was_moved() {
        let (data, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let first = Identity::begin(data.path(), "n", false).expect("writable");
        welcomed(&first, "n", data.path());
        fs::copy(data.path().join(FILE), copy.path().join(FILE)).expect("readable");
        let refused = Identity::begin(copy.path(), "clone", false).expect_err("a copy").to_string();
        let places = [data.path(), copy.path()].map(|folder| FolderPlace::of(folder).expect("a place").to_string());
        assert!(places.iter().all(|place| refused.contains(place)), "{refused}");
        assert!(refused.contains("--moved-data-dir"), "{refused}");
        assert_eq!(Identity::begin(data.path(), "n", false).expect("the original").incarnation, 2);
        let moved = Identity::begin(copy.path(), "n", true).expect("the operator's word");
        assert_eq!((&moved.uid, moved.incarnation), (&first.uid, 2));
        assert_eq!(Identity::begin(copy.path(), "n", false).expect("at home now").incarnation, 3);
    }

    /// The roots of two file systems have the same inode, and containers no machine id.
    #[test]
    fn a_copy_at_the_same_inode_of_another_file_system_is_refused() {
        let data = tempfile::tempdir().expect("a folder");
        let first = Identity::begin(data.path(), "n", false).expect("writable");
        let here = first.place.clone().expect("it was used");
        if here.made.is_none() {
            eprintln!("not tried: this file system does not keep when a folder was made");
            return;
        }
        let kept_with = |made| {
            let place = Some(FolderPlace { made, ..here.clone() });
            Identity { place, ..first.clone() }.keep(data.path()).expect("writable");
            Identity::begin(data.path(), "n", false)
        };
        let refused = kept_with(here.made.map(|made| made - 1)).expect_err("of another folder");
        assert!(matches!(refused, IdentityError::Copied(_)), "{refused}");
        let of_earlier_release = serde_json::json!({ "machine": here.machine, "inode": here.inode });
        let understood: FolderPlace = serde_json::from_value(of_earlier_release).expect("it is understood");
        assert_eq!(kept_with(understood.made).expect("it opens as before").place, Some(here.clone()));
    }

    #[test]
    fn a_folder_is_refused_under_another_name_than_it_was_used_under() {
        let data = tempfile::tempdir().expect("a temporary folder");
        let first = Identity::begin(data.path(), "localhost", false).expect("writable");
        assert_eq!(name_kept_in(data.path()), None, "no leader has taken it, and the name may be another node's");
        assert_eq!(Identity::begin(data.path(), "host-1", false).expect("a better name").uid, first.uid);
        welcomed(&first, "host-1", data.path());
        for moved in [false, true] {
            let refused = Identity::begin(data.path(), "host-2", moved).expect_err("another node").to_string();
            assert!(
                ["node host-1", "node host-2", "--name host-1"].iter().all(|fact| refused.contains(fact)),
                "{refused}"
            );
        }
        assert_eq!(name_kept_in(data.path()).as_deref(), Some("host-1"));
        let again = Identity::begin(data.path(), "host-1", false).expect("the same node");
        assert_eq!((&again.uid, again.incarnation), (&first.uid, 2), "a refusal leaves nothing");
    }

    #[test]
    fn workers_without_an_identity_are_not_taken_for_those_of_a_new_node() {
        let data = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(data.path().join("workers/7-42-0")).expect("writable");
        let refused = Identity::begin(data.path(), "n", false).expect_err("whose are they").to_string();
        assert!(refused.contains(FILE) && refused.contains("forget"), "{refused}");
        fs::remove_dir(data.path().join("workers/7-42-0")).expect("there");
        assert_eq!(Identity::begin(data.path(), "n", false).expect("no workers").incarnation, 1);
    }

    #[test]
    fn a_pool_that_began_anew_is_accepted_by_the_operators_word_only() {
        let data = tempfile::tempdir().expect("a temporary folder");
        let mut first = Identity::begin(data.path(), "n", false).expect("writable");
        assert_eq!(first.accept_pool("new", data.path()).expect("nothing to keep"), None, "it belongs to none yet");
        assert_eq!(first.cluster_id, "", "whose pool it joins first is decided by the first welcome");
        let mut old = Identity { cluster_id: "old".to_owned(), highest_term: Term(7), ..first };
        assert_eq!(old.accept_pool("new", data.path()).expect("writable").as_deref(), Some("old"));
        let mut again = Identity::begin(data.path(), "n", false).expect("readable");
        assert_eq!((again.cluster_id.as_str(), again.highest_term), ("new", Term(7)));
        assert_eq!(again.accept_pool("new", data.path()).expect("nothing to keep"), None);
    }

    #[test]
    fn a_damaged_identity_is_not_replaced_by_a_new_one() {
        let data = tempfile::tempdir().expect("a temporary folder");
        fs::write(data.path().join(FILE), "{").expect("writable");
        let error = Identity::begin(data.path(), "n", false).expect_err("damaged");
        assert!(error.to_string().contains("damaged"));
        assert_eq!(fs::read_to_string(data.path().join(FILE)).expect("there"), "{");
    }
}
