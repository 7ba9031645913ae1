//! The behaviour of a supervisor, as plain state and a synchronous [`Machine::on`]. It decides; the shell performs.
//!
//! What it guarantees (law L2):
//! * a process is started only after the agent said that the order is durable, at most once, and only under a
//!   valid lease;
//! * nothing of the worker computes after the lease's `kill_at`, whatever the agent does or fails to do;
//! * `Stopped` is said only after a probe found nothing alive; until then a kill is repeated, and called unconfirmed.
//!
//! A worker whose job wants that is dumped before it is told to stop. What cannot be dumped is told to stop as if
//! nobody had tried; the grace counts for both.

mod event;
mod killing;
mod resting;
mod saving;

use planted::Bug;

use super::message::Request;
use super::status::{Cause, Exit, Phase, Status};
use crate::boot::BootTime;
use crate::process::ProcessId;
use crate::worker::{Fence, Lease, StopPolicy, StopSignal};

pub use event::{Effect, Event, Now, Rules};

/// The state of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    rules: Rules,
    status: Status,
    begun: bool,
    /// It is being started; a restore takes a while.
    starting: bool,
    /// It is being dumped, and goes on then.
    snapshotting: bool,
    /// It is being dumped; what it is told when that fails.
    dumping: Option<StopSignal>,
    /// It stands still, until then at most.
    rests_until: Option<BootTime>,
    time_limit_at: Option<BootTime>,
    grace_ends_at: Option<BootTime>,
    killing_since: Option<BootTime>,
    kill_again_at: Option<BootTime>,
}

impl Machine {
    /// A supervisor that has prepared everything and waits for the word to begin.
    #[must_use]
    pub const fn new(rules: Rules, status: Status) -> Self {
        Self {
            rules,
            status,
            begun: false,
            starting: false,
            snapshotting: false,
            dumping: None,
            rests_until: None,
            time_limit_at: None,
            grace_ends_at: None,
            killing_since: None,
            kill_again_at: None,
        }
    }

    #[must_use]
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// The time at which [`Event::TimePassed`] is due next; `None`: no deadline is pending.
    #[must_use]
    pub fn next_deadline(&self) -> Option<BootTime> {
        if self.status.is_final() || !self.is_watched() {
            return None;
        }
        let lease = self.status.lease;
        let deadlines = if self.killing_since.is_some() {
            [self.kill_again_at, None, None]
        } else if self.is_stopping() {
            [self.grace_ends_at, lease.map(|lease| lease.kill_at), None]
        } else {
            [self.time_limit_at, lease.map(|lease| lease.stop_at), self.rests_until]
        };
        deadlines.into_iter().flatten().min()
    }

    /// Takes a request of an agent.
    ///
    /// # Errors
    /// The sentence that tells the agent why it is refused; nothing has changed then.
    pub fn on_request(&mut self, now: Now, request: Request) -> Result<Vec<Effect>, String> {
        match request {
            Request::Status => Ok(Vec::new()),
            Request::Begin => Ok(self.begin(now)),
            Request::Snapshot { number } => {
                let may = self.rules.dumps && self.status.phase == Phase::Running && !self.snapshotting;
                if !may {
                    return Ok(Vec::new());
                }
                let effects = self.awake(vec![Effect::Snapshot(number)]);
                self.snapshotting = true;
                Ok(effects)
            }
            Request::Rest { at_most } => Ok(self.rest(now, at_most)),
            Request::GoOn => Ok(self.go_on()),
            Request::Renew { fence, lease } => {
                let raised = self.pass(fence)?;
                self.renew(now, lease);
                // The lease itself is not kept on disk: it dies with this process, and so does the worker.
                Ok(if raised { vec![Effect::Publish] } else { Vec::new() })
            }
            Request::Stop { fence, policy, cause, save } => {
                self.pass(fence)?;
                Ok(self.stop(now, policy, cause, &format!("told to stop ({cause})"), save))
            }
        }
    }

    /// Takes anything else that happened.
    pub fn on(&mut self, now: Now, event: Event) -> Vec<Effect> {
        if self.status.is_final() {
            return Vec::new();
        }
        match event {
            Event::Started(process) => self.started(now, process),
            Event::StartFailed(failure) => self.start_failed(now, failure),
            Event::Dumped(outcome) => self.dumped(outcome),
            Event::Snapshotted(snapshot) => self.snapshotted(snapshot),
            Event::CardLost(cause, message) => self.card_lost(now, cause, message),
            Event::Exited { exit, because } => self.exited(now, exit, because),
            Event::Probed { empty } => self.probed(now, empty),
            Event::Abandoned if !self.begun => {
                // Not the job's fault, and nothing of it ran: another attempt follows.
                self.never_started(now, Cause::Vanished, "the agent ended before the order was durable".to_owned())
            }
            Event::Abandoned => Vec::new(),
            // Nobody asked for the end of the job: what its program says on the way out is no success of it.
            Event::Terminated => {
                self.stop(now, self.rules.stop, Cause::Ordered, "stopped because the host shuts down", true)
            }
            Event::TimePassed => self.time_passed(now),
        }
    }

    /// Refuses an older fence, remembers a newer one; true when it was newer.
    fn pass(&mut self, fence: Fence) -> Result<bool, String> {
        let highest = self.status.fence;
        if highest.refuses(fence) && !planted::is(Bug::FenceUncheckedAtSupervisor) {
            return Err(format!(
                "term {} and epoch {} are older than term {} and epoch {}, which were seen before",
                fence.term, fence.epoch.0, highest.term, highest.epoch.0
            ));
        }
        self.status.fence = highest.raised_to(fence);
        Ok(self.status.fence != highest)
    }

    fn begin(&mut self, now: Now) -> Vec<Effect> {
        if self.begun || self.status.phase != Phase::Preparing {
            return Vec::new();
        }
        self.begun = true;
        self.status.lease = self.status.lease.map(|lease| self.cut(now, lease));
        if self.status.lease.is_some_and(|lease| lease.stop_at <= now.boot) {
            return self.never_started(now, Cause::LeaseExpired, "the lease had run out before the start".to_owned());
        }
        self.starting = true;
        vec![Effect::Start]
    }

    /// Returns whether deadlines apply: also to what a failed start has left, because that is killed repeatedly.
    const fn is_watched(&self) -> bool {
        self.exists() || self.killing_since.is_some()
    }

    /// Returns whether there is a process, or will be one unless it is killed.
    const fn exists(&self) -> bool {
        self.starting || self.status.process.is_some()
    }

    fn renew(&mut self, now: Now, lease: Lease) {
        let lease = self.cut(now, lease);
        // A worker that needs no lease does not get one by being renewed.
        self.status.lease = self.status.lease.map(|current| current.extended_by(lease));
    }

    /// No lease reaches further than the rules allow, whoever grants it.
    fn cut(&self, now: Now, lease: Lease) -> Lease {
        lease.cut_off_at(now.boot.after(self.rules.longest_lease))
    }

    fn started(&mut self, now: Now, process: ProcessId) -> Vec<Effect> {
        self.starting = false;
        self.status.process = Some(process);
        (self.status.started_boot, self.status.started_unix_ms) = (Some(now.boot), Some(now.unix_ms));
        if self.killing_since.is_some() {
            // Told to stop while it was being restored.
            return vec![Effect::Kill, Effect::Probe];
        }
        self.status.phase = Phase::Running;
        self.time_limit_at = self.rules.time_limit.map(|limit| now.boot.after(limit));
        vec![Effect::Publish]
    }

    fn never_started(&mut self, now: Now, cause: Cause, message: String) -> Vec<Effect> {
        self.status.cause = Some(cause);
        self.status.message = message;
        self.finish(now)
    }

    /// Returns whether the program was told to stop and nothing but its exit is awaited.
    #[must_use]
    pub fn awaits_exit(&self) -> bool {
        self.is_stopping() && self.dumping.is_none() && self.killing_since.is_none()
    }

    fn is_stopping(&self) -> bool {
        matches!(self.status.phase, Phase::Stopping | Phase::Unconfirmed)
    }

    fn stop(&mut self, now: Now, policy: StopPolicy, cause: Cause, message: &str, save: bool) -> Vec<Effect> {
        if self.status.is_final() {
            return Vec::new();
        }
        if !self.exists() {
            return self.never_started(now, cause, format!("{message} before its process was started"));
        }
        if self.is_stopping() {
            return self.hurry(now, policy);
        }
        if self.starting {
            return self.abort(now, cause, format!("{message} before it was restored"));
        }
        if self.status.exit.is_some() {
            // It ended by itself, and what it left behind is being killed.
            return Vec::new();
        }
        self.status.cause = Some(cause);
        self.status.message = message.to_owned();
        self.status.phase = Phase::Stopping;
        self.status.ending_unix_ms = Some(now.unix_ms);
        self.grace_ends_at = Some(now.boot.after(policy.grace));
        if policy.grace.is_zero() {
            let mut effects = vec![Effect::Publish];
            effects.extend(self.kill(now));
            return effects;
        }
        if save && self.rules.dumps {
            self.dumping = Some(policy.signal);
            // One after the other.
            let effects = if self.snapshotting { vec![Effect::Publish] } else { vec![Effect::Dump, Effect::Publish] };
            return self.awake(effects);
        }
        self.awake(vec![Effect::Signal(policy.signal), Effect::Publish])
    }

    /// A second stop may only make it sooner.
    fn hurry(&mut self, now: Now, policy: StopPolicy) -> Vec<Effect> {
        let ends = now.boot.after(policy.grace);
        self.grace_ends_at = Some(self.grace_ends_at.map_or(ends, |before| before.min(ends)));
        self.time_passed(now)
    }

    fn exited(&mut self, now: Now, exit: Exit, because: Option<(Cause, String)>) -> Vec<Effect> {
        self.status.exit = Some(exit);
        self.status.exited_unix_ms = Some(now.unix_ms);
        self.status.ending_unix_ms.get_or_insert(now.unix_ms);
        // What dumps it kills it, and nobody has told it anything: one that ends otherwise came to its own end.
        let by_itself = self.dumping.is_some() && matches!(exit, Exit::Code(_));
        if self.status.cause.is_none() || by_itself {
            let (cause, message) = because.unwrap_or_else(|| (Cause::Exited, describe(exit)));
            self.status.cause = Some(cause);
            self.status.message = message;
        }
        // What dumps it kills it when it is done, and is not disturbed before it has said so.
        if self.dumping.is_some() { Vec::new() } else { vec![Effect::Probe] }
    }

    fn time_passed(&mut self, now: Now) -> Vec<Effect> {
        let due = |deadline: Option<BootTime>| deadline.is_some_and(|deadline| deadline <= now.boot);
        let lease = self.status.lease;
        if !self.is_watched() {
            Vec::new()
        } else if self.killing_since.is_some() {
            if due(self.kill_again_at) { self.kill(now) } else { Vec::new() }
        } else if self.is_stopping() {
            if due(self.grace_ends_at) || due(lease.map(|lease| lease.kill_at)) { self.kill(now) } else { Vec::new() }
        } else if let Some(lease) = lease.filter(|lease| lease.stop_at <= now.boot) {
            let policy = StopPolicy { grace: now.boot.until(lease.kill_at), ..self.rules.stop };
            self.stop(now, policy, Cause::LeaseExpired, "its lease was not renewed in time", true)
        } else if due(self.time_limit_at) {
            self.stop(now, self.rules.stop, Cause::TimeLimit, "it ran longer than its time limit", false)
        } else {
            self.rested(now)
        }
    }

    fn finish(&mut self, now: Now) -> Vec<Effect> {
        self.status.phase = Phase::Stopped;
        self.status.stopped_unix_ms = Some(now.unix_ms);
        vec![Effect::Publish, Effect::Finish]
    }
}

fn describe(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exited with code {code}"),
        Exit::Signal(number) => format!("ended by signal {number}"),
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "lease_model.rs"]
mod lease_model;
