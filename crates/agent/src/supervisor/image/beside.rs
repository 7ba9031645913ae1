//! A tree that is dumped while something beside it has its card: it stands still until the card is saved too.
//!
//! The order is what makes both fit: CRIU stops each process of the tree, and leaves it so; only then are the slice
//! servers asked to save. What they have executed is no more than what the program has issued, and what they have not
//! is in its journal.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::imaging::{Ended, Imaging};
use super::room::{self, remove_soon};
use super::running::Step;
use super::{IMAGE_FOLDER, ImageRecord, Tree, stray, whole_tree};
use crate::boot::BootTime;
use crate::cgroup::WorkerGroup;
use crate::device::unaware::SAVED;
use crate::process::{ProcessId, kill_pid};
use crate::worker::{WORK_FOLDER, snapshot_in};

/// The number of attempts at a dump that meets a question of the program: each question is answered at once.
const TRIES: u32 = 4;
/// Below the folder of an image, until the rest of the worker's folder is there: what is saved of the card.
const CARD_FOLDER: &str = "card";
/// Likewise, until it is in the worker's folder: where the card is saved next.
const NEXT_CARD_FOLDER: &str = "next-card";

/// The process that runs beside a tree.
#[derive(Debug)]
pub struct Beside {
    process: ProcessId,
    /// The longest time that a save of the card may take.
    patience: Duration,
    /// The number of times that the dump under way was begun again.
    tries: u32,
    /// The first process of the tree, as long as that is stopped.
    stopped: Option<ProcessId>,
    /// The image that waits until the card is saved.
    waiting: Option<Waiting>,
}

/// An image that is whole once the card is saved.
#[derive(Debug)]
struct Waiting {
    first: ProcessId,
    /// `None`: the tree is ended then.
    number: Option<u64>,
    record: Box<ImageRecord>,
    until: BootTime,
}

impl Beside {
    /// Its number, as the host sees it.
    pub const fn pid(&self) -> i32 {
        self.process.pid
    }
}

impl Imaging {
    /// The tree below a process, and nothing else of the worker but what runs beside it.
    pub(super) fn tree(&self, first: i32) -> Result<Tree, String> {
        let beside = self.beside.as_ref().map(Beside::pid);
        Tree::of(first, self.namespace.init().pid, self.supervisor, beside)
    }

    /// The record of what was dumped, of which these processes still stand.
    pub(super) fn whole(&self, record: Box<ImageRecord>, standing: &[i32]) -> Result<Box<ImageRecord>, String> {
        let beside: Vec<i32> = self.beside.iter().map(Beside::pid).collect();
        // One whose parent ended after it was looked for.
        match stray(self.namespace.init().pid, self.supervisor, &beside, standing) {
            Some(stray) => {
                Err(format!("process {stray} outlived its parent meanwhile, and was not dumped with the rest"))
            }
            None => Ok(record),
        }
    }

    /// Names what runs beside the tree from now on.
    pub fn set_beside(&mut self, process: ProcessId, patience: Duration) {
        self.beside = Some(Beside { process, patience, tries: 0, stopped: None, waiting: None });
    }

    /// Returns whether a dump that failed for the reason `why` is begun again: CRIU has met a question to the process
    /// beside the tree, which is answered by now.
    pub(super) fn tries_again(&mut self, why: &str) -> bool {
        let Some(beside) = &mut self.beside else { return false };
        let again = why.starts_with("unix:") && beside.tries + 1 < TRIES;
        beside.tries = if again { beside.tries + 1 } else { 0 };
        again
    }

    /// CRIU begins to dump the tree, and stops it: whatever becomes of that, it goes on or is ended.
    pub(super) fn is_stopping(&mut self, first: ProcessId) {
        if let Some(beside) = &mut self.beside {
            beside.stopped = Some(first);
        }
    }

    /// The tree was dumped and stands still.
    pub(super) fn stands(&mut self, first: ProcessId, number: Option<u64>, record: Box<ImageRecord>) -> Ended {
        let Some(beside) = &mut self.beside else { return Ended::Noted };
        let until = BootTime::now().after(beside.patience);
        beside.tries = 0;
        beside.waiting = Some(Waiting { first, number, record, until });
        Ended::Stands
    }

    /// Returns whether an image waits until the card is saved.
    pub(super) fn waits_for_card(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.waiting.is_some())
    }

    /// Returns whether an image waits for the card, which was not saved in time.
    pub(super) fn card_is_late(&self) -> bool {
        let waiting = self.beside.as_ref().and_then(|beside| beside.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.until < BootTime::now())
    }

    /// Handles the outcome of the save of the card; `None`: no image waits for it.
    pub fn card_saved(&mut self, saved: Result<(), String>, group: &WorkerGroup) -> Option<Ended> {
        let Waiting { first, number, record, .. } = self.beside.as_mut()?.waiting.take()?;
        // Its number may be that of another by now, when it was killed meanwhile.
        let stands = ProcessId::of(first.pid) == Some(first);
        let standing = if stands { whole_tree(first.pid) } else { Vec::new() };
        let whole = saved.and_then(|()| self.whole(record, &standing));
        let whole = whole.and_then(|record| match number {
            Some(number) => self.set_card_aside(number).map(|()| record),
            None => self.check_room_to_pack().map(|()| record),
        });
        Some(match (number, whole) {
            (Some(number), Ok(record)) => self.start_copy(number, record, group),
            (Some(number), Err(why)) => self.snapshot(number, group, Err(why)),
            (None, Ok(record)) => {
                end(&standing);
                Ended::Dumped(Ok(record))
            }
            (None, Err(why)) => {
                remove_soon(self.plan.into.join(IMAGE_FOLDER));
                self.let_go_on();
                Ended::Dumped(Err(why))
            }
        })
    }

    /// Once the tree is ended there is nothing left but what is packed.
    fn check_room_to_pack(&self) -> Result<(), String> {
        let parts = [self.plan.into.join(IMAGE_FOLDER), self.saved_card()];
        if self.plan.is_packed_here { room::check_packed(&self.plan.into, &parts) } else { Ok(()) }
    }

    fn saved_card(&self) -> PathBuf {
        self.plan.folder.join(WORK_FOLDER).join(SAVED)
    }

    /// Takes what is saved of the card out of the worker's folder: copied with that it would take its size in time,
    /// while the program stands still, and in room.
    ///
    /// That folder is the job's, who may put a link there: what is moved is the entry itself, and nothing is looked at
    /// or given away before it lies where nobody else can put another in its place. The new folder is made there, too.
    fn set_card_aside(&self, number: u64) -> Result<(), String> {
        let snapshot = snapshot_in(&self.plan.snapshots, number);
        let (card, aside, made) = (self.saved_card(), snapshot.join(CARD_FOLDER), snapshot.join(NEXT_CARD_FOLDER));
        let set = || -> io::Result<()> {
            fs::rename(&card, &aside)?;
            let seen = fs::symlink_metadata(&aside)?;
            if !seen.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            DirBuilder::new().mode(0o700).create(&made)?;
            lchown(&made, Some(seen.uid()), Some(seen.gid()))?;
            fs::rename(&made, &card)
        };
        set().map_err(|error| format!("what is saved of its card cannot be put beside its image: {error}"))
    }

    /// Puts it into the copy of the worker's folder.
    pub(super) fn put_card_back(&self, number: u64) -> Result<(), String> {
        if self.beside.is_none() {
            return Ok(());
        }
        let snapshot = snapshot_in(&self.plan.snapshots, number);
        let copied = snapshot.join(WORK_FOLDER).join(SAVED);
        // What a server writes that was told too late that nobody waits for it.
        let moved = fs::remove_dir_all(&copied).and_then(|()| fs::rename(snapshot.join(CARD_FOLDER), &copied));
        moved.map_err(|error| format!("what is saved of its card cannot be put into its image: {error}"))
    }

    /// Gives up an image for which the tree stands still and that it can do without: it is to hear something.
    pub fn give_up_snapshot(&mut self, group: &WorkerGroup) -> Option<Ended> {
        if let Some(running) = self.running.as_ref().filter(|running| matches!(running.step, Step::Copy(_))) {
            // Its end is told like any other.
            running.kill();
        }
        let waiting = self.beside.as_ref().and_then(|beside| beside.waiting.as_ref());
        waiting.filter(|waiting| waiting.number.is_some())?;
        self.card_saved(Err("it was told to stop".to_owned()), group)
    }

    /// Lets a tree go on that CRIU has left stopped.
    pub(super) fn let_go_on(&mut self) {
        let Some(first) = self.beside.as_mut().and_then(|beside| beside.stopped.take()) else { return };
        if ProcessId::of(first.pid) == Some(first) {
            for pid in whole_tree(first.pid) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
    }
}

/// Ends processes that are stopped, the first of them last: none of the others goes on for a moment because its parent
/// is gone.
fn end(standing: &[i32]) {
    for pid in standing {
        // Whatever is left is looked for, and killed with all of the worker.
        let _ = kill_pid(*pid);
    }
}
