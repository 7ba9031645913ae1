//! Checkpoints: what a job can go on from. The ledger knows that they are there, how large they are and on which nodes;
//! what is in them is kept by agents, or in a store that all of them share.
//!
//! A checkpoint belongs to one attempt and consists of one part for each worker. A part is told by the agent that saved
//! it, once it is whole on disk; a checkpoint **counts** when all of its parts are told and all workers saved at the
//! same place of their work: a gang goes on whole, from one checkpoint, or from the one before. The next attempt is
//! granted together with the newest one that counts and can be had, so that every leader gives the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::ids::{JobId, NodeId, Rank};
use crate::spec::CheckpointMode;
use crate::units::{Epoch, LogTime};

/// Checkpoints that count and are kept of each job that says nothing else: should the newest turn out to be damaged,
/// there is the one before. Beside them are kept the newest that the loss of a node does not reach, until a newer one
/// has its copies, and the one that is being copied for that.
pub const CHECKPOINTS_KEPT: usize = 2;
/// Checkpoints that a job may ask to be kept.
pub const MOST_CHECKPOINTS: u32 = 16;
/// Checkpoints of an attempt that are told in part and may come to count. A worker whose part takes long is behind the
/// others by as many periods as that takes; one that never tells is not waited for without end.
const PARTIAL_KEPT: usize = 64;
/// Nodes on which a part is kept that lies on nodes: the loss of one loses nothing.
pub const COPIES_WANTED: usize = 2;

/// Names a checkpoint among those of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointKey {
    /// The attempt that saved it.
    pub attempt: u32,
    /// Number of the checkpoint in its attempt, from 1; [`CheckpointKey::LAST`] is saved when the attempt is stopped.
    pub sequence: u64,
}

impl CheckpointKey {
    /// The sequence of what is saved when an attempt is stopped. Workers count what they are asked for while they run,
    /// each on its own; this is the one place at which all of them know that they mean the same.
    pub const LAST: u64 = u32::MAX as u64;
}

impl fmt::Display for CheckpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequence {
            Self::LAST => write!(f, "{}.last", self.attempt),
            sequence => write!(f, "{}.{sequence}", self.attempt),
        }
    }
}

/// Names a part among those of all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    pub job: JobId,
    pub checkpoint: CheckpointKey,
    /// The epoch of the allocation under which it was saved.
    pub epoch: Epoch,
    /// The program, by its rank; where each worker has one, the worker.
    pub rank: Rank,
}

/// An agent's report of a part that it has saved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SavedPart {
    /// Number of the checkpoint in its attempt, from 1.
    pub sequence: u64,
    /// Progress of the program, in its own count; 0: the program reported none.
    pub progress: u64,
    /// Bytes of the program's files.
    pub bytes: u64,
    /// Hash over all of it.
    pub hash: [u8; 32],
    /// The ticket that another agent shows to be given the part; for a shared part, the store that it lies in.
    pub ticket: u128,
    /// True if the part lies in a store that all nodes share; otherwise it lies on the node that saved it.
    pub shared: bool,
    pub mode: CheckpointMode,
}

/// A part of a checkpoint: what one program saved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointPart {
    /// The program, by its rank; where each worker has one, the worker.
    pub rank: Rank,
    pub saved: SavedPart,
    /// The nodes that keep it; empty where it is shared.
    pub nodes: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    pub key: CheckpointKey,
    /// The epoch of the allocation under which it was saved.
    pub epoch: Epoch,
    /// The time at which its newest part was reported.
    pub at: LogTime,
    /// Workers of the attempt that have a program: so many parts it must have.
    pub workers: u32,
    /// The parts that were told, by rank.
    pub parts: Vec<CheckpointPart>,
    /// True if it is the checkpoint of its job that is copied next, so that it outlives the loss of a node.
    pub is_next_copied: bool,
}

impl Checkpoint {
    /// Returns whether the checkpoint counts: every worker has saved, all at the same place of their work, and there
    /// is something in it. In many gangs only the first worker writes.
    #[must_use]
    pub fn counts(&self) -> bool {
        let progress = self.parts.first().map(|part| part.saved.progress);
        self.is_whole() && self.parts.iter().all(|part| Some(part.saved.progress) == progress) && self.bytes() > 0
    }

    /// Returns whether every worker has reported its part. Workers report their parts in order: once this is so, no
    /// older checkpoint can become whole any more.
    fn is_whole(&self) -> bool {
        self.parts.len() == self.workers as usize
    }

    /// The workers that have not told their part.
    fn missing(&self) -> impl Iterator<Item = Rank> {
        (0..self.workers).map(Rank).filter(|rank| self.part(*rank).is_none())
    }

    /// Returns whether all of the checkpoint outlives the loss of a node.
    #[must_use]
    pub fn has_its_copies(&self) -> bool {
        self.parts.iter().all(|part| part.saved.shared || part.nodes.len() >= COPIES_WANTED)
    }

    /// Returns whether the programs wrote the same as in another checkpoint: then nothing new was saved since that one.
    fn says_the_same(&self, other: &Self) -> bool {
        let pairs = || self.parts.iter().zip(&other.parts);
        self.workers == other.workers
            && self.parts.len() == other.parts.len()
            && pairs().all(|(one, two)| one.rank == two.rank && one.saved.hash == two.saved.hash)
    }

    /// Returns whether `workers` workers can resume from the checkpoint: as many as saved it, or any number when only
    /// the first of them wrote something. The parts of others would be missing, or nobody's.
    #[must_use]
    pub fn suits(&self, workers: usize) -> bool {
        let alone = self.parts.iter().all(|part| part.rank == Rank(0) || part.saved.bytes == 0);
        self.workers as usize == workers || alone
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.saved.bytes))
    }

    /// Progress of the program, in its own count; 0: the program reported none.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.saved.progress)
    }

    #[must_use]
    pub fn part(&self, rank: Rank) -> Option<&CheckpointPart> {
        self.parts.iter().find(|part| part.rank == rank)
    }

    #[must_use]
    pub const fn part_key(&self, job: JobId, rank: Rank) -> PartKey {
        PartKey { job, checkpoint: self.key, epoch: self.epoch, rank }
    }

    /// Notes a part. One that is told twice says the same.
    pub(crate) fn note(&mut self, part: CheckpointPart, at: LogTime) {
        match self.parts.binary_search_by_key(&part.rank, |known| known.rank) {
            Ok(place) => self.parts[place].nodes.extend(part.nodes),
            Err(place) => {
                self.parts.insert(place, part);
                self.at = at;
            }
        }
    }
}

/// The checkpoints of a job, oldest first: those that count, and those of the present attempt that may come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checkpoints(pub(crate) Vec<Arc<Checkpoint>>);

impl Checkpoints {
    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Checkpoint>> {
        self.0.iter()
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, checkpoint| sum.saturating_add(checkpoint.bytes()))
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The checkpoints that count, newest first.
    pub fn that_count(&self) -> impl Iterator<Item = &Arc<Checkpoint>> {
        self.0.iter().rev().filter(|checkpoint| checkpoint.counts())
    }

    /// The newest of all, when it does not count.
    pub(crate) fn newest_partial(&self) -> Option<&Arc<Checkpoint>> {
        self.0.last().filter(|newest| !newest.counts())
    }

    #[must_use]
    pub fn get(&self, key: CheckpointKey) -> Option<&Arc<Checkpoint>> {
        self.0.iter().find(|checkpoint| checkpoint.key == key)
    }

    /// The one that a part belongs to.
    #[must_use]
    pub fn holding(&self, part: &PartKey) -> Option<&CheckpointPart> {
        let checkpoint = self.get(part.checkpoint).filter(|checkpoint| checkpoint.epoch == part.epoch)?;
        checkpoint.part(part.rank)
    }

    /// Notes a part of the checkpoint `key`, which is made when it is not there; so many that count are kept.
    pub(crate) fn note(
        &mut self,
        key: CheckpointKey,
        epoch: Epoch,
        workers: u32,
        part: CheckpointPart,
        at: LogTime,
        kept: usize,
    ) {
        let place = match self.0.binary_search_by_key(&key, |known| known.key) {
            Ok(place) => place,
            Err(place) => {
                let empty = Checkpoint { key, epoch, at, workers, parts: Vec::new(), is_next_copied: false };
                self.0.insert(place, Arc::new(empty));
                place
            }
        };
        let checkpoint = Arc::make_mut(&mut self.0[place]);
        if checkpoint.epoch == epoch && checkpoint.workers == workers {
            checkpoint.note(part, at);
        }
        let noted = Arc::clone(&self.0[place]);
        let before = self.that_count().find(|before| before.key < key);
        if noted.counts() && before.is_some_and(|before| before.says_the_same(&noted)) {
            self.remove(key);
        }
        self.retain(kept);
    }

    /// The checkpoints retained besides the newest ones, whatever is asked for: the newest that outlives the loss of a
    /// node, and the one that is being copied so that it does.
    fn reserve(&self) -> [Option<CheckpointKey>; 2] {
        let key = |checkpoint: &Arc<Checkpoint>| checkpoint.key;
        let outlives = self.that_count().find(|checkpoint| checkpoint.has_its_copies()).map(key);
        [outlives, self.0.iter().find(|checkpoint| checkpoint.is_next_copied).map(key)]
    }

    /// Chooses the one that is copied next: the newest, should it lack copies. It stays that until it has them, however
    /// many are saved meanwhile, or nothing would ever have any where copies are slower than saves; or until the next
    /// attempt has saved something, since what the one before left may be out of reach.
    fn choose_copied(&mut self) {
        let newest = self.that_count().next().map(|newest| newest.key);
        let [outlives, chosen] = self.reserve();
        let is_somewhere = |part: &CheckpointPart| part.saved.shared || !part.nodes.is_empty();
        let stays = chosen.filter(|chosen| {
            let of_newest_attempt = newest.is_some_and(|newest| newest.attempt == chosen.attempt);
            let is_there = self.get(*chosen).is_some_and(|checkpoint| checkpoint.parts.iter().all(is_somewhere));
            Some(*chosen) > outlives && of_newest_attempt && is_there
        });
        let chosen = stays.or_else(|| newest.filter(|newest| Some(*newest) > outlives));
        for checkpoint in &mut self.0 {
            let is_chosen = Some(checkpoint.key) == chosen;
            if checkpoint.is_next_copied != is_chosen {
                Arc::make_mut(checkpoint).is_next_copied = is_chosen;
            }
        }
    }

    /// Returns whether a checkpoint is retained for as long as copying it takes.
    pub(crate) fn is_reserved(&self, key: CheckpointKey) -> bool {
        self.reserve().contains(&Some(key))
    }

    /// The checkpoints that are worth copies: the one that is retained until it has them, and the newest, which often
    /// has them before there is a newer one.
    pub(crate) fn to_be_copied(&self) -> impl Iterator<Item = &Arc<Checkpoint>> {
        let chosen = self.0.iter().find(|checkpoint| checkpoint.is_next_copied);
        let newest = self.that_count().take(1).filter(|newest| !newest.is_next_copied);
        chosen.into_iter().chain(newest)
    }

    /// The checkpoints that can be given up, should room be short: all that count but the newest and the reserve.
    pub(crate) fn spare(&self) -> impl Iterator<Item = &Arc<Checkpoint>> {
        let reserve = self.reserve();
        self.that_count().skip(1).filter(move |checkpoint| !reserve.contains(&Some(checkpoint.key)))
    }

    /// Keeps so many of the newest that count, the reserve, and some of the newest that may come to count.
    fn retain(&mut self, kept: usize) {
        self.choose_copied();
        let (whole, reserve, told) = (self.newest_whole(), self.reserve(), self.told());
        let mut counted = self.0.iter().filter(|checkpoint| checkpoint.counts()).count();
        let mut partial = self.0.len() - counted;
        self.0.retain(|checkpoint| {
            if !checkpoint.counts() {
                partial -= 1;
                // One that is whole and does not count says why nothing newer is gone on from.
                let may_count = || checkpoint.missing().all(|rank| told.get(&rank) < Some(&checkpoint.key));
                return partial < PARTIAL_KEPT && whole.is_none_or(|whole| checkpoint.key >= whole) && may_count();
            }
            counted -= 1;
            counted < kept || reserve.contains(&Some(checkpoint.key))
        });
    }

    /// The newest that each worker has told a part of.
    fn told(&self) -> BTreeMap<Rank, CheckpointKey> {
        self.0.iter().flat_map(|checkpoint| checkpoint.parts.iter().map(|part| (part.rank, checkpoint.key))).collect()
    }

    fn newest_whole(&self) -> Option<CheckpointKey> {
        self.0.iter().rev().find(|checkpoint| checkpoint.is_whole()).map(|checkpoint| checkpoint.key)
    }

    /// An attempt is over: what it saved and does not count never will.
    pub(crate) fn close(&mut self) {
        self.0.retain(|checkpoint| checkpoint.counts());
    }

    /// Takes one out: it cannot be used.
    pub(crate) fn remove(&mut self, key: CheckpointKey) {
        self.0.retain(|checkpoint| checkpoint.key != key);
        self.choose_copied();
    }

    /// Changes where parts are kept; answers whether that changed anything.
    pub(crate) fn keep(&mut self, part: &PartKey, node: NodeId, kept: bool, count: usize) -> bool {
        let Some(place) = self.0.iter().position(|checkpoint| checkpoint.key == part.checkpoint) else { return false };
        let known = self.holding(part).filter(|known| !known.saved.shared && known.nodes.contains(&node) != kept);
        if known.is_none() {
            return false;
        }
        let checkpoint = Arc::make_mut(&mut self.0[place]);
        for known in checkpoint.parts.iter_mut().filter(|known| known.rank == part.rank) {
            if kept {
                known.nodes.insert(node)
            } else {
                known.nodes.remove(&node)
            };
        }
        self.retain(count);
        true
    }

    /// Returns whether a part that lies on a disk is of no use any more: the ledger has no record of it, and it is of
    /// an older attempt, or older than a whole checkpoint or a part of the same rank that the ledger has. A part that
    /// the ledger may still learn of is needed.
    #[must_use]
    pub fn can_do_without(&self, part: &PartKey, newest_attempt: u32) -> bool {
        if self.holding(part).is_some() {
            return false;
        }
        let is_newer = |key: Option<CheckpointKey>| key > Some(part.checkpoint);
        part.checkpoint.attempt < newest_attempt
            || is_newer(self.newest_whole())
            || is_newer(self.told().get(&part.rank).copied())
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
