//! Jobs of the ledger as the API shows them, with what they hold and where that is.

use std::time::Duration;

use tessera_ledger::wire::{WireEnum, duration_to_wire, slice_to_wire, spec_to_wire};
use tessera_ledger::{
    Allocation, AttainedOrder, Attempt, Checkpoint, CheckpointPart, Job, JobSpec, JobState, LogTime, Move, NodeId,
    PlannedWorker, Reason, Rejection, Slice, State, Worker, WorkerExit, WorkerState,
};

use crate::queue_view::told;
use crate::request_id::request_id_text;
use crate::time::timestamp;
use crate::v1;

/// A job with its allocation and its move.
#[must_use]
pub fn job(state: &State, job: &Job) -> v1::Job {
    let allocation = job.allocation.and_then(|id| state.allocation(id));
    let movement = job.moving.and_then(|id| state.move_in_progress(id));
    v1::Job {
        id: job.id.0,
        spec: Some(spec_to_wire(&job.spec)),
        state: job.state.to_wire(),
        reason: Some(reason(&job.reason)),
        submitter: job.submitter.clone(),
        request_id: job.request.map(request_id_text).unwrap_or_default(),
        held: job.held,
        parked: job.parked,
        submitted_at: Some(timestamp(job.submitted_at)),
        changed_at: Some(timestamp(job.changed_at)),
        started_at: job.history.last().and_then(|attempt| attempt.started_at).map(timestamp),
        ended_at: job.state.is_terminal().then(|| timestamp(job.changed_at)),
        not_before: not_before(state, job).map(timestamp),
        revision: job.revision.0,
        attempts: job.attempts,
        retries: job.retries,
        history: job.history.iter().map(|attempt| self::attempt(state, job, attempt)).collect(),
        allocation: allocation.map(|held| self::allocation(state, held)),
        r#move: movement.map(|movement| self::movement(movement)),
        preempted_at: job.preempted_at.iter().copied().map(timestamp).collect(),
        traceparent: job.traceparent.clone(),
        checkpoints: job.checkpoints.that_count().map(|one| checkpoint(state, one)).collect(),
        attained: state.order_of(&job.spec.queue).map(|order| attained(state, job, order)),
        idle: job.idle.map(|idle| v1::Idle { since: Some(timestamp(idle.since)), step: idle.step.to_wire() }),
    }
}

/// Service that a job had, and its standing by that.
fn attained(state: &State, job: &Job, order: AttainedOrder) -> v1::AttainedService {
    let service = job.attained(state.time());
    v1::AttainedService { service: Some(duration_to_wire(service)), band: order.band_of(service), guarded: job.guarded }
}

/// Before when it is not granted anything: for its backoff, or for windows that are closed.
fn not_before(state: &State, job: &Job) -> Option<LogTime> {
    let backoff = Some(job.not_before).filter(|time| *time > job.changed_at);
    let windows = told(state.job_closed_until(job), state.time()).filter(|_| !job.state.is_terminal());
    backoff.into_iter().chain(windows).max()
}

fn checkpoint(state: &State, checkpoint: &Checkpoint) -> v1::Checkpoint {
    let part = |part: &CheckpointPart| v1::CheckpointPart {
        rank: part.rank.0,
        bytes: part.saved.bytes,
        hash: part.saved.hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        shared: part.saved.shared,
        nodes: part.nodes.iter().map(|node| node_name(state, *node)).collect(),
    };
    v1::Checkpoint {
        attempt: checkpoint.key.attempt,
        sequence: checkpoint.key.sequence,
        saved_at: Some(timestamp(checkpoint.at)),
        progress: checkpoint.progress(),
        bytes: checkpoint.bytes(),
        epoch: checkpoint.epoch.0,
        available: state.can_be_had(checkpoint),
        mode: checkpoint.parts.first().map_or(0, |part| part.saved.mode.to_wire()),
        parts: checkpoint.parts.iter().map(part).collect(),
    }
}

/// A reason as code and sentence.
#[must_use]
pub fn reason(reason: &Reason) -> v1::Reason {
    v1::Reason { code: reason.code().to_owned(), sentence: reason.to_string() }
}

/// A refusal by the ledger as code and sentence, for answers that tell of a refusal without being one.
#[must_use]
pub fn refusal(rejection: &Rejection) -> v1::Reason {
    v1::Reason { code: rejection.code().to_owned(), sentence: rejection.to_string() }
}

fn attempt(state: &State, job: &Job, attempt: &Attempt) -> v1::Attempt {
    // Of what completed the job nothing is lost.
    let of_use = job.state == JobState::Completed && attempt.number == job.attempts;
    let lost = if of_use || attempt.ended_at.is_none() { Duration::ZERO } else { attempt.unsaved(state.time()) };
    // A virtual card that spans nodes has several workers, and an elastic gang may have had fewer cards than it asked
    // for.
    let cards = (attempt.nodes.len() as u64).min(u64::from(job.spec.gang));
    let tflops = cards.saturating_mul(job.spec.virtual_card.compute.0) as f64 / 1000.0;
    v1::Attempt {
        number: attempt.number,
        allocation_id: attempt.allocation.0,
        granted_at: Some(timestamp(attempt.granted_at)),
        started_at: attempt.started_at.map(timestamp),
        ended_at: attempt.ended_at.map(timestamp),
        decisive_rank: attempt.decisive.map(|rank| rank.0),
        exit_code: attempt.exit_code,
        signal: attempt.signal,
        reason: attempt.reason.as_ref().map(reason),
        epoch: attempt.epoch.0,
        nodes: attempt.nodes.iter().map(|node| node_name(state, *node)).collect(),
        from_attempt: attempt.from.map_or(0, |key| key.attempt),
        from_sequence: attempt.from.map_or(0, |key| key.sequence),
        saved_at: attempt.saved_at.map(timestamp),
        lost_seconds: lost.as_secs_f64(),
        lost_tflops_seconds: lost.as_secs_f64() * tflops,
        not_saved: attempt.not_saved.clone(),
        passed_over: attempt.passed_over.clone(),
        saved_as: attempt.saved_as.map_or(0, WireEnum::to_wire),
        blocks: attempt.blocks.0,
        memory_mib: attempt.memory.0,
    }
}

/// An allocation with its workers, and where rank 0 listens.
#[must_use]
pub fn allocation(state: &State, allocation: &Allocation) -> v1::Allocation {
    let master = allocation.workers.first().and_then(|worker| state.node(worker.node));
    v1::Allocation {
        id: allocation.id.0,
        epoch: allocation.epoch.0,
        job_id: allocation.job.0,
        attempt: allocation.attempt,
        phase: allocation.phase.to_wire(),
        workers: workers(state, allocation),
        master_address: master.map(|node| node.description.worker_host.clone()).unwrap_or_default(),
        master_port: u32::from(allocation.master_port),
        granted_at: Some(timestamp(allocation.granted_at)),
        started_at: allocation.started_at.map(timestamp),
    }
}

fn workers(state: &State, allocation: &Allocation) -> Vec<v1::Worker> {
    let workers = state.job(allocation.job).map(|job| allocation.run_programs(&job.spec.virtual_card));
    workers.into_iter().flatten().map(|(worker, runs)| self::worker(state, worker, !runs)).collect()
}

fn worker(state: &State, worker: &Worker, only_serves: bool) -> v1::Worker {
    v1::Worker {
        rank: worker.rank.0,
        member: worker.virtual_card,
        node_id: worker.node.0,
        node_name: node_name(state, worker.node),
        state: worker.state.to_wire(),
        slices: worker.slices.iter().map(|slice| self::slice(state, slice)).collect(),
        exit: worker.exit.as_ref().map(exit),
        only_serves,
    }
}

/// Workers that a plan would grant to a job with such a spec, as if they were granted.
#[must_use]
pub fn planned_workers(state: &State, spec: &JobSpec, workers: &[PlannedWorker]) -> Vec<v1::Worker> {
    let planned = |((rank, worker), runs): ((u32, &PlannedWorker), bool)| v1::Worker {
        rank,
        member: worker.virtual_card,
        node_id: worker.node.0,
        node_name: node_name(state, worker.node),
        state: WorkerState::Held.to_wire(),
        slices: worker.slices.iter().map(|slice| self::slice(state, slice)).collect(),
        exit: None,
        only_serves: !runs,
    };
    (0..).zip(workers).zip(spec.programs_among(workers)).map(planned).collect()
}

/// A slice with its card and its block numbers (P6). The numbers are zero when the card is gone.
#[must_use]
pub fn slice(state: &State, slice: &Slice) -> v1::SliceView {
    let card = state.card(slice.card).map(|card| &card.description);
    let number = |index: u32| state.block_number(slice.card, index).map_or(0, |number| number.0);
    v1::SliceView {
        slice: Some(slice_to_wire(slice)),
        kind: card.map_or(0, |card| card.kind.to_wire()),
        vendor: card.map(|card| card.vendor.clone()).unwrap_or_default(),
        model: card.map(|card| card.model.clone()).unwrap_or_default(),
        first_block_number: number(slice.start.0),
        last_block_number: number(slice.start.0.saturating_add(slice.length.0).saturating_sub(1)),
    }
}

#[must_use]
pub fn exit(exit: &WorkerExit) -> v1::WorkerExit {
    v1::WorkerExit {
        cause: exit.cause.to_wire(),
        code: exit.code,
        signal: exit.signal,
        checkpointed: exit.checkpointed,
        message: exit.message.clone(),
    }
}

fn movement(movement: &Move) -> v1::Move {
    v1::Move {
        id: movement.id.0,
        source_allocation_id: movement.source.0,
        target_allocation_id: movement.target.0,
        phase: movement.phase.to_wire(),
        started_at: Some(timestamp(movement.started_at)),
    }
}

/// The name of a node; its number when it is not in the ledger.
#[must_use]
pub fn node_name(state: &State, id: NodeId) -> String {
    state.node(id).map_or_else(|| id.to_string(), |node| node.description.name.clone())
}
