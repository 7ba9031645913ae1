//! The record that a node has of each checkpoint beside its content: the ticket that others show to be given it, and
//! whether it lies in the store that all nodes share. The record is on disk before the checkpoint is, so that no
//! checkpoint is without.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tessera_checkpoint::{CheckpointId, Guard};
use tessera_connection::Peer;

use crate::durable;

/// The record of one checkpoint. The ticket of a checkpoint in the store that all nodes share is the identity of that
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ticket: u128,
    /// It lies in the store that all nodes share.
    pub shared: bool,
    /// It is whole, so that it is there.
    pub whole: bool,
}

/// As it is written down.
#[derive(Serialize, Deserialize)]
struct Written {
    ticket: String,
    shared: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Tickets {
    folder: PathBuf,
    known: Arc<Mutex<BTreeMap<CheckpointId, Known>>>,
}

impl Tickets {
    /// Opens the tickets in a folder, which is made when it is not there. `here`: the checkpoints that are whole on the
    /// node's disk. Tickets of others that were to lie there are removed: nobody was told of what is not whole, and
    /// whoever makes it again writes its ticket down again.
    pub fn open(folder: PathBuf, here: &BTreeSet<CheckpointId>) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let Some(id) = id else { continue };
            match read(&path) {
                // What is whole in the shared store was told, or is saved again.
                Some(Written { ticket, shared }) if shared || here.contains(&id) => {
                    let ticket = u128::from_str_radix(&ticket, 16).unwrap_or_default();
                    known.insert(id, Known { ticket, shared, whole: true });
                }
                Some(_) => fs::remove_file(&path)?,
                None => tracing::warn!(%id, "the ticket of a checkpoint cannot be read: nobody is given it"),
            }
        }
        for id in here {
            // Nobody can show the ticket of one that has none, and it is removed when the leader says so.
            known.entry(*id).or_insert(Known { ticket: rand::random(), shared: false, whole: true });
        }
        Ok(Self { folder, known: Arc::new(Mutex::new(known)) })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, id: &CheckpointId) -> Option<Known> {
        self.known().get(id).copied()
    }

    pub fn whole(&self) -> Vec<CheckpointId> {
        self.known().iter().filter(|(_, known)| known.whole).map(|(id, _)| *id).collect()
    }

    /// The number of checkpoints that are whole on this node, and of those in the shared store.
    pub fn count(&self) -> (usize, usize) {
        let known = self.known();
        let whole = |shared: bool| known.values().filter(|known| known.whole && known.shared == shared).count();
        (whole(false), whole(true))
    }

    /// Writes down the ticket of one that is to be made: the one that it has already, or `ticket`.
    pub fn announce(&self, id: CheckpointId, ticket: u128, shared: bool) -> io::Result<u128> {
        let ticket = self.of(&id).filter(|known| !known.shared && !shared).map_or(ticket, |known| known.ticket);
        let written = Written { ticket: format!("{ticket:032x}"), shared };
        durable::replace(&self.folder.join(id.to_string()), &serde_json::to_vec(&written)?)?;
        self.known().insert(id, Known { ticket, shared, whole: false });
        Ok(ticket)
    }

    /// It is whole.
    pub fn is_there(&self, id: &CheckpointId) {
        if let Some(known) = self.known().get_mut(id) {
            known.whole = true;
        }
    }

    /// It is about to be removed: nobody is told of it any more.
    pub fn is_leaving(&self, id: &CheckpointId) {
        if let Some(known) = self.known().get_mut(id) {
            known.whole = false;
        }
    }

    /// It did not come to be: its ticket is needed no more, unless it is whole after all.
    pub fn is_given_up(&self, id: &CheckpointId) -> io::Result<()> {
        if self.of(id).is_some_and(|known| known.whole) { Ok(()) } else { self.is_gone(id) }
    }

    /// It is gone.
    pub fn is_gone(&self, id: &CheckpointId) -> io::Result<()> {
        self.known().remove(id);
        match fs::remove_file(self.folder.join(id.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn read(path: &Path) -> Option<Written> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// A ticket as it travels; `None`: that is none.
pub(super) fn ticket_of(bytes: &[u8]) -> Option<u128> {
    bytes.try_into().ok().map(u128::from_be_bytes)
}

/// A ticket as text, as agents show it to each other.
pub(super) fn ticket_text(ticket: u128) -> String {
    format!("{ticket:032x}")
}

impl Guard for Tickets {
    fn permits(&self, _peer: Option<&Peer>, ticket: &str, job: u64) -> bool {
        let known = self.known();
        let mut of_job = known.iter().filter(|(id, known)| id.job == job && !known.shared);
        of_job.any(|(_, known)| ticket_text(known.ticket) == ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> CheckpointId {
        CheckpointId { job: 7, attempt: 1, epoch: 40, sequence, rank: 0 }
    }

    #[test]
    fn what_is_known_outlives_the_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |here: &[CheckpointId]| {
            Tickets::open(folder.path().join("tickets"), &here.iter().copied().collect()).expect("it can be written")
        };
        let tickets = open(&[]);
        assert_eq!(tickets.announce(id(1), 0xfeed, false).expect("writable"), 0xfeed);
        assert_eq!(tickets.announce(id(1), 0xbeef, false).expect("writable"), 0xfeed, "it has one already");
        assert_eq!(tickets.whole(), [], "it is not there yet");
        tickets.announce(id(3), 0xdead, false).expect("writable");
        let again = open(&[id(1), id(2)]);
        assert_eq!(again.of(&id(1)), Some(Known { ticket: 0xfeed, shared: false, whole: true }));
        assert_eq!(again.whole(), [id(1), id(2)]);
        assert_eq!(again.of(&id(3)), None);
        assert!(!folder.path().join("tickets").join(id(3).to_string()).exists(), "it never came to be");
        assert!(again.permits(None, &ticket_text(0xfeed), 7));
        assert!(!again.permits(None, &ticket_text(0xfeed), 8), "it is of another job");
        assert!(!again.permits(None, "", 7));
        again.is_given_up(&id(1)).expect("nothing to do");
        assert!(again.of(&id(1)).is_some(), "it is whole");
        again.is_gone(&id(1)).expect("removable");
        assert_eq!(open(&[]).of(&id(1)), None);
    }
}
