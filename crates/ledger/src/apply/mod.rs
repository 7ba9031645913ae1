//! Applying log entries: the only place where the ledger changes.
//!
//! Each command is first checked against the state and then carried out; of a refused command
//! nothing is kept but that it was refused, under the id of its request. What an
//! entry changed is collected as events on the way and becomes part of the history.

mod anew;
mod blocks;
mod checkpoints;
mod derived;
mod grant;
mod growth;
pub(crate) mod guard;
mod host;
mod idle;
mod jobs;
mod leases;
mod losses;
mod moves;
mod nodes;
mod offer;
mod queues;
pub(crate) mod quotas;
mod recall;
mod reports;
mod retention;
mod validate;
mod windows;

use std::sync::Arc;

pub use anew::{CORDONED_ANEW, NUMBERS_AHEAD, REVISIONS_AHEAD};

use crate::command::{Command, Outcome, Plan, PlanPart, Request};
use crate::event::{EntryEvents, Event, Touched};
use crate::ids::{JobId, RequestKey};
use crate::level::{self, Level};
use crate::rejection::Rejection;
use crate::state::{AnsweredRequest, State};
use crate::units::{LogTime, Revision};

/// The position of a committed entry: its log index and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPosition {
    /// Its log index.
    pub revision: Revision,
    /// The leader's clock when it wrote the entry; a time before that of an earlier entry is read as that one.
    pub time: LogTime,
}

/// The outcome of a command, or the reason why it changed nothing.
type Applied = Result<Outcome, Rejection>;

impl State {
    /// Applies one log entry and answers one outcome per request, in order. A refused request changes nothing and is
    /// answered [`Outcome::Rejected`]. In debug builds every law is checked afterwards.
    pub fn apply(&mut self, at: EntryPosition, requests: &[Request]) -> Vec<Outcome> {
        self.begin(at);
        let outcomes: Vec<Outcome> = requests.iter().map(|request| self.answer(request)).collect();
        self.remove_expired(requests.len());
        self.finish();
        #[cfg(debug_assertions)]
        if self.revision.0.is_multiple_of(crate::laws::DEBUG_INTERVAL) || crate::laws::is_small(self) {
            let broken = crate::laws::check(self);
            assert!(broken.is_empty(), "laws broken at revision {}: {broken:#?}", self.revision);
        }
        outcomes
    }

    /// Notes an entry without commands, so that the revision follows the log.
    pub fn observe(&mut self, at: EntryPosition) {
        self.begin(at);
        self.finish();
    }

    fn begin(&mut self, at: EntryPosition) {
        self.revision = at.revision;
        self.time = self.time.max(at.time);
    }

    /// Closes the entry: history and digest.
    fn finish(&mut self) {
        self.keep_events();
        self.settle_much();
    }

    fn keep_events(&mut self) {
        if self.pending_events.is_empty() {
            return;
        }
        let events: Arc<[Event]> = std::mem::take(&mut self.pending_events).into();
        let entry = EntryEvents { revision: self.revision, time: self.time, events };
        self.events_held += entry.events.len() as u64;
        self.history.insert_cow(self.revision, entry);
        self.forget_events();
    }

    /// Answers a request once (law L3): a request id seen before gets its first answer again.
    fn answer(&mut self, request: &Request) -> Outcome {
        if let Some(key) = request.key
            && let Some(answered) = self.requests.get(&key.id)
        {
            return match answered.fingerprint == key.fingerprint {
                true if answered.refused => Outcome::Rejected(self.refuse_again(request)),
                true => answered.job.map_or(Outcome::Done, Outcome::Submitted),
                false => Outcome::Rejected(Rejection::RequestIdReused),
            };
        }
        if request.key.is_some_and(|key| self.may_be_forgotten(key.id)) {
            return Outcome::Rejected(Rejection::RequestForgotten);
        }
        match self.carry_out(request) {
            Ok(outcome) => {
                if let Some(key) = request.key.filter(|_| !is_partly_refused(&outcome)) {
                    self.remember(key, &outcome);
                }
                outcome
            }
            Err(rejection) => {
                let refused = Outcome::Rejected(rejection);
                if let Some(key) = request.key {
                    self.remember(key, &refused);
                }
                refused
            }
        }
    }

    /// The refusal of a request that was refused before: for the reason that there is now, or because it was. A copy of
    /// the state judges that, without the events so far, and is thrown away.
    fn refuse_again(&mut self, request: &Request) -> Rejection {
        let so_far = (std::mem::take(&mut self.pending_events), std::mem::take(&mut self.touched));
        let mut judging = self.clone();
        (self.pending_events, self.touched) = so_far;
        judging.carry_out(request).err().unwrap_or(Rejection::RequestRefused)
    }

    /// Remembers the answer to a request.
    fn remember(&mut self, key: RequestKey, outcome: &Outcome) {
        let job = match outcome {
            Outcome::Submitted(job) => Some(*job),
            _ => None,
        };
        let refused = matches!(outcome, Outcome::Rejected(_));
        let (fingerprint, at, revision) = (key.fingerprint, self.time, self.revision);
        let answer = AnsweredRequest { fingerprint, at, revision, job, refused };
        self.requests.insert_cow(key.id, answer);
        self.request_times.insert_cow((self.time, key.id), ());
        self.requests_held += 1;
    }

    fn carry_out(&mut self, request: &Request) -> Applied {
        level::check(&request.command, self.level)?;
        match &request.command {
            Command::RegisterNode { node, cards } => self.register_node(node, cards),
            Command::UpdateCards { node, cards } => self.update_cards(*node, cards),
            Command::SetEligibility { node, eligibility, reason } => self.set_eligibility(*node, *eligibility, reason),
            Command::DrainNode { node, reason, within } => self.drain_node(*node, reason, *within),
            Command::NodeLost { node, epoch } => self.node_lost(*node, *epoch),
            Command::NodeReturned { node, incarnation } => self.node_returned(*node, *incarnation),
            Command::ForgetNode { node } => self.forget_node(*node),
            Command::ConfirmStopped { node } => self.confirm_stopped(*node),
            Command::UpdateCached { node, cached } => self.update_cached(*node, cached),
            Command::SubmitJob { spec, traceparent, secret } => self.submit_job(request, spec, traceparent, *secret),
            Command::CancelJob { job } => self.cancel_job(*job, &request.actor),
            Command::ExpireJob { job, allocation } => self.expire_job(*job, *allocation),
            Command::CloseUntil { whose, windows, time } => self.close_until(whose, windows, *time),
            Command::GrowJob { job, allocation } => self.grow_job(*job, *allocation),
            Command::NoteIdle { job, attempt, since, step } => self.note_idle(*job, *attempt, *since, *step),
            Command::HoldJob { job } => self.hold_job(*job),
            Command::ReleaseJob { job } => self.release_job(*job),
            Command::SuspendJob { job } => self.suspend_job(*job),
            Command::ResumeJob { job } => self.resume_job(*job),
            Command::SetQueue { queue } => self.set_queue(queue),
            Command::RemoveQueue { name } => self.remove_queue(name),
            Command::SetConfig { config, expected } => self.set_config(config, expected.as_deref()),
            Command::CommitPlan { plan } => Ok(self.commit_plan(plan)),
            Command::ReportWorkers { node, reports } => self.report_workers(*node, reports),
            Command::NoteKept { node, kept, gone } => self.note_kept(*node, kept, gone),
            Command::AdvanceMove { id, from, proceed } => self.advance_move(*id, *from, *proceed),
            Command::SettleLeases { changed_at } => self.settle_leases(*changed_at),
            Command::Tick | Command::Drill => Ok(Outcome::Done),
            Command::RaiseLevel { to } => self.raise_level(*to),
        }
    }

    /// Puts a release level in force. It is never lowered.
    fn raise_level(&mut self, to: Level) -> Applied {
        if to <= self.level {
            return Ok(Outcome::Done);
        }
        if self.config.hold_level {
            return Err(Rejection::LevelHeld { in_force: self.level });
        }
        self.level = to;
        self.touched.push(Touched::Config);
        self.pending_events.push(Event::Config);
        Ok(Outcome::Done)
    }

    /// Carries out a plan part by part. Each is validated against the state as it is now: a stale plan can do no harm.
    fn commit_plan(&mut self, plan: &Plan) -> Outcome {
        let parts = plan.parts.iter().map(|part| match part {
            PlanPart::Grant { job, workers, victims } => self.grant(*job, workers, victims).map(Some),
            PlanPart::Evict { job, node } => self.evict(*job, *node).map(|()| None),
            PlanPart::Renumber { card } => self.renumber(*card).map(|()| None),
            PlanPart::Move { job, workers } => self.begin_move(*job, workers).map(Some),
        });
        Outcome::Planned(parts.collect())
    }

    /// The job, or the refusal that says that there is none.
    fn known_job(&self, id: JobId) -> Result<Arc<crate::job::Job>, Rejection> {
        self.jobs.get(&id).cloned().ok_or(Rejection::UnknownJob(id))
    }
}

/// Returns whether a part of a plan was refused, or the plan has none: the answer is not remembered, and sent again the
/// plan may succeed.
fn is_partly_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Planned(parts) if parts.is_empty() || parts.iter().any(Result::is_err))
}
