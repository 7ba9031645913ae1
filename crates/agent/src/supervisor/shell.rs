//! Waits, asks the state machine, does what it says. See the module above for what must hold.

mod beginning;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::syncfs;
use tessera_diagnostics::remark;

use super::companion::Companion;
use super::connections::Connections;
use super::containment::Containment;
use super::early::{Ahead, Early};
use super::image::{Ended, Imaging, Snapshot};
use super::inherited::{lock, take_signals, take_stdin};
use super::keeper::Keeper;
use super::machine::{Effect, Event, Machine, Now, Rules};
use super::message::{Launch, Notice, Request};
use super::output::Pump;
use super::program::NoStart;
use super::ready::Ready;
use super::status::{Cause, Exit, Status};
use super::{LAUNCH_FILE, SOCKET_FILE};
use crate::boot::{BootTime, unix_millis};
use crate::cgroup::{Hierarchies, WorkerGroup, remove_empty_groups};
use crate::device::Ear;
use crate::process::{ProcessId, reap};

/// The reason why a supervisor could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("cannot {step}: {source}")]
    Step { step: &'static str, source: io::Error },
    /// There is a supervisor already.
    #[error("another supervisor is at work in this folder")]
    Taken,
}

pub(super) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> SuperviseError {
    move |error| SuperviseError::Step { step, source: error.into() }
}

/// Supervises the worker in `folder` to its end. `early`: what was made before there was a worker.
pub(super) fn supervise(folder: &Path, early: Option<Early>) -> Result<(), SuperviseError> {
    std::env::set_current_dir(folder).map_err(step("enter the folder"))?;
    let _lock = lock()?;
    if Status::load(Path::new(".")).map_err(step("read the status"))?.is_some_and(|status| status.is_final()) {
        return Ok(());
    }
    let launch = fs::read(LAUNCH_FILE).map_err(step("read launch.json"))?;
    let launch: Launch = serde_json::from_slice(&launch).map_err(step("understand launch.json"))?;
    let ahead = || Ahead { contained: launch.contained, cgroup_root: launch.cgroup_root.clone() };
    let early = early.map_or_else(|| Early::make(&ahead()), Ok)?;
    let mut shell = Shell::prepare(&launch, early)?;
    while !shell.finished {
        shell.turn()?;
    }
    shell.conclude()
}

struct Shell {
    machine: Machine,
    ready: Option<Result<Ready, NoStart>>,
    imaging: Option<Imaging>,
    containment: Containment,
    connections: Connections,
    signals: SignalFd,
    timer: TimerFd,
    keeper: Option<Keeper>,
    pump: Option<Pump>,
    /// The socket of a program that begins as a process of ours, which says why it cannot go on.
    word: Option<Ear>,
    /// The process beside the program. The program waits for its word as long as `ready` is there.
    companion: Option<Companion>,
    hierarchies: Hierarchies,
    /// The group under which the agent has its workers.
    cgroup_root: String,
    finished: bool,
}

impl Shell {
    fn prepare(launch: &Launch, mut early: Early) -> Result<Self, SuperviseError> {
        let signals = take_signals()?;
        let starter = take_stdin()?;
        let group = WorkerGroup::create(&early.hierarchies, &launch.cgroup, launch.limits);
        let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let namespace = early.namespace();
        let Early { boot_id, hierarchies, cgroup_root, .. } = early;
        let mut status = Status::new(launch.worker, launch.job, launch.fence, boot_id);
        status.supervisor = ProcessId::of(own);
        status.group = group.record().clone();
        status.lease = launch.lease;
        status.ordered_unix_ms = launch.ordered_unix_ms;
        status.init = namespace.as_ref().ok().and_then(Option::as_ref).map(|namespace| namespace.init());
        let containment = Containment::new(group, status.init, own);
        let connections = Connections::open(Path::new(SOCKET_FILE), starter, containment.clone());
        let connections = connections.map_err(step("open the socket"))?;
        let rules = Rules {
            stop: launch.stop,
            time_limit: launch.time_limit,
            kill_confirmation: launch.kill_confirmation,
            longest_lease: launch.longest_lease,
            dumps: launch.image.is_some(),
        };
        let (ready, imaging) = match Ready::make(launch, &containment, namespace) {
            Ok((ready, imaging)) => (Ok(ready), imaging),
            Err(failure) => (Err(failure), None),
        };
        Ok(Self {
            machine: Machine::new(rules, status),
            ready: Some(ready),
            imaging,
            containment,
            connections,
            signals,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)
                .map_err(step("make a timer"))?,
            keeper: None,
            pump: None,
            word: None,
            companion: None,
            hierarchies,
            cgroup_root,
            finished: false,
        })
    }

    /// Waits for something to happen, and lets it happen.
    fn turn(&mut self) -> Result<(), SuperviseError> {
        self.arm_timer()?;
        self.wait()?;
        // A machine that is busy may leave this process without a turn for seconds. What had happened by now counts
        // before the deadlines that have passed by now: a worker that has ended is not stopped, a lease that was
        // renewed is not over.
        let by_now = now();
        self.take_signal()?;
        if let Some(ended) = self.imaging.as_mut().and_then(|imaging| imaging.turn(self.containment.group())) {
            self.image_ended(ended);
        }
        self.hear_companion();
        let received = self.connections.turn();
        for (number, request) in received.requests {
            self.serve(number, request);
        }
        if received.starter_gone {
            self.happen(Event::Abandoned);
        }
        let effects = self.machine.on(by_now, Event::TimePassed);
        self.perform(effects);
        self.let_hear();
        Ok(())
    }

    fn wait(&self) -> Result<(), SuperviseError> {
        let mut fds = vec![
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        let companion = self.companion.as_ref().and_then(Companion::descriptor);
        fds.extend(companion.map(|channel| PollFd::new(channel, PollFlags::POLLIN)));
        fds.extend(self.connections.interests().into_iter().map(|(fd, flags)| PollFd::new(fd, flags)));
        // Nobody tells when a tree stands still, or when something takes too long.
        let look_again = self.imaging.as_ref().and_then(Imaging::looks_again_in);
        let patience = look_again.map_or(PollTimeout::NONE, PollTimeout::from);
        match poll(&mut fds, patience) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(step("wait")(error)),
        }
    }

    /// A boot-time timer, because the timeouts of `poll` stand still while the machine sleeps.
    fn arm_timer(&self) -> Result<(), SuperviseError> {
        let armed = match self.machine.next_deadline() {
            Some(BootTime(ms)) => {
                let time = TimeSpec::new((ms / 1000).cast_signed(), ((ms % 1000) * 1_000_000).cast_signed());
                // A time in the past fires at once; zero would disarm, and no machine has been up for so short.
                self.timer.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            }
            None => self.timer.unset(),
        };
        armed.map_err(step("set the timer"))
    }

    fn take_signal(&mut self) -> Result<(), SuperviseError> {
        while let Some(info) = self.signals.read_signal().map_err(step("read a signal"))? {
            if info.ssi_signo.cast_signed() == Signal::SIGCHLD as i32 {
                self.reap();
            } else {
                self.happen(Event::Terminated);
            }
        }
        Ok(())
    }

    /// Collects everything that ended: the worker, and what it left to its subreaper.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = reap(libc::WNOHANG) {
            let exit = match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => continue,
            };
            if self.companion_ended(pid, exit) {
                continue;
            }
            if let Some(ended) =
                self.imaging.as_mut().and_then(|imaging| imaging.ended(pid, exit, self.containment.group()))
            {
                self.image_ended(ended);
                continue;
            }
            let status = self.machine.status();
            if status.process.is_some_and(|process| process.pid == pid) {
                let because = self.because(exit);
                self.happen(Event::Exited { exit, because });
            } else if status.exit.is_some() {
                self.perform(vec![Effect::Probe]);
            }
        }
    }

    /// CRIU has ended, or something that it restores.
    fn image_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Noted => {}
            Ended::Stands => self.save_card(),
            Ended::Dumped(outcome) => self.happen(Event::Dumped(outcome)),
            Ended::Snapshotted(snapshot) => self.happen(Event::Snapshotted(snapshot)),
            Ended::Restored(Ok((process, exit))) => {
                self.happen(Event::Started(process));
                if let Some(exit) = exit {
                    let because = self.because(exit);
                    self.happen(Event::Exited { exit, because });
                }
            }
            Ended::Restored(Err(failure)) => self.happen(Event::StartFailed(failure)),
        }
    }

    /// The cause and the message for the end of the worker's first process, where more is known than `exit`.
    fn because(&mut self, exit: Exit) -> Option<(Cause, String)> {
        self.out_of_memory().or_else(|| self.word.as_mut()?.word()?.after(exit))
    }

    fn out_of_memory(&self) -> Option<(Cause, String)> {
        let killed = self.containment.group().memory_kills() > 0;
        killed.then(|| (Cause::OutOfMemory, "killed for using more memory than granted".to_owned()))
    }

    fn serve(&mut self, number: usize, request: Request) {
        let (refused, effects) = match self.machine.on_request(now(), request) {
            Ok(effects) => (None, effects),
            Err(reason) => (Some(reason), Vec::new()),
        };
        self.perform(effects);
        // The end is told by `conclude`, once it is on disk.
        if !self.finished {
            self.connections.answer(number, &Notice { refused, status: self.machine.status().clone() });
        }
    }

    fn happen(&mut self, event: Event) {
        let effects = self.machine.on(now(), event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start => {
                    let started = self.start();
                    self.tell_start(started);
                }
                Effect::Snapshot(number) => {
                    if let Err(why) = self.begin_snapshot(number) {
                        self.happen(Event::Snapshotted(Snapshot { number, image: None, why }));
                    }
                }
                Effect::Dump => {
                    if let Err(why) = self.begin_dump() {
                        self.happen(Event::Dumped(Err(why)));
                    }
                }
                Effect::Rest => self.stand_still(true),
                Effect::GoOn => self.stand_still(false),
                Effect::Signal(signal) => {
                    if let Some(process) = self.machine.status().process {
                        process.signal_group(signal.0);
                    }
                }
                Effect::Kill => {
                    if let Some(imaging) = &self.imaging {
                        imaging.kill();
                    }
                    self.containment.kill();
                }
                Effect::Probe => {
                    let empty = self.containment.is_empty();
                    self.happen(Event::Probed { empty });
                }
                Effect::Publish => self.publish(),
                Effect::Finish => self.finished = true,
            }
        }
    }

    fn stand_still(&self, still: bool) {
        if let Err(error) = self.containment.group().freeze(still) {
            let what = if still { "stand still" } else { "go on" };
            remark!("the worker cannot be made to {what}: {error}: {}", error.source);
        }
    }

    fn publish(&mut self) {
        let status = self.machine.status().clone();
        if status.is_final() {
            return;
        }
        self.connections.tell_all(&Notice { refused: None, status: status.clone() });
        if self.keeper.is_none() {
            self.keeper = Keeper::start(PathBuf::from(".")).inspect_err(|error| remark!("no thread: {error}")).ok();
        }
        if let Some(keeper) = &self.keeper {
            keeper.keep(status);
        }
    }

    /// The end: output first, then the status on disk, then the agents are told, so that what they hear is what a later
    /// agent will find.
    fn conclude(mut self) -> Result<(), SuperviseError> {
        let mut status = self.machine.status().clone();
        let lost = self.pump.take().map_or(0, Pump::finish);
        if lost > 0 {
            status.message = format!("{}; {lost} bytes of its output could not be written", status.message);
        }
        drop(self.ready.take());
        // Where nothing was started, the init of its namespace is still there.
        self.containment.kill();
        self.containment.group().remove();
        if let Some(keeper) = self.keeper.take() {
            keeper.finish();
        }
        keep_image(&mut status);
        let stored = status.store(Path::new(".")).map_err(step("keep the last status"));
        // One that is there makes groups for further workers, and ends after them.
        let is_last = self.connections.are_over();
        self.connections.tell_all(&Notice { refused: None, status });
        if is_last {
            remove_empty_groups(&self.hierarchies, &self.cgroup_root);
        }
        stored
    }
}

/// Flushes the image to disk before its status is reported: after a loss of power the status would name an image of
/// which half is missing. An image that cannot be flushed is taken out of the status.
fn keep_image(status: &mut Status) {
    if status.image.is_none() {
        return;
    }
    let kept = File::open(".").and_then(|folder| Ok(syncfs(&folder)?));
    if let Err(error) = kept {
        status.image = None;
        status.not_saved = format!("the image of its processes cannot be brought to disk: {error}");
    }
}

fn now() -> Now {
    Now { boot: BootTime::now(), unix_ms: unix_millis() }
}
