//! The remembered events as snapshots keep them.

use super::checkpoint::{key_from_wire, key_to_wire};
use super::field::{FieldError, WireEnum, each, enum_from_wire, required, required_enum};
use super::reason::{reason_from_wire, reason_to_wire};
use super::stored::{self, event::Event as Stored};
use crate::event::{EntryEvents, Event};
use crate::ids::{AllocationId, CardId, JobId, MoveId, NodeId, Rank};
use crate::units::{LogTime, Revision};

pub(super) fn entry_to_wire(entry: &EntryEvents) -> stored::EntryEvents {
    stored::EntryEvents {
        revision: entry.revision.0,
        time_ms: entry.time.0,
        events: entry.events.iter().map(|event| stored::Event { event: Some(event_to_wire(event)) }).collect(),
    }
}

pub(super) fn entry_from_wire(entry: stored::EntryEvents) -> Result<EntryEvents, FieldError> {
    let events = each("events", entry.events, |event| event_from_wire(required("event", event.event)?))?;
    Ok(EntryEvents { revision: Revision(entry.revision), time: LogTime(entry.time_ms), events: events.into() })
}

fn event_to_wire(event: &Event) -> Stored {
    match event {
        Event::Job { job, from, to, reason, allocation } => Stored::Job(stored::JobChanged {
            job_id: job.0,
            from: from.map_or(0, WireEnum::to_wire),
            to: to.to_wire(),
            reason: Some(reason_to_wire(reason)),
            allocation_id: allocation.map(|id| id.0),
        }),
        Event::JobRemoved { job } => Stored::JobRemoved(job.0),
        Event::Worker { job, allocation, rank, node, state } => Stored::Worker(stored::WorkerChanged {
            job_id: job.0,
            allocation_id: allocation.0,
            rank: rank.0,
            node_id: node.0,
            state: state.to_wire(),
        }),
        Event::AllocationReleased { job, allocation } => {
            Stored::AllocationReleased(stored::AllocationReleased { job_id: job.0, allocation_id: allocation.0 })
        }
        Event::Node { node, state, eligibility } => Stored::Node(stored::NodeChanged {
            node_id: node.0,
            state: state.to_wire(),
            eligibility: eligibility.to_wire(),
        }),
        Event::Card { card } => Stored::Card(stored::CardChanged { node_id: card.node.0, card_index: card.index }),
        Event::Queue { name } => Stored::Queue(name.clone()),
        Event::Config => Stored::Config(stored::ConfigChanged {}),
        Event::Move { id, job, in_progress } => {
            Stored::Move(stored::MoveChanged { move_id: id.0, job_id: job.0, in_progress: *in_progress })
        }
        Event::Quarantined { node, job, allocation, rank, message } => Stored::Quarantined(stored::Quarantined {
            node_id: node.0,
            job_id: job.0,
            allocation_id: allocation.0,
            rank: rank.0,
            message: message.clone(),
        }),
        Event::CheckpointSkipped { job, checkpoint, newest_left, message } => {
            Stored::CheckpointSkipped(stored::CheckpointSkipped {
                job_id: job.0,
                checkpoint: Some(key_to_wire(*checkpoint)),
                newest_left: newest_left.map(key_to_wire),
                message: message.clone(),
            })
        }
    }
}

fn event_from_wire(event: Stored) -> Result<Event, FieldError> {
    Ok(match event {
        Stored::Job(job) => Event::Job {
            job: JobId(job.job_id),
            from: enum_from_wire("from", job.from)?,
            to: required_enum("to", job.to)?,
            reason: reason_from_wire(required("reason", job.reason)?).map_err(|error| error.under("reason"))?,
            allocation: job.allocation_id.map(AllocationId),
        },
        Stored::JobRemoved(job) => Event::JobRemoved { job: JobId(job) },
        Stored::Worker(worker) => Event::Worker {
            job: JobId(worker.job_id),
            allocation: AllocationId(worker.allocation_id),
            rank: Rank(worker.rank),
            node: NodeId(worker.node_id),
            state: required_enum("state", worker.state)?,
        },
        Stored::AllocationReleased(released) => {
            Event::AllocationReleased { job: JobId(released.job_id), allocation: AllocationId(released.allocation_id) }
        }
        Stored::Node(node) => Event::Node {
            node: NodeId(node.node_id),
            state: required_enum("state", node.state)?,
            eligibility: required_enum("eligibility", node.eligibility)?,
        },
        Stored::Card(card) => Event::Card { card: CardId { node: NodeId(card.node_id), index: card.card_index } },
        Stored::Queue(name) => Event::Queue { name },
        Stored::Config(stored::ConfigChanged {}) => Event::Config,
        Stored::Move(movement) => {
            Event::Move { id: MoveId(movement.move_id), job: JobId(movement.job_id), in_progress: movement.in_progress }
        }
        Stored::Quarantined(quarantined) => Event::Quarantined {
            node: NodeId(quarantined.node_id),
            job: JobId(quarantined.job_id),
            allocation: AllocationId(quarantined.allocation_id),
            rank: Rank(quarantined.rank),
            message: quarantined.message,
        },
        Stored::CheckpointSkipped(skipped) => Event::CheckpointSkipped {
            job: JobId(skipped.job_id),
            checkpoint: key_from_wire(required("checkpoint", skipped.checkpoint)?),
            newest_left: skipped.newest_left.map(key_from_wire),
            message: skipped.message,
        },
    })
}
