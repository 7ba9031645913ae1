//! The task beside each worker: it speaks with the supervisor, and searches for what is left when that is gone.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::folder::WorkerFolder;
use super::launch::{LaunchError, Launcher, Prepared};
use super::socket::{connect, send};
use super::straggler::Straggler;
use super::sweep::{Swept, sweep};
use crate::boot::{BootTime, unix_millis};
use crate::checkpoints::{Hindrance, Saver};
use crate::host::{Line, Wanted, Wishes};
use crate::node::{CheckpointNews, LaunchOrder};
use crate::process::ProcessId;
use crate::supervisor::message::{Inbox, Notice, Request};
use crate::supervisor::status::{Cause, Phase, Status};

/// Wait before an unconfirmed kill is tried again, or a supervisor that cannot be reached is called again.
const AGAIN: Duration = Duration::from_millis(500);
/// Wait before a supervisor is started ahead of the next worker, so that it takes nothing from the one that starts now.
const SPARE_AFTER: Duration = Duration::from_millis(50);
/// The longest time until a supervisor sends its first message.
const FIRST_WORD: Duration = Duration::from_secs(60);
/// Interval of the checks whether the supervisor has sent its first message and acts on its deadline.
const WATCHDOG: Duration = Duration::from_secs(1);

pub struct Link {
    pub folder: WorkerFolder,
    /// Its control group, below each hierarchy's root.
    pub cgroup: String,
    /// To the node.
    pub line: Line,
    /// The longest time of one round of killing before it is called unconfirmed.
    pub patience: Duration,
    /// The saver of its checkpoints, where its job has some.
    pub(crate) saver: Option<Saver>,
}

impl Link {
    /// Launches the worker and stays with it to its end.
    pub async fn launch(mut self, launcher: Launcher, order: LaunchOrder) {
        let supervisor = self.run(&launcher, &order).await;
        self.release(&launcher, supervisor).await;
    }

    /// Launches the worker and follows it until it is over; answers its supervisor, where there was one.
    async fn run(&mut self, launcher: &Launcher, order: &LaunchOrder) -> Option<Straggler> {
        let began = unix_millis();
        self.line.status.ordered_unix_ms = Some(began);
        match launcher.prepare(order, began).await {
            Ok(Prepared { child, stream }) => {
                if !(self.has_order(launcher).await && self.has_checkpoint(launcher, order).await) {
                    // A supervisor whose starter goes away without the word to begin starts nothing, and ends.
                    drop(stream);
                    self.tell().await;
                    return Some(Straggler::Own(child));
                }
                let status = &self.line.status;
                let owner = launcher.owner_of(status.worker);
                let node = self.line.node.clone();
                self.saver = Saver::of(&launcher.shelf, &self.folder, status, &order.order, owner, node);
                let spare = launcher.clone();
                tokio::spawn(async move {
                    sleep(SPARE_AFTER).await;
                    spare.make_spare().await;
                });
                let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
                Some(self.follow_own(child, stream).await)
            }
            // Somebody ordered what an earlier agent had begun: it is found, or searched for, and never begun again.
            Err(LaunchError::StartedBefore) => {
                tracing::warn!(worker = %self.line.status.worker, "a worker that was here before is ordered to run");
                self.follow_earlier().await
            }
            Err(error) => {
                self.cannot_start(&error);
                self.tell().await;
                None
            }
        }
    }

    /// Finds the worker of an earlier agent and stays with it to its end.
    pub async fn adopt(mut self, launcher: Launcher) {
        let worker = self.line.status.worker;
        launcher.restore_slices(worker, self.line.status.job).await;
        if let Ok(Some(order)) = self.folder.order() {
            let (owner, node) = (launcher.owner_of(worker), self.line.node.clone());
            self.saver = Saver::of(&launcher.shelf, &self.folder, &self.line.status, &order, owner, node);
            self.may_save();
            // Before another image is asked for: the newest may still have to be kept.
            if let Some(saver) = &mut self.saver {
                saver.heard(&self.line.status);
            }
        }
        let supervisor = self.follow_earlier().await;
        self.release(&launcher, supervisor).await;
    }

    /// Frees what the worker held, now that it is over, and stays with its supervisor until that is gone.
    async fn release(&self, launcher: &Launcher, supervisor: Option<Straggler>) {
        let worker = self.line.status.worker;
        launcher.release_slices(worker).await;
        if let Some(supervisor) = supervisor {
            supervisor.see_off(worker, self.patience).await;
        }
    }

    /// Waits until the order is on disk; answers whether it is. Without it the worker is never begun.
    async fn has_order(&mut self, launcher: &Launcher) -> bool {
        let kept = launcher.keep_order(self.line.status.worker).await;
        kept.inspect_err(|error| self.cannot_start(error)).is_ok()
    }

    /// Brings the checkpoint that the worker goes on from; answers whether it can be started. It cannot when the
    /// checkpoint is not to be had, or when it was told to stop meanwhile.
    async fn has_checkpoint(&mut self, launcher: &Launcher, order: &LaunchOrder) -> bool {
        let (cause, message) = tokio::select! {
            brought = launcher.bring_checkpoint(order) => match brought {
                Ok(()) => return true,
                Err(unusable) => {
                    let worker = order.worker;
                    tracing::warn!(%worker, error = %unusable, "a worker cannot go on from its checkpoint");
                    let cause = match unusable.why {
                        Hindrance::Node => Cause::NodeFault,
                        why => {
                            let for_good = why == Hindrance::Gone;
                            self.line.tell_of_checkpoint(CheckpointNews::Unusable { for_good }).await;
                            Cause::StartFailed
                        }
                    };
                    (cause, unusable.to_string())
                }
            },
            cause = stopped(&mut self.line.wanted) => (cause, "it was stopped before it was started".to_owned()),
        };
        self.never_started(cause, message);
        false
    }

    fn cannot_start(&mut self, error: &LaunchError) {
        tracing::warn!(%error, worker = %self.line.status.worker, "a worker cannot be started");
        self.never_started(error.cause(), error.to_string());
    }

    fn never_started(&mut self, cause: Cause, message: String) {
        let status = &mut self.line.status;
        (status.phase, status.cause, status.message) = (Phase::Stopped, Some(cause), message);
        status.stopped_unix_ms = Some(unix_millis());
    }

    /// Lets a program that runs connect to its control socket.
    fn may_save(&mut self) {
        if let Some(saver) = self.saver.as_mut().filter(|_| self.line.status.phase == Phase::Running) {
            saver.begin(self.line.status.ran(BootTime::now()));
        }
    }

    /// Tells the node how the worker stands. Its end is told when what it saved is kept.
    async fn tell(&mut self) {
        self.may_save();
        if let Some(saver) = &mut self.saver {
            saver.heard(&self.line.status);
        }
        if self.line.status.is_final()
            && let Some(saver) = self.saver.take()
            && let Err(error) = saver.finish(&self.line.status, self.line.wanted.clone()).await
        {
            tracing::error!(worker = %self.line.status.worker, %error, "what a worker saved at its end is not kept");
            self.line.status.not_saved = format!("what it saved is not kept: {error}");
        }
        self.line.tell().await;
    }

    /// Follows the worker of a supervisor that this agent has started until it is over; answers the supervisor.
    async fn follow_own(&mut self, mut child: Child, stream: io::Result<UnixStream>) -> Straggler {
        match stream {
            Ok(stream) => {
                if !self.follow(stream, true).await {
                    // Nothing of the job was begun; should the search find something, that counts.
                    self.line.status.cause = Some(Cause::NodeFault);
                    self.line.status.message = "its supervisor said nothing".to_owned();
                    // It may be over already.
                    let _ = child.start_kill();
                }
            }
            Err(error) => tracing::warn!(%error, worker = %self.line.status.worker, "no socket to the supervisor"),
        }
        // It may have cut this agent off and still be at work, and it may have said the end unheard and stay.
        self.conclude().await;
        Straggler::Own(child)
    }

    /// Follows a worker that an earlier agent has started until it is over; answers its supervisor, if that is known.
    async fn follow_earlier(&mut self) -> Option<Straggler> {
        self.follow_by_socket().await;
        self.conclude().await;
        Straggler::of(&self.line.status)
    }

    /// Connects as long as there is someone to connect to.
    async fn follow_by_socket(&mut self) {
        while let Ok(stream) = connect(&self.folder).await {
            let heard = self.follow(stream, false).await;
            if self.line.status.is_final() {
                return;
            }
            if !heard {
                // It does not let this agent in, or cannot be understood: that will not change at once.
                sleep(AGAIN).await;
            }
        }
    }

    /// Speaks with the supervisor until the worker is over or the connection ends. The lease goes before the word to
    /// begin: on a busy machine the one that the worker was launched with may be over by now. Answers whether the
    /// supervisor said something.
    async fn follow(&mut self, mut stream: UnixStream, begins: bool) -> bool {
        let began = BootTime::now();
        let mut heard = false;
        let mut told = self.line.wanted.newest();
        let mut requests = told.news(Wanted::default());
        requests.push(if begins { Request::Begin } else { Request::Status });
        for request in requests {
            if send(&mut stream, &request).await.is_err() {
                return heard;
            }
        }
        let mut inbox = Inbox::default();
        let mut buffer = [0; 4096];
        let mut watchdog = interval(WATCHDOG);
        watchdog.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => match read {
                    Ok(length) if length > 0 => {
                        inbox.push(&buffer[..length]);
                        match self.take_notices(&mut inbox).await {
                            Some(notices) => heard |= notices > 0,
                            None => return heard,
                        }
                        // Nothing comes after the end. The supervisor may still hold its socket open.
                        if self.line.status.is_final() {
                            return heard;
                        }
                    }
                    _ => return heard,
                },
                wanted = self.line.wanted.next() => {
                    for request in wanted.news(told) {
                        if send(&mut stream, &request).await.is_err() {
                            return heard;
                        }
                    }
                    told = wanted;
                }
                number = due(self.saver.as_ref(), &self.line.status) => {
                    let asks = match &mut self.saver {
                        Some(saver) => saver.may_ask(number).await,
                        None => false,
                    };
                    if asks && send(&mut stream, &Request::Snapshot { number }).await.is_err() {
                        return heard;
                    }
                }
                _ = watchdog.tick() => {
                    if self.is_overdue(told) || (!heard && began.after(FIRST_WORD) < BootTime::now()) {
                        self.kill_supervisor();
                        return heard;
                    }
                }
            }
        }
    }

    /// Returns whether the worker's last deadline has passed by more than `patience` and the supervisor has not acted
    /// on it: the supervisor is itself stopped or stuck.
    fn is_overdue(&self, told: Wanted) -> bool {
        // Those that need no lease are never given one.
        let leases = [self.line.status.lease, told.renew.map(|(_, lease)| lease)];
        let deadline = leases.into_iter().flatten().map(|lease| lease.kill_at).max();
        let acts = matches!(self.line.status.phase, Phase::Unconfirmed | Phase::Stopped);
        !acts && deadline.is_some_and(|deadline| deadline.after(self.patience) < BootTime::now())
    }

    /// Its worker dies with it; what else is left is found by the search that follows.
    fn kill_supervisor(&self) {
        tracing::error!(worker = %self.line.status.worker, "the supervisor does not act on its deadline; it is killed");
        if let Some(Err(error)) = self.line.status.supervisor.map(ProcessId::kill) {
            tracing::error!(worker = %self.line.status.worker, %error, "the supervisor cannot be killed");
        }
    }

    /// Takes what was said; answers how many notices that were, or nothing when it cannot be understood.
    async fn take_notices(&mut self, inbox: &mut Inbox) -> Option<u32> {
        let mut notices = 0;
        loop {
            match inbox.take::<Notice>() {
                Ok(Some(notice)) => {
                    if let Some(reason) = notice.refused {
                        tracing::warn!(worker = %self.line.status.worker, reason, "the supervisor refused");
                    }
                    notices += 1;
                    let news = notice.status != self.line.status;
                    self.line.status = notice.status;
                    if news {
                        self.tell().await;
                    }
                }
                Ok(None) => return Some(notices),
                Err(error) => {
                    tracing::warn!(worker = %self.line.status.worker, %error, "the supervisor speaks another language");
                    return None;
                }
            }
        }
    }

    /// Finds out how the worker ended where no supervisor is at work any more: by what is on disk, or else by a search.
    async fn conclude(&mut self) {
        while !self.line.status.is_final() {
            let (folder, cgroup) = (self.folder.clone(), self.cgroup.clone());
            let (known, patience) = (self.line.status.clone(), self.patience);
            let swept = tokio::task::spawn_blocking(move || sweep(&folder, &cgroup, known, patience)).await;
            match swept.map_err(io::Error::other).flatten() {
                Ok(Swept::Over(status)) => {
                    self.line.status = *status;
                    self.tell().await;
                }
                Ok(Swept::Unconfirmed(status)) => {
                    self.unconfirmed(*status).await;
                    sleep(AGAIN).await;
                }
                Ok(Swept::Supervised) => {
                    self.follow_by_socket().await;
                    sleep(AGAIN).await;
                }
                Err(error) => {
                    let message = format!("its folder cannot be searched: {error}");
                    let status = Status { phase: Phase::Unconfirmed, message, ..self.line.status.clone() };
                    self.unconfirmed(status).await;
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Nobody can say that the worker is over: what cannot be looked at is not stopped.
    async fn unconfirmed(&mut self, status: Status) {
        if status != self.line.status {
            let (worker, message) = (status.worker, &status.message);
            tracing::error!(%worker, message, "a stop cannot be confirmed; its blocks must not be granted again");
            self.line.status = status;
            self.tell().await;
        }
    }
}

/// Waits until a worker that runs is to be dumped; answers under which number.
async fn due(saver: Option<&Saver>, status: &Status) -> u64 {
    match saver.filter(|_| status.phase == Phase::Running) {
        Some(saver) => saver.due(status.started_unix_ms).await,
        None => std::future::pending().await,
    }
}

/// Waits until the worker is told to stop; answers why.
async fn stopped(wanted: &mut Wishes) -> Cause {
    wanted.until(|wanted| wanted.stop.is_some()).await.stop.map_or(Cause::Ordered, |(_, _, cause)| cause)
}
