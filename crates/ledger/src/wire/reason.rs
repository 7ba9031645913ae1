//! Reasons of jobs' states as snapshots keep them.

use super::checkpoint::{key_from_wire, key_to_wire};
use super::field::{FieldError, FieldProblem, required};
use super::stored::{self, ReasonKind};
use crate::ids::{JobId, NodeId};
use crate::reason::Reason;

pub(super) fn reason_to_wire(reason: &Reason) -> stored::Reason {
    let kind = match reason {
        Reason::Submitted => ReasonKind::Submitted,
        Reason::Held => ReasonKind::Held,
        Reason::Backoff => ReasonKind::Backoff,
        Reason::Queued => ReasonKind::Queued,
        Reason::Granted => ReasonKind::Granted,
        Reason::WaitingForPreempted => ReasonKind::WaitingForPreempted,
        Reason::Started => ReasonKind::Started,
        Reason::SuspendedByUser => ReasonKind::SuspendedByUser,
        Reason::Preempted { .. } => ReasonKind::Preempted,
        Reason::Drained { .. } => ReasonKind::Drained,
        Reason::NodeLost { .. } => ReasonKind::NodeLost,
        Reason::NodeDisconnected { .. } => ReasonKind::NodeDisconnected,
        Reason::Moving => ReasonKind::Moving,
        Reason::MoveFailed => ReasonKind::MoveFailed,
        Reason::Exited => ReasonKind::Exited,
        Reason::NonZeroExit { .. } => ReasonKind::NonZeroExit,
        Reason::Signalled { .. } => ReasonKind::Signalled,
        Reason::StartFailed { .. } => ReasonKind::StartFailed,
        Reason::NodeFault { .. } => ReasonKind::NodeFault,
        Reason::OutOfMemory => ReasonKind::OutOfMemory,
        Reason::WorkerVanished => ReasonKind::WorkerVanished,
        Reason::TimeLimit => ReasonKind::TimeLimit,
        Reason::Cancelled { .. } => ReasonKind::Cancelled,
        Reason::HostLost => ReasonKind::HostLost,
        Reason::OutsideWindow => ReasonKind::OutsideWindow,
        Reason::Growing => ReasonKind::Growing,
        Reason::NotRestored { .. } => ReasonKind::NotRestored,
        Reason::IdleNoticed => ReasonKind::IdleNoticed,
        Reason::IdlePreemptible => ReasonKind::IdlePreemptible,
        Reason::IdleSuspended => ReasonKind::IdleSuspended,
        Reason::IdleReleased => ReasonKind::IdleReleased,
        Reason::CheckpointDamaged { .. } => ReasonKind::CheckpointDamaged,
    };
    let mut message = stored::Reason { kind: kind.into(), ..stored::Reason::default() };
    match reason {
        Reason::Preempted { beneficiary } => message.job_id = beneficiary.0,
        Reason::Drained { node } | Reason::NodeLost { node } | Reason::NodeDisconnected { node } => {
            message.node_id = node.0;
        }
        Reason::NonZeroExit { code: number } | Reason::Signalled { signal: number } => message.number = *number,
        Reason::NodeFault { node, message: text } => {
            message.node_id = node.0;
            message.text.clone_from(text);
        }
        Reason::StartFailed { message: text }
        | Reason::NotRestored { message: text }
        | Reason::Cancelled { by: text } => message.text.clone_from(text),
        Reason::CheckpointDamaged { checkpoint, message: text } => {
            message.checkpoint = Some(key_to_wire(*checkpoint));
            message.text.clone_from(text);
        }
        _ => {}
    }
    message
}

pub(super) fn reason_from_wire(reason: stored::Reason) -> Result<Reason, FieldError> {
    let kind = ReasonKind::try_from(reason.kind).map_err(|_| FieldError {
        field: "kind".to_owned(),
        problem: FieldProblem::UnknownValue { number: reason.kind, known: &["those of reason.rs"] },
    })?;
    let node = NodeId(reason.node_id);
    Ok(match kind {
        ReasonKind::Unspecified => return Err(FieldError::missing("kind")),
        ReasonKind::Submitted => Reason::Submitted,
        ReasonKind::Held => Reason::Held,
        ReasonKind::Backoff => Reason::Backoff,
        ReasonKind::Queued => Reason::Queued,
        ReasonKind::Granted => Reason::Granted,
        ReasonKind::WaitingForPreempted => Reason::WaitingForPreempted,
        ReasonKind::Started => Reason::Started,
        ReasonKind::SuspendedByUser => Reason::SuspendedByUser,
        ReasonKind::Preempted => Reason::Preempted { beneficiary: JobId(reason.job_id) },
        ReasonKind::Drained => Reason::Drained { node },
        ReasonKind::NodeLost => Reason::NodeLost { node },
        ReasonKind::NodeDisconnected => Reason::NodeDisconnected { node },
        ReasonKind::Moving => Reason::Moving,
        ReasonKind::MoveFailed => Reason::MoveFailed,
        ReasonKind::Exited => Reason::Exited,
        ReasonKind::NonZeroExit => Reason::NonZeroExit { code: reason.number },
        ReasonKind::Signalled => Reason::Signalled { signal: reason.number },
        ReasonKind::StartFailed => Reason::StartFailed { message: reason.text },
        ReasonKind::NodeFault => Reason::NodeFault { node, message: reason.text },
        ReasonKind::OutOfMemory => Reason::OutOfMemory,
        ReasonKind::WorkerVanished => Reason::WorkerVanished,
        ReasonKind::TimeLimit => Reason::TimeLimit,
        ReasonKind::Cancelled => Reason::Cancelled { by: reason.text },
        ReasonKind::HostLost => Reason::HostLost,
        ReasonKind::OutsideWindow => Reason::OutsideWindow,
        ReasonKind::Growing => Reason::Growing,
        ReasonKind::NotRestored => Reason::NotRestored { message: reason.text },
        ReasonKind::IdleNoticed => Reason::IdleNoticed,
        ReasonKind::IdlePreemptible => Reason::IdlePreemptible,
        ReasonKind::IdleSuspended => Reason::IdleSuspended,
        ReasonKind::IdleReleased => Reason::IdleReleased,
        ReasonKind::CheckpointDamaged => Reason::CheckpointDamaged {
            checkpoint: key_from_wire(required("checkpoint", reason.checkpoint)?),
            message: reason.text,
        },
    })
}
