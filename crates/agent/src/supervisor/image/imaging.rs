//! The work under way on a worker's images: CRIU, and the results of its steps. Nothing here waits for it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::fstat;
use tessera_diagnostics::remark;

use super::beside::Beside;
use super::files::let_open_files_change;
use super::helper::{PATIENCE, end_with_parent, hearing, patience_for};
use super::restoring::Restoring;
use super::room::{self, remove_soon, size_of};
use super::running::{Running, Step};
use super::snapshots::Freezing;
use super::tool::NOT_BEGUN;
use super::{
    Connections, IMAGE_FOLDER, ImagePlan, ImageRecord, Snapshot, Then, child_that_is, contents, credentials, driver,
    identity, places, reason, seen_as,
};
use crate::boot::BootTime;
use crate::cgroup::WorkerGroup;
use crate::process::ProcessId;
use crate::supervisor::message::Launch;
use crate::supervisor::pid_namespace::PidNamespace;
use crate::supervisor::program::NoStart;
use crate::supervisor::status::Exit;
use crate::worker::Account;

/// The interval at which a tree that is being frozen is checked for standing still, in milliseconds.
const FREEZING_LOOK_MS: u16 = 5;
/// The interval at which work under way is checked for taking too long, in milliseconds.
const LATE_LOOK_MS: u16 = 500;

/// Dumping and restoring one worker.
#[derive(Debug)]
pub struct Imaging {
    pub(super) plan: ImagePlan,
    pub(super) account: Option<Account>,
    pub(super) namespace: PidNamespace,
    pub(super) supervisor: i32,
    /// The pipes that take its output.
    pub(super) outputs: [u64; 2],
    /// The longest time that the worker may take to end, and so may stand still.
    pub(super) grace: Duration,
    pub(super) running: Option<Running>,
    pub(super) freezing: Option<Freezing>,
    /// The process that runs beside the tree and is not dumped; it saves the state that the tree has on its card.
    /// `None`: there is none.
    pub(super) beside: Option<Beside>,
}

/// The meaning of the end of a process for the worker's images.
#[derive(Debug)]
pub enum Ended {
    /// Nothing to anybody yet.
    Noted,
    /// The tree stands still, and what it has on its card is to be saved.
    Stands,
    Dumped(Result<Box<ImageRecord>, String>),
    /// A tree was dumped that goes on, or was not.
    Snapshotted(Snapshot),
    /// A restore is over: the first process, and how that has ended if it has.
    Restored(Result<(ProcessId, Option<Exit>), NoStart>),
}

impl Imaging {
    /// For a worker that is to be dumped some day. `outputs` lead to where its output is read.
    pub fn new(launch: &Launch, namespace: PidNamespace, outputs: [&OwnedFd; 2]) -> io::Result<Option<Self>> {
        let Some(plan) = launch.image.clone() else { return Ok(None) };
        let number = |pipe: &OwnedFd| fstat(pipe).map(|stat| stat.st_ino);
        let supervisor = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let outputs = [number(outputs[0])?, number(outputs[1])?];
        Ok(Some(Self {
            plan,
            account: launch.account.clone(),
            namespace,
            supervisor,
            outputs,
            grace: launch.stop.grace,
            running: None,
            freezing: None,
            beside: None,
        }))
    }

    /// Begins to dump the tree below `first`.
    ///
    /// # Errors
    /// The sentence that tells why it cannot be.
    pub fn begin_dump(&mut self, first: ProcessId) -> Result<(), String> {
        let tree = self.tree(first.pid)?;
        room::check(&self.plan.into, &tree.processes, self.plan.is_packed_here)?;
        let connections = Connections::of(first.pid, &tree.processes)?;
        places::check_processes(&tree.processes, self.owner())?;
        let record = self.plan.record(&tree, connections, self.outputs, identity(self.account.as_ref()));
        let processes: Vec<ProcessId> = tree.on_cards().into_iter().filter_map(|(pid, _)| ProcessId::of(pid)).collect();
        if processes.is_empty() {
            return self.start_dump(first, record, Vec::new());
        }
        if self.beside.is_some() {
            return Err("it has something on a graphics card beside what is on its device".to_owned());
        }
        let step = Step::Pause { processes: processes.clone(), first };
        self.start_driver(true, &processes, step, Box::new(record))
    }

    /// Starts CRIU on a tree whose processes `paused` have nothing on cards any more.
    fn start_dump(&mut self, first: ProcessId, record: ImageRecord, paused: Vec<ProcessId>) -> Result<(), String> {
        let start = || -> io::Result<_> {
            let seen = File::open(format!("/proc/{}/ns/mnt", first.pid))?;
            let (says, end) = hearing()?;
            let then = if self.beside.is_some() { Then::StandStill } else { Then::End };
            let pid = self.plan.dump(&self.plan.into, &record, &seen, then, end).start(&self.namespace, &[])?;
            Ok((pid, says))
        };
        let (pid, says) = start().map_err(|error| format!("CRIU cannot be started: {error}"))?;
        self.is_stopping(first);
        let record = Box::new(record);
        let step = Step::Dump { first, paused };
        self.running = Some(Running { pid, says, step, record, ended: Vec::new(), until: None });
        Ok(())
    }

    /// Starts what speaks with the driver of the cards: it pauses processes, or lets them go on.
    fn start_driver(
        &mut self,
        pauses: bool,
        processes: &[ProcessId],
        step: Step,
        record: Box<ImageRecord>,
    ) -> Result<(), String> {
        let start = || -> io::Result<_> {
            let (says, end) = hearing()?;
            let mut command = Command::new("/proc/self/exe");
            command.args(driver::command(pauses, processes));
            end_with_parent(&mut command);
            let child = command.stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end).spawn()?;
            Ok((child.id().cast_signed(), says))
        };
        let (pid, says) = start().map_err(|error| format!("the driver of its cards cannot be spoken to: {error}"))?;
        // A worker that is being stopped ends with its grace, and all that is done with it.
        let until = matches!(step, Step::Return(_)).then(|| BootTime::now().after(PATIENCE));
        self.running = Some(Running { pid, says, step, record, ended: Vec::new(), until });
        Ok(())
    }

    /// Has what is started beside an image that is to be restored take no number that something in it has.
    ///
    /// # Errors
    /// When the image cannot be read, or the kernel refuses.
    pub fn make_room_for_numbers(&self) -> io::Result<&PidNamespace> {
        if let Some(from) = &self.plan.from {
            self.namespace.count_from(ImageRecord::load(from)?.free_from)?;
        }
        Ok(&self.namespace)
    }

    /// Begins to restore what the plan names, if it names something, in the worker's control groups; `outputs` are
    /// where its output goes.
    ///
    /// # Errors
    /// Whose fault it is that it cannot be, and why.
    pub fn begin_restore(&mut self, group: &WorkerGroup, outputs: [OwnedFd; 2]) -> Result<(), NoStart> {
        let Some(from) = &self.plan.from else { return Err(NoStart::by_node("there is no image to be restored")) };
        let record = ImageRecord::load(from);
        let record = record.map_err(|error| NoStart::by_node(format!("its image cannot be read: {error}")))?;
        record.check_identity(self.account.as_ref())?;
        let image = from.join(IMAGE_FOLDER);
        let checked =
            contents::check(&image, self.owner()).and_then(|()| credentials::check(&image, self.account.as_ref()));
        checked.map_err(|error| record.not_restored(&error.to_string()))?;
        if let Err(error) = let_open_files_change(&image) {
            // CRIU knows better whether it can be restored.
            remark!("files that changed since may stand in the way of the image: {error}");
        }
        let start = || -> io::Result<_> {
            self.namespace.count_from(record.free_from)?;
            let join = group.join_files(false).map_err(io::Error::other)?;
            let (says, end) = hearing()?;
            let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(io::Error::from)?;
            let (tool, order) = self.plan.restore(from, &record, outputs, far, end);
            let pid = tool.start(&self.namespace, &join)?;
            let (account, supervisor) = (self.account.clone(), self.supervisor);
            Restoring { criu: pid, root: record.root, supervisor, account, says: says.try_clone()? }
                .start(near, order)?;
            let until = Some(BootTime::now().after(patience_for(size_of(&from.join(IMAGE_FOLDER))?)));
            Ok(Running { pid, says, step: Step::Restore, record: Box::new(record), ended: Vec::new(), until })
        };
        self.running = Some(start().map_err(|error| NoStart::by_node(format!("CRIU cannot be started: {error}")))?);
        Ok(())
    }

    /// The owner whose places are checked; `None`: the worker runs as this process does, which may do everything there.
    pub(super) fn owner(&self) -> Option<places::Owner<'_>> {
        self.account.as_ref().map(|account| places::Owner { account, folder: &self.plan.folder })
    }

    /// The time after which [`turn`](Self::turn) must run again, in milliseconds, to check for conditions that nobody
    /// reports; `None`: there are none.
    pub fn looks_again_in(&self) -> Option<u16> {
        match &self.running {
            _ if self.freezing.is_some() => Some(FREEZING_LOOK_MS),
            _ if self.waits_for_card() => Some(LATE_LOOK_MS),
            Some(Running { until: Some(_), .. }) => Some(LATE_LOOK_MS),
            _ => None,
        }
    }

    /// Ends what takes too long. Its end is told like any other.
    pub(super) fn end_what_is_late(&self) {
        if let Some(running) = self.running.as_ref().filter(|running| running.is_late()) {
            running.kill();
        }
    }

    /// Ends what is outside of the worker's namespace: what speaks with a driver, or copies. CRIU is inside.
    pub fn kill(&self) {
        let speaks =
            |running: &&Running| !matches!(running.step, Step::Dump { .. } | Step::Snapshot { .. } | Step::Restore);
        if let Some(running) = self.running.as_ref().filter(speaks) {
            running.kill();
        }
    }

    /// A child of the supervisor has ended; `None` when that is no concern of images.
    pub fn ended(&mut self, pid: i32, exit: Exit, group: &WorkerGroup) -> Option<Ended> {
        let running = self.running.as_mut()?;
        if running.pid != pid {
            let restores = running.step.restores();
            if restores {
                running.ended.push((pid, exit));
            }
            return restores.then_some(Ended::Noted);
        }
        let running = self.running.take()?;
        let failed = match exit {
            Exit::Code(0) => None,
            Exit::Code(NOT_BEGUN) if running.step == Step::Restore => {
                return Some(Ended::Restored(Err(NoStart::by_node(reason(&running.said())))));
            }
            Exit::Code(_) => Some(reason(&running.said())),
            Exit::Signal(_) if running.is_late() => Some("it was not done in time".to_owned()),
            Exit::Signal(number) => Some(format!("what worked at it was ended by signal {number}")),
        };
        let was_killed = matches!(exit, Exit::Signal(_));
        Some(self.went_on(running, failed, was_killed, group))
    }

    /// Takes the action that follows from the end of a step.
    fn went_on(&mut self, running: Running, failed: Option<String>, was_killed: bool, group: &WorkerGroup) -> Ended {
        let Running { step, record, ended, .. } = running;
        match (step, failed) {
            // It undoes what it did when it fails, and cannot when it was killed.
            (Step::Pause { processes, .. }, Some(why)) if was_killed => self.go_on(&processes, record, why),
            (Step::Pause { .. }, Some(why)) => Ended::Dumped(Err(why)),
            (Step::Pause { processes, first }, None) => {
                // By now they hold in memory what they had on cards.
                let paused: Vec<i32> = processes.iter().map(|process| process.pid).collect();
                let room = room::check(&self.plan.into, &paused, self.plan.is_packed_here);
                match room.and_then(|()| self.start_dump(first, *record.clone(), processes.clone())) {
                    Ok(()) => Ended::Noted,
                    Err(why) => self.go_on(&processes, record, why),
                }
            }
            (Step::Dump { first, .. }, Some(why)) if self.tries_again(&why) => match self.begin_dump(first) {
                Ok(()) => Ended::Noted,
                Err(why) => self.go_on(&[], record, why),
            },
            (Step::Snapshot { number, first }, Some(why)) if self.tries_again(&why) => {
                let begun = self.begin_snapshot(number, first, group);
                begun.map_or_else(|why| self.snapshot(number, group, Err(why)), |()| Ended::Noted)
            }
            (Step::Dump { paused, .. }, Some(why)) => {
                remove_soon(self.plan.into.join(IMAGE_FOLDER));
                self.go_on(&paused, record, why)
            }
            (Step::Dump { first, .. }, None) if self.beside.is_some() => self.stands(first, None, record),
            (Step::Snapshot { number, first }, None) if self.beside.is_some() => {
                self.stands(first, Some(number), record)
            }
            (Step::Dump { .. }, None) => Ended::Dumped(self.whole(record, &[])),
            (Step::Snapshot { number, .. }, None) => self.start_copy(number, record, group),
            (Step::Snapshot { number, .. } | Step::Copy(number), Some(why)) => self.snapshot(number, group, Err(why)),
            (Step::Copy(number), None) => {
                let whole = self.put_card_back(number).map(|()| record);
                self.snapshot(number, group, whole)
            }
            (Step::GoOn { why }, None) => Ended::Dumped(Err(why)),
            (Step::GoOn { why }, Some(more)) => {
                Ended::Dumped(Err(format!("{why}; and what lay on its cards cannot be brought back: {more}")))
            }
            (Step::Restore | Step::Return(_), Some(why)) => Ended::Restored(Err(record.not_restored(&why))),
            (Step::Restore, None) => self.restored(record, ended),
            (Step::Return(process), None) => {
                let exit = ended.iter().find(|(pid, _)| *pid == process.pid).map(|(_, exit)| *exit);
                Ended::Restored(Ok((process, exit)))
            }
        }
    }

    /// Resumes processes that could not be dumped, also on their cards.
    fn go_on(&mut self, paused: &[ProcessId], record: Box<ImageRecord>, why: String) -> Ended {
        self.let_go_on();
        if paused.is_empty() {
            return Ended::Dumped(Err(why));
        }
        match self.start_driver(false, paused, Step::GoOn { why: why.clone() }, record) {
            Ok(()) => Ended::Noted,
            Err(more) => Ended::Dumped(Err(format!("{why}; and {more}"))),
        }
    }

    fn restored(&mut self, record: Box<ImageRecord>, ended: Vec<(i32, Exit)>) -> Ended {
        let found = child_that_is(record.root, self.supervisor).and_then(ProcessId::of);
        // One that has ended by now was quick.
        let quick = || ended.last().map(|(pid, exit)| (ProcessId { pid: *pid, start_ticks: 0 }, Some(*exit)));
        let Some((process, exit)) = found.map(|process| (process, None)).or_else(quick) else {
            return Ended::Restored(Err(record.not_restored("what CRIU has restored cannot be found")));
        };
        let processes: Vec<ProcessId> =
            seen_as(&record.on_cards, process.pid).into_iter().filter_map(ProcessId::of).collect();
        if processes.is_empty() {
            return Ended::Restored(Ok((process, exit)));
        }
        let failure = record.not_restored("the driver of its cards cannot be spoken to");
        match self.start_driver(false, &processes, Step::Return(process), record) {
            Ok(()) => Ended::Noted,
            Err(why) => Ended::Restored(Err(NoStart { message: why, ..failure })),
        }
    }
}
