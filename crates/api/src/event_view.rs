//! Events of the ledger as watches send them. What people call things by (names of nodes) is looked up in the state as
//! it is when the event is sent.

use tessera_ledger::wire::WireEnum;
use tessera_ledger::{EntryEvents, Event, JobId, State};

use crate::job_view::{node_name, reason};
use crate::time::timestamp;
use crate::v1::{self, job_event, pool_event};

/// The job that an event is about, if it is about one.
#[must_use]
pub fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Job { job, .. }
        | Event::JobRemoved { job }
        | Event::Worker { job, .. }
        | Event::AllocationReleased { job, .. }
        | Event::Move { job, .. }
        | Event::Quarantined { job, .. }
        | Event::CheckpointSkipped { job, .. } => Some(*job),
        Event::Node { .. } | Event::Card { .. } | Event::Queue { .. } | Event::Config => None,
    }
}

/// The event at a place of an entry for those who watch jobs; `None` when it is about no job.
#[must_use]
pub fn job_event(state: &State, entry: &EntryEvents, ordinal: u32) -> Option<v1::JobEvent> {
    use job_event::Change;
    let event = entry.events.get(usize::try_from(ordinal).ok()?)?;
    let change = match event {
        Event::Job { from, to, reason: why, allocation, .. } => Change::State(v1::JobStateChanged {
            from: from.map_or(0, WireEnum::to_wire),
            to: to.to_wire(),
            reason: Some(reason(why)),
            allocation_id: allocation.map(|id| id.0),
            nodes: allocation.map(|id| nodes_of(state, id)).unwrap_or_default(),
        }),
        Event::JobRemoved { .. } => Change::Removed(v1::JobRemoved {}),
        Event::Worker { allocation, rank, node, state: to, .. } => Change::Worker(v1::JobWorkerChanged {
            allocation_id: allocation.0,
            rank: rank.0,
            node_name: node_name(state, *node),
            state: to.to_wire(),
        }),
        Event::AllocationReleased { allocation, .. } => {
            Change::Released(v1::JobAllocationReleased { allocation_id: allocation.0 })
        }
        Event::Move { id, in_progress, .. } => {
            Change::Move(v1::JobMoveChanged { move_id: id.0, in_progress: *in_progress })
        }
        Event::Quarantined { node, allocation, rank, message, .. } => Change::Quarantined(v1::JobWorkerQuarantined {
            allocation_id: allocation.0,
            rank: rank.0,
            node_name: node_name(state, *node),
            message: message.clone(),
        }),
        Event::CheckpointSkipped { checkpoint, newest_left, message, .. } => {
            Change::Skipped(v1::JobCheckpointSkipped {
                attempt: checkpoint.attempt,
                sequence: checkpoint.sequence,
                message: message.clone(),
                newest_left_attempt: newest_left.map_or(0, |key| key.attempt),
                newest_left_sequence: newest_left.map_or(0, |key| key.sequence),
            })
        }
        Event::Node { .. } | Event::Card { .. } | Event::Queue { .. } | Event::Config => return None,
    };
    Some(v1::JobEvent {
        revision: entry.revision.0,
        ordinal,
        time: Some(timestamp(entry.time)),
        job_id: job_of(event)?.0,
        change: Some(change),
    })
}

/// Names of the nodes of an allocation, each once, in order of rank.
fn nodes_of(state: &State, id: tessera_ledger::AllocationId) -> Vec<String> {
    let Some(allocation) = state.allocation(id) else { return Vec::new() };
    let mut nodes = Vec::new();
    for worker in allocation.workers.iter() {
        if !nodes.contains(&worker.node) {
            nodes.push(worker.node);
        }
    }
    nodes.into_iter().map(|node| node_name(state, node)).collect()
}

/// The event at a place of an entry for those who watch the pool; `None` when it is about a job.
#[must_use]
pub fn pool_event(state: &State, entry: &EntryEvents, ordinal: u32) -> Option<v1::PoolEvent> {
    use pool_event::Change;
    let change = match entry.events.get(usize::try_from(ordinal).ok()?)? {
        Event::Node { node, state: to, eligibility } => Change::Node(v1::NodeChanged {
            node_id: node.0,
            node_name: node_name(state, *node),
            state: to.to_wire(),
            eligibility: eligibility.to_wire(),
        }),
        Event::Card { card } => Change::Card(v1::CardChanged {
            node_id: card.node.0,
            node_name: node_name(state, card.node),
            card_index: card.index,
        }),
        Event::Queue { name } => Change::Queue(v1::QueueChanged { queue: name.clone() }),
        Event::Config => Change::Config(v1::ConfigChanged {}),
        _ => return None,
    };
    let time = Some(timestamp(entry.time));
    Some(v1::PoolEvent { revision: entry.revision.0, ordinal, time, change: Some(change) })
}
