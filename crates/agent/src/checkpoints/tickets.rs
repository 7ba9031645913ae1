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
    /// It was to lie in the shared store when its save was given up, or an agent before this one ended, and has not
    /// been looked for since.
    pub unseen: bool,
}

/// As it is written down.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(with = "hexadecimal")]
    ticket: u128,
    shared: bool,
}

/// Tickets as text in files.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::ticket_text;

    pub(super) fn serialize<S: Serializer>(ticket: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&ticket_text(*ticket))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(D::Error::custom)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tickets {
    folder: PathBuf,
    known: Arc<Mutex<BTreeMap<CheckpointId, Known>>>,
}

/// A checkpoint that is about to be made. Its ticket goes with this value, unless it is whole by then, or may be: a
/// shared store may hold what nobody waited for.
#[derive(Debug)]
pub(super) struct Announced {
    pub ticket: u128,
    id: CheckpointId,
    tickets: Tickets,
}

impl Announced {
    /// It is whole.
    pub fn is_there(&self) {
        self.tickets.is_there(&self.id);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Err(error) = self.tickets.is_given_up(&self.id) {
            tracing::warn!(id = %self.id, %error, "the ticket of a checkpoint that is not kept cannot be removed");
        }
    }
}

/// The content of a file of the folder.
enum Found {
    Ticket(Written),
    /// It says nothing.
    Damaged,
    Unreadable(io::Error),
}

impl Tickets {
    /// Opens the tickets in a folder, which is made when it is not there. `here`: the checkpoints that are whole on the
    /// node's disk. Tickets of others that were to lie there are removed: nobody was told of what is not whole, and
    /// whoever makes it again writes its ticket down again. So are files that say nothing. What is in the shared store
    /// counts as whole only when it has been found there.
    pub fn open(folder: PathBuf, here: &BTreeSet<CheckpointId>) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if durable::is_half_written(&path) {
                fs::remove_file(&path)?;
            }
            let Ok(id) = name.parse() else { continue };
            match read(&path) {
                Found::Ticket(Written { ticket, shared }) if shared || here.contains(&id) => {
                    known.insert(id, Known { ticket, shared, whole: !shared, unseen: shared });
                }
                Found::Ticket(_) => fs::remove_file(&path)?,
                Found::Damaged => {
                    tracing::warn!(%id, "the ticket of a checkpoint says nothing, and is removed: nobody is given it");
                    fs::remove_file(&path)?;
                }
                Found::Unreadable(error) => {
                    tracing::warn!(%id, %error, "the ticket of a checkpoint cannot be read: nobody is given it");
                }
            }
        }
        for id in here {
            // Nobody can show the ticket of one that has none, and it is removed when the leader says so.
            let unnamed = || Known { ticket: rand::random(), shared: false, whole: true, unseen: false };
            known.entry(*id).or_insert_with(unnamed);
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
    pub fn announce(&self, id: CheckpointId, ticket: u128, shared: bool) -> io::Result<Announced> {
        if let Some(known) = self.known().get_mut(&id) {
            known.unseen = false;
        }
        let ticket = self.of(&id).filter(|known| !known.shared && !shared).map_or(ticket, |known| known.ticket);
        let written = Written { ticket, shared };
        // From here on what is written is removed again, should it not come to be.
        let announced = Announced { ticket, id, tickets: self.clone() };
        durable::replace(&self.folder.join(id.to_string()), &serde_json::to_vec(&written)?)?;
        self.known().insert(id, Known { ticket, shared, whole: false, unseen: false });
        Ok(announced)
    }

    /// It is whole.
    pub fn is_there(&self, id: &CheckpointId) {
        if let Some(known) = self.known().get_mut(id) {
            (known.whole, known.unseen) = (true, false);
        }
    }

    /// The checkpoints that were to be kept in the shared store and may be there, with the identity of that.
    pub fn unseen(&self) -> Vec<(CheckpointId, u128)> {
        let known = self.known();
        known.iter().filter(|(_, known)| known.unseen).map(|(id, known)| (*id, known.ticket)).collect()
    }

    /// It is not in the shared store, in which it was to be kept. Nothing happens when it is being saved again.
    pub fn never_came(&self, id: &CheckpointId) -> io::Result<()> {
        let mut known = self.known();
        if known.get(id).is_none_or(|known| !known.unseen) {
            return Ok(());
        }
        known.remove(id);
        self.remove_file(id)
    }

    /// It is about to be removed: nobody is told of it any more.
    pub fn is_leaving(&self, id: &CheckpointId) {
        if let Some(known) = self.known().get_mut(id) {
            known.whole = false;
        }
    }

    /// It did not come to be: its ticket is needed no more, unless it is whole after all, or the shared store is yet to
    /// say that it is not.
    fn is_given_up(&self, id: &CheckpointId) -> io::Result<()> {
        if let Some(known) = self.known().get_mut(id).filter(|known| known.whole || known.shared) {
            known.unseen |= !known.whole;
            return Ok(());
        }
        self.is_gone(id)
    }

    /// It is gone.
    pub fn is_gone(&self, id: &CheckpointId) -> io::Result<()> {
        self.known().remove(id);
        self.remove_file(id)
    }

    fn remove_file(&self, id: &CheckpointId) -> io::Result<()> {
        match fs::remove_file(self.folder.join(id.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn read(path: &Path) -> Found {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_or(Found::Damaged, Found::Ticket),
        Err(error) => Found::Unreadable(error),
    }
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
    fn permits(&self, ticket: &str, job: u64) -> bool {
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
        // The agent is killed while they are made.
        let announce = |id, ticket| {
            let announced = tickets.announce(id, ticket, false).expect("writable");
            std::mem::ManuallyDrop::new(announced).ticket
        };
        assert_eq!(announce(id(1), 0xfeed), 0xfeed);
        assert_eq!(announce(id(1), 0xbeef), 0xfeed, "it has one already");
        assert_eq!(tickets.whole(), [], "it is not there yet");
        announce(id(3), 0xdead);
        let file = |name: &str| folder.path().join("tickets").join(name);
        fs::write(file(&id(4).to_string()), "{").expect("writable");
        fs::write(file(&format!("{}.new", id(5))), "{").expect("writable");
        let again = open(&[id(1), id(2)]);
        let whole = Known { ticket: 0xfeed, shared: false, whole: true, unseen: false };
        assert_eq!(again.of(&id(1)), Some(whole));
        assert_eq!(again.whole(), [id(1), id(2)]);
        assert_eq!(again.of(&id(3)), None);
        let left = fs::read_dir(folder.path().join("tickets")).expect("readable").flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, [id(1).to_string().as_str()], "what never came to be, or says nothing, is gone");
        assert!(again.permits(&ticket_text(0xfeed), 7));
        assert!(!again.permits(&ticket_text(0xfeed), 8), "it is of another job");
        assert!(!again.permits("", 7));
        again.is_given_up(&id(1)).expect("nothing to do");
        assert!(again.of(&id(1)).is_some(), "it is whole");
        drop(again.announce(id(1), 0, false).expect("writable"));
        assert_eq!(again.of(&id(1)), None, "it is not");
        assert_eq!(open(&[]).of(&id(1)), None);
    }
}
