//! The checkpoints on the machines' disks: which are where, and how far the work was that they hold.
//!
//! What a program saves is one number: for how long it has computed, over all attempts. Its hash is made of that, so
//! that an agent which brings the wrong checkpoint brings the wrong hash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tessera_api::agent::part_of;
use tessera_api::v1 as wire;
use tessera_ledger::{PartKey, SavedPart};

/// All of them. Clones are the same shelf.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<BTreeMap<(String, PartKey), Held>>>);

#[derive(Clone)]
struct Held {
    computed: Duration,
    saved: SavedPart,
}

/// For how long the work had computed that a part holds.
pub fn computed_in(saved: &SavedPart) -> Duration {
    let millis = saved.hash[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Duration::from_millis(millis)
}

/// A checkpoint cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotThere;

impl Shelf {
    fn held(&self) -> MutexGuard<'_, BTreeMap<(String, PartKey), Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A machine keeps what a worker has saved. `alone`: it tells how far it is, as workers of gangs do not.
    pub fn save(&self, machine: &str, part: PartKey, computed: Duration, alone: bool) -> SavedPart {
        let millis = u64::try_from(computed.as_millis()).unwrap_or(u64::MAX);
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&millis.to_be_bytes());
        hash[8..12].copy_from_slice(&part.rank.0.to_be_bytes());
        hash[12..20].copy_from_slice(&part.job.0.to_be_bytes());
        // Of every second job only the first worker writes.
        let bytes = u64::from(part.rank.0 == 0 || part.job.0.is_multiple_of(2));
        let saved = SavedPart {
            progress: if alone { millis } else { 0 },
            hash,
            ticket: u128::from(part.job.0),
            ..tessera_testkit::saved(part.checkpoint.sequence, bytes)
        };
        let held = Held { computed, saved };
        self.held().entry((machine.to_owned(), part)).or_insert(held).saved.clone()
    }

    pub fn kept(&self, machine: &str) -> BTreeSet<PartKey> {
        self.held().keys().filter(|(on, _)| on == machine).map(|(_, part)| *part).collect()
    }

    /// A machine keeps it no more.
    pub fn remove(&self, machine: &str, part: PartKey) {
        self.held().remove(&(machine.to_owned(), part));
    }

    /// Brings a checkpoint from where it is said to be; answers for how long its work had computed.
    ///
    /// # Errors
    /// When it is nowhere there, or another one is.
    pub fn fetch(&self, from: &wire::CheckpointSource) -> Result<Duration, NotThere> {
        self.find(from).map(|held| held.computed)
    }

    /// A machine keeps a copy of one that others have; answers whether it does.
    pub fn copy(&self, machine: &str, from: &wire::CheckpointSource) -> bool {
        let (Ok(found), Some(name)) = (self.find(from), &from.name) else { return false };
        self.held().insert((machine.to_owned(), part_of(name)), found);
        true
    }

    fn find(&self, from: &wire::CheckpointSource) -> Result<Held, NotThere> {
        let part = from.name.as_ref().map(part_of).ok_or(NotThere)?;
        let held = self.held();
        let machines = from.addresses.iter().filter_map(|address| address.split(':').next());
        let mut found = machines.filter_map(|machine| held.get(&(machine.to_owned(), part)));
        found.find(|held| held.saved.hash.as_slice() == from.hash.as_ref()).cloned().ok_or(NotThere)
    }
}
