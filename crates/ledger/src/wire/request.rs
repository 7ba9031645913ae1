//! Commands of the log.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::card::{card_from_wire, card_to_wire};
use super::checkpoint::{part_key_from_wire, part_key_to_wire};
use super::field::{
    FieldError, WireEnum, each, enum_from_wire, required, required_enum, wide_from_wire, wide_if_any, wide_to_wire,
};
use super::plan::{plan_from_wire, plan_to_wire, report_from_wire, report_to_wire};
use super::pool::{config_from_wire, config_to_wire, node_from_wire, node_to_wire, queue_from_wire, queue_to_wire};
use super::spec::{spec_from_wire, spec_to_wire};
use super::stored::{self, close_until::Whose, request::Command as Stored};
use super::{FORMAT, WireError};
use crate::command::{Command, Request};
use crate::ids::{AllocationId, JobId, MoveId, NodeId, RequestId, RequestKey};
use crate::level::{self, Level};
use crate::rejection::Rejection;
use crate::standing::millis;
use crate::units::{Epoch, LogTime, Revision};
use crate::window::WindowOf;

/// The name of a command in errors.
const WHAT: &str = "a command of the log";

/// The command as the log keeps it, which every member can read at the level in force.
///
/// # Errors
/// [`Rejection::LevelNotInForce`] when it needs a higher one: nothing that some member cannot read is ever written.
pub fn encode_request(request: &Request, in_force: Level) -> Result<Vec<u8>, Rejection> {
    level::check(&request.command, in_force)?;
    let message = stored::Request {
        format: FORMAT,
        key: request
            .key
            .as_ref()
            .map(|key| stored::RequestKey { id: key.id.0.to_be_bytes().to_vec(), fingerprint: key.fingerprint }),
        actor: request.actor.clone(),
        command: Some(command_to_wire(&request.command)),
    };
    Ok(message.encode_to_vec())
}

/// Reads a command that [`encode_request`] of this or an older release wrote.
///
/// # Errors
/// [`WireError`] when it comes from a newer release or is damaged; it is never taken in part (law L7).
pub fn decode_request(bytes: &[u8]) -> Result<Request, WireError> {
    let message = stored::Request::decode(bytes).map_err(|source| WireError::Malformed { what: WHAT, source })?;
    if message.format > FORMAT {
        return Err(WireError::UnknownFormat { what: WHAT, found: message.format });
    }
    // The decoder drops fields that it does not know; what it kept is then shorter than what it was given.
    if message.encoded_len() != bytes.len() {
        return Err(WireError::UnknownContent { what: WHAT });
    }
    request_from_wire(message).map_err(|field| WireError::of(WHAT, field))
}

fn request_from_wire(message: stored::Request) -> Result<Request, FieldError> {
    if message.format == 0 {
        return Err(FieldError::missing("format"));
    }
    let key = message
        .key
        .map(|key| {
            let id = RequestId(wide_from_wire("key.id", &key.id)?);
            Ok(RequestKey { id, fingerprint: key.fingerprint })
        })
        .transpose()?;
    let command = command_from_wire(required("command", message.command)?).map_err(|error| error.under("command"))?;
    Ok(Request { key, actor: message.actor, command })
}

fn command_to_wire(command: &Command) -> Stored {
    match command {
        Command::RegisterNode { node, cards } => Stored::RegisterNode(stored::RegisterNode {
            node: Some(node_to_wire(node)),
            cards: cards.iter().map(card_to_wire).collect(),
        }),
        Command::UpdateCards { node, cards } => Stored::UpdateCards(stored::UpdateCards {
            node_id: node.0,
            cards: cards.iter().map(card_to_wire).collect(),
        }),
        Command::SetEligibility { node, eligibility, reason } => Stored::SetEligibility(stored::SetEligibility {
            node_id: node.0,
            eligibility: eligibility.to_wire(),
            reason: reason.clone(),
        }),
        Command::DrainNode { node, reason, within } => {
            Stored::DrainNode(stored::DrainNode { node_id: node.0, reason: reason.clone(), within_ms: millis(*within) })
        }
        Command::NodeLost { node, epoch } => Stored::NodeLost(stored::NodeLost { node_id: node.0, epoch: epoch.0 }),
        Command::NodeReturned { node, incarnation } => {
            Stored::NodeReturned(stored::NodeReturned { node_id: node.0, incarnation: *incarnation })
        }
        Command::ForgetNode { node } => Stored::ForgetNode(stored::ForgetNode { node_id: node.0 }),
        Command::ConfirmStopped { node } => Stored::ConfirmStopped(stored::ConfirmStopped { node_id: node.0 }),
        Command::UpdateCached { node, cached } => {
            Stored::UpdateCached(stored::UpdateCached { node_id: node.0, cached: cached.iter().cloned().collect() })
        }
        Command::SubmitJob { spec, traceparent, secret } => Stored::SubmitJob(stored::SubmitJob {
            spec: Some(spec_to_wire(spec)),
            traceparent: traceparent.clone(),
            secret: wide_to_wire(*secret),
        }),
        Command::CancelJob { job } => Stored::CancelJob(stored::CancelJob { job_id: job.0 }),
        Command::ExpireJob { job, allocation } => {
            Stored::ExpireJob(stored::ExpireJob { job_id: job.0, allocation_id: allocation.0 })
        }
        Command::CloseUntil { whose, windows, time } => Stored::CloseUntil(stored::CloseUntil {
            windows: windows.clone(),
            whose: Some(match whose {
                WindowOf::Queue(name) => Whose::Queue(name.clone()),
                WindowOf::Job(job) => Whose::JobId(job.0),
            }),
            time_ms: time.0,
        }),
        Command::GrowJob { job, allocation } => {
            Stored::GrowJob(stored::GrowJob { job_id: job.0, allocation_id: allocation.0 })
        }
        Command::NoteIdle { job, attempt, since, step } => Stored::NoteIdle(stored::NoteIdle {
            job_id: job.0,
            attempt: *attempt,
            since_ms: since.0,
            step: step.map_or(0, WireEnum::to_wire),
        }),
        Command::HoldJob { job } => Stored::HoldJob(stored::HoldJob { job_id: job.0 }),
        Command::ReleaseJob { job } => Stored::ReleaseJob(stored::ReleaseJob { job_id: job.0 }),
        Command::SuspendJob { job } => Stored::SuspendJob(stored::SuspendJob { job_id: job.0 }),
        Command::ResumeJob { job } => Stored::ResumeJob(stored::ResumeJob { job_id: job.0 }),
        Command::SetQueue { queue } => Stored::SetQueue(stored::SetQueue { queue: Some(queue_to_wire(queue)) }),
        Command::RemoveQueue { name } => Stored::RemoveQueue(stored::RemoveQueue { name: name.clone() }),
        Command::SetConfig { config, expected } => Stored::SetConfig(stored::SetConfig {
            config: Some(config_to_wire(config)),
            expected: expected.as_deref().map(config_to_wire),
        }),
        Command::CommitPlan { plan } => Stored::CommitPlan(plan_to_wire(plan)),
        Command::ReportWorkers { node, reports } => Stored::ReportWorkers(stored::ReportWorkers {
            node_id: node.0,
            reports: reports.iter().map(report_to_wire).collect(),
        }),
        Command::NoteKept { node, kept, gone } => Stored::NoteKept(stored::NoteKept {
            node_id: node.0,
            kept: kept.iter().map(part_key_to_wire).collect(),
            gone: gone.iter().map(part_key_to_wire).collect(),
        }),
        Command::AdvanceMove { id, from, proceed } => {
            Stored::AdvanceMove(stored::AdvanceMove { move_id: id.0, from: from.to_wire(), proceed: *proceed })
        }
        Command::SettleLeases { changed_at } => Stored::SettleLeases(stored::SettleLeases { changed_at: changed_at.0 }),
        Command::Tick => Stored::Tick(stored::Tick {}),
        Command::Drill => Stored::Drill(stored::Drill {}),
        Command::RaiseLevel { to } => Stored::RaiseLevel(stored::RaiseLevel { to: to.number() }),
    }
}

fn command_from_wire(command: Stored) -> Result<Command, FieldError> {
    Ok(match command {
        Stored::RegisterNode(register) => Command::RegisterNode {
            node: node_from_wire(required("node", register.node)?),
            cards: each("cards", register.cards, card_from_wire)?,
        },
        Stored::UpdateCards(update) => {
            Command::UpdateCards { node: NodeId(update.node_id), cards: each("cards", update.cards, card_from_wire)? }
        }
        Stored::SetEligibility(set) => Command::SetEligibility {
            node: NodeId(set.node_id),
            eligibility: required_enum("eligibility", set.eligibility)?,
            reason: set.reason,
        },
        Stored::DrainNode(drain) => Command::DrainNode {
            node: NodeId(drain.node_id),
            reason: drain.reason,
            within: Duration::from_millis(drain.within_ms),
        },
        Stored::NodeLost(lost) => Command::NodeLost { node: NodeId(lost.node_id), epoch: Epoch(lost.epoch) },
        Stored::NodeReturned(returned) => {
            Command::NodeReturned { node: NodeId(returned.node_id), incarnation: returned.incarnation }
        }
        Stored::ForgetNode(forget) => Command::ForgetNode { node: NodeId(forget.node_id) },
        Stored::ConfirmStopped(confirm) => Command::ConfirmStopped { node: NodeId(confirm.node_id) },
        Stored::UpdateCached(update) => {
            Command::UpdateCached { node: NodeId(update.node_id), cached: update.cached.into_iter().collect() }
        }
        Stored::SubmitJob(submit) => Command::SubmitJob {
            spec: Arc::new(spec_from_wire(required("spec", submit.spec)?).map_err(|error| error.under("spec"))?),
            traceparent: submit.traceparent,
            secret: wide_if_any("secret", &submit.secret)?,
        },
        Stored::CancelJob(cancel) => Command::CancelJob { job: JobId(cancel.job_id) },
        Stored::ExpireJob(expire) => {
            Command::ExpireJob { job: JobId(expire.job_id), allocation: AllocationId(expire.allocation_id) }
        }
        Stored::CloseUntil(close) => Command::CloseUntil {
            whose: match required("whose", close.whose)? {
                Whose::Queue(name) => WindowOf::Queue(name),
                Whose::JobId(job) => WindowOf::Job(JobId(job)),
            },
            windows: close.windows,
            time: LogTime(close.time_ms),
        },
        Stored::GrowJob(grow) => {
            Command::GrowJob { job: JobId(grow.job_id), allocation: AllocationId(grow.allocation_id) }
        }
        Stored::NoteIdle(note) => Command::NoteIdle {
            job: JobId(note.job_id),
            attempt: note.attempt,
            since: LogTime(note.since_ms),
            step: enum_from_wire("step", note.step)?,
        },
        Stored::HoldJob(hold) => Command::HoldJob { job: JobId(hold.job_id) },
        Stored::ReleaseJob(release) => Command::ReleaseJob { job: JobId(release.job_id) },
        Stored::SuspendJob(suspend) => Command::SuspendJob { job: JobId(suspend.job_id) },
        Stored::ResumeJob(resume) => Command::ResumeJob { job: JobId(resume.job_id) },
        Stored::SetQueue(set) => Command::SetQueue {
            queue: queue_from_wire(required("queue", set.queue)?).map_err(|error| error.under("queue"))?,
        },
        Stored::RemoveQueue(remove) => Command::RemoveQueue { name: remove.name },
        Stored::SetConfig(set) => Command::SetConfig {
            config: config_from_wire(&required("config", set.config)?).map_err(|error| error.under("config"))?,
            expected: match set.expected {
                Some(expected) => Some(Box::new(config_from_wire(&expected).map_err(|error| error.under("expected"))?)),
                None => None,
            },
        },
        Stored::CommitPlan(plan) => Command::CommitPlan { plan: plan_from_wire(plan)? },
        Stored::ReportWorkers(report) => Command::ReportWorkers {
            node: NodeId(report.node_id),
            reports: each("reports", report.reports, report_from_wire)?,
        },
        Stored::NoteKept(note) => Command::NoteKept {
            node: NodeId(note.node_id),
            kept: each("kept", note.kept, part_key_from_wire)?,
            gone: each("gone", note.gone, part_key_from_wire)?,
        },
        Stored::AdvanceMove(advance) => Command::AdvanceMove {
            id: MoveId(advance.move_id),
            from: required_enum("from", advance.from)?,
            proceed: advance.proceed,
        },
        Stored::SettleLeases(settle) => Command::SettleLeases { changed_at: Revision(settle.changed_at) },
        Stored::Tick(stored::Tick {}) => Command::Tick,
        Stored::Drill(stored::Drill {}) => Command::Drill,
        Stored::RaiseLevel(stored::RaiseLevel { to }) => {
            let level = Level::from_number(to).ok_or_else(|| FieldError::unknown_level("to", to))?;
            Command::RaiseLevel { to: level }
        }
    })
}
