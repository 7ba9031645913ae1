//! Images of processes that go on: the tree is frozen, dumped, its folder copied, and let go.

use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use tessera_diagnostics::remark;

use super::helper::{end_with_parent, hearing, patience_for};
use super::imaging::{Ended, Imaging};
use super::room::{self, memory_of};
use super::running::{Running, Step};
use super::{Connections, ImageRecord, Snapshot, Then, identity, links, places};
use crate::boot::BootTime;
use crate::cgroup::WorkerGroup;
use crate::process::ProcessId;
use crate::worker::{WORK_FOLDER, snapshot_in};

/// The longest time that a tree may take until all of it stands still.
const FREEZING: Duration = Duration::from_secs(2);

/// A tree that is about to stand still.
#[derive(Debug)]
pub(super) struct Freezing {
    number: u64,
    first: ProcessId,
    until: BootTime,
}

impl Imaging {
    /// Begins to dump the tree below `first` in `group`, under a number.
    ///
    /// # Errors
    /// The sentence that tells why it cannot be.
    pub fn begin_snapshot(&mut self, number: u64, first: ProcessId, group: &WorkerGroup) -> Result<(), String> {
        if self.beside.is_some() {
            // The servers of its card, which are in its control group, are to save that.
            return self.start_snapshot(number, first, group);
        }
        if group.freezer().is_none() {
            return Err("it has no control group, and cannot be frozen".to_owned());
        }
        group.freeze(true).map_err(|error| format!("it cannot be frozen: {error}"))?;
        self.freezing = Some(Freezing { number, first, until: BootTime::now().after(FREEZING) });
        Ok(())
    }

    /// Goes on once the tree stands still, and ends what takes too long.
    pub fn turn(&mut self, group: &WorkerGroup) -> Option<Ended> {
        self.end_what_is_late();
        if self.card_is_late() {
            return self.card_saved(Err("what it has on its card was not saved in time".to_owned()), group);
        }
        let Freezing { number, first, until } = self.freezing.take()?;
        if group.is_frozen() {
            return self.start_snapshot(number, first, group).err().map(|why| self.snapshot(number, group, Err(why)));
        }
        if until < BootTime::now() {
            return Some(self.snapshot(number, group, Err("it does not stand still".to_owned())));
        }
        self.freezing = Some(Freezing { number, first, until });
        None
    }

    fn start_snapshot(&mut self, number: u64, first: ProcessId, group: &WorkerGroup) -> Result<(), String> {
        let tree = self.tree(first.pid)?;
        if !tree.on_cards().is_empty() {
            return Err("what it has on cards is dumped only when it is stopped".to_owned());
        }
        room::check(&self.plan.snapshots, &tree.processes, self.plan.is_packed_here)?;
        let connections = Connections::of(first.pid, &tree.processes)?;
        places::check_processes(&tree.processes, self.owner())?;
        let record = self.plan.record(&tree, connections, self.outputs, identity(self.account.as_ref()));
        let start = || -> io::Result<_> {
            let seen = File::open(format!("/proc/{}/ns/mnt", first.pid))?;
            let (says, end) = hearing()?;
            let into = snapshot_in(&self.plan.snapshots, number);
            let then = group.freezer().filter(|_| self.beside.is_none()).map_or(Then::StandStill, Then::StayFrozen);
            let tool = self.plan.dump(&into, &record, &seen, then, end);
            let pid = tool.start(&self.namespace, &[])?;
            Ok((pid, says))
        };
        let (pid, says) = start().map_err(|error| format!("CRIU cannot be started: {error}"))?;
        self.is_stopping(first);
        let (step, record) = (Step::Snapshot { number, first }, Box::new(record));
        let until = Some(BootTime::now().after(patience_for(memory_of(&tree.processes))));
        self.running = Some(Running { pid, says, step, record, ended: Vec::new(), until });
        Ok(())
    }

    /// Copies the worker's folder while nothing in it changes.
    pub(super) fn start_copy(&mut self, number: u64, record: Box<ImageRecord>, group: &WorkerGroup) -> Ended {
        let start = || -> io::Result<_> {
            let (says, end) = hearing()?;
            let mut command = Command::new("cp");
            // Not `into`, which would become the copy itself were it gone.
            let copy = snapshot_in(&self.plan.snapshots, number).join(WORK_FOLDER);
            let folder = self.plan.folder.join(WORK_FOLDER);
            // Another process of its account may run, and change it.
            links::follow_none_below(&mut command, &folder)?;
            command.args(["-a", "--reflink=auto", "--no-target-directory", "--"]).args([folder, copy]);
            end_with_parent(&mut command);
            let child = command.stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end).spawn()?;
            Ok((child.id().cast_signed(), says))
        };
        match start() {
            Ok((pid, says)) => {
                let (step, until) = (Step::Copy(number), Some(BootTime::now().after(self.grace)));
                self.running = Some(Running { pid, says, step, record, ended: Vec::new(), until });
                Ended::Noted
            }
            Err(error) => self.snapshot(number, group, Err(format!("its folder cannot be copied: {error}"))),
        }
    }

    /// Lets the tree go on.
    pub(super) fn snapshot(
        &mut self,
        number: u64,
        group: &WorkerGroup,
        made: Result<Box<ImageRecord>, String>,
    ) -> Ended {
        self.let_go_on();
        if let Err(error) = group.freeze(false) {
            remark!("the worker stands still, and cannot be let go on: {error}");
        }
        let (image, why) = match made {
            Ok(image) => (Some(*image), String::new()),
            Err(why) => (None, why),
        };
        Ended::Snapshotted(Snapshot { number, image, why })
    }
}
