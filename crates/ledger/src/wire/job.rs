//! Jobs, allocations and moves as snapshots keep them.

use std::sync::Arc;
use std::time::Duration;

use super::card::slice_to_wire;
use super::checkpoint::{checkpoint_to_wire, checkpoints_from_wire, key_from_wire, key_to_wire};
use super::field::{FieldError, WireEnum, each, enum_from_wire, required, required_enum, wide_if_any, wide_to_wire};
use super::plan::{exit_from_wire, exit_to_wire};
use super::pool::port_from_wire;
use super::reason::{reason_from_wire, reason_to_wire};
use super::recorded::hash_of_spec;
use super::spec::{slices_from_wire, spec_from_wire, spec_to_wire};
use super::stored;
use crate::allocation::{Allocation, Move, Worker};
use crate::idle::Idle;
use crate::ids::{AllocationId, JobId, MoveId, NodeId, Rank, RequestId};
use crate::job::{Attempt, Job};
use crate::standing::millis;
use crate::units::{BlockCount, Epoch, LogTime, Mebibytes, Revision};

pub(super) fn job_to_wire(job: &Job) -> stored::Job {
    stored::Job { spec: Some(spec_to_wire(&job.spec)), ..job_without_spec(job) }
}

/// The job but for what was submitted.
pub(super) fn job_without_spec(job: &Job) -> stored::Job {
    let Job {
        id,
        // The digest has their hash, and snapshots the whole.
        spec: _,
        spec_hash: _,
        submitter,
        request,
        traceparent,
        secret,
        state,
        reason,
        held,
        parked,
        submitted_at,
        changed_at,
        revision,
        not_before,
        allocation,
        moving,
        ending,
        attempts,
        retries,
        node_faults,
        history,
        checkpoints,
        preempted_at,
        queued_at,
        waited,
        closed_until,
        idle,
        attained,
        guarded,
    } = job;
    stored::Job {
        id: id.0,
        spec: None,
        submitter: submitter.clone(),
        request_id: wide_to_wire(request.map(|id| id.0)),
        traceparent: traceparent.clone(),
        secret: wide_to_wire(*secret),
        state: state.to_wire(),
        reason: Some(reason_to_wire(reason)),
        held: *held,
        parked: *parked,
        submitted_at_ms: submitted_at.0,
        changed_at_ms: changed_at.0,
        revision: revision.0,
        not_before_ms: not_before.0,
        allocation_id: allocation.map(|id| id.0),
        move_id: moving.map(|id| id.0),
        ending: ending.map_or(0, WireEnum::to_wire),
        attempts: *attempts,
        retries: *retries,
        node_faults: *node_faults,
        history: history.iter().map(attempt_to_wire).collect(),
        preempted_at_ms: preempted_at.iter().map(|time| time.0).collect(),
        checkpoints: checkpoints.iter().map(|checkpoint| checkpoint_to_wire(checkpoint)).collect(),
        queued_at_ms: queued_at.0,
        waited_ms: millis(*waited),
        attained_ms: millis(*attained),
        guarded: *guarded,
        closed_until_ms: closed_until.0,
        idle: idle.map(|Idle { since, step }| stored::Idle { since_ms: since.0, step: step.to_wire() }),
    }
}

pub(super) fn job_from_wire(job: stored::Job) -> Result<Job, FieldError> {
    let reason = required("reason", job.reason)?;
    let spec = spec_from_wire(required("spec", job.spec)?).map_err(|error| error.under("spec"))?;
    Ok(Job {
        id: JobId(job.id),
        spec_hash: hash_of_spec(&spec),
        spec: Arc::new(spec),
        submitter: job.submitter,
        request: wide_if_any("request_id", &job.request_id)?.map(RequestId),
        traceparent: job.traceparent,
        secret: wide_if_any("secret", &job.secret)?,
        state: required_enum("state", job.state)?,
        reason: reason_from_wire(reason).map_err(|error| error.under("reason"))?,
        held: job.held,
        parked: job.parked,
        submitted_at: LogTime(job.submitted_at_ms),
        changed_at: LogTime(job.changed_at_ms),
        revision: Revision(job.revision),
        not_before: LogTime(job.not_before_ms),
        allocation: job.allocation_id.map(AllocationId),
        moving: job.move_id.map(MoveId),
        ending: enum_from_wire("ending", job.ending)?,
        attempts: job.attempts,
        retries: job.retries,
        node_faults: job.node_faults,
        history: each("history", job.history, attempt_from_wire)?,
        checkpoints: checkpoints_from_wire(job.checkpoints)?,
        preempted_at: job.preempted_at_ms.into_iter().map(LogTime).collect(),
        queued_at: LogTime(job.queued_at_ms),
        waited: Duration::from_millis(job.waited_ms),
        attained: Duration::from_millis(job.attained_ms),
        guarded: job.guarded,
        closed_until: LogTime(job.closed_until_ms),
        idle: job.idle.map(idle_from_wire).transpose()?,
    })
}

fn idle_from_wire(idle: stored::Idle) -> Result<Idle, FieldError> {
    Ok(Idle { since: LogTime(idle.since_ms), step: required_enum("idle.step", idle.step)? })
}

fn attempt_to_wire(attempt: &Attempt) -> stored::Attempt {
    let Attempt {
        number,
        allocation,
        epoch,
        nodes,
        granted_at,
        started_at,
        ended_at,
        decisive,
        exit_code,
        signal,
        reason,
        from,
        saved_at,
        saved_as,
        not_saved,
        passed_over,
        blocks,
        memory,
        milli_cards,
    } = attempt;
    stored::Attempt {
        number: *number,
        allocation_id: allocation.0,
        granted_at_ms: granted_at.0,
        started_at_ms: started_at.map(|time| time.0),
        ended_at_ms: ended_at.map(|time| time.0),
        decisive_rank: decisive.map(|rank| rank.0),
        exit_code: *exit_code,
        signal: *signal,
        reason: reason.as_ref().map(reason_to_wire),
        epoch: epoch.0,
        node_ids: nodes.iter().map(|node| node.0).collect(),
        from: from.map(key_to_wire),
        saved_at_ms: saved_at.map(|time| time.0),
        not_saved: not_saved.clone(),
        passed_over: passed_over.clone(),
        saved_as: saved_as.map_or(0, WireEnum::to_wire),
        blocks: blocks.0,
        memory_mib: memory.0,
        milli_cards: *milli_cards,
    }
}

fn attempt_from_wire(attempt: stored::Attempt) -> Result<Attempt, FieldError> {
    let reason = attempt.reason.map(reason_from_wire).transpose();
    Ok(Attempt {
        number: attempt.number,
        allocation: AllocationId(attempt.allocation_id),
        epoch: Epoch(attempt.epoch),
        nodes: attempt.node_ids.into_iter().map(NodeId).collect(),
        granted_at: LogTime(attempt.granted_at_ms),
        started_at: attempt.started_at_ms.map(LogTime),
        ended_at: attempt.ended_at_ms.map(LogTime),
        decisive: attempt.decisive_rank.map(Rank),
        exit_code: attempt.exit_code,
        signal: attempt.signal,
        reason: reason.map_err(|error| error.under("reason"))?,
        from: attempt.from.map(key_from_wire),
        saved_at: attempt.saved_at_ms.map(LogTime),
        saved_as: enum_from_wire("saved_as", attempt.saved_as)?,
        not_saved: attempt.not_saved,
        passed_over: attempt.passed_over,
        blocks: BlockCount(attempt.blocks),
        memory: Mebibytes(attempt.memory_mib),
        milli_cards: attempt.milli_cards,
    })
}

pub(super) fn allocation_to_wire(allocation: &Allocation) -> stored::Allocation {
    let Allocation { id, epoch, job, attempt, phase, workers, master_port, granted_at, started_at, from } = allocation;
    stored::Allocation {
        id: id.0,
        epoch: epoch.0,
        job_id: job.0,
        attempt: *attempt,
        phase: phase.to_wire(),
        workers: workers.iter().map(worker_to_wire).collect(),
        master_port: u32::from(*master_port),
        granted_at_ms: granted_at.0,
        started_at_ms: started_at.map(|time| time.0),
        from: from.map(key_to_wire),
    }
}

pub(super) fn allocation_from_wire(allocation: stored::Allocation) -> Result<Allocation, FieldError> {
    let mut workers = each("workers", allocation.workers, worker_from_wire)?;
    for (rank, worker) in (0..).zip(&mut workers) {
        worker.rank = Rank(rank);
    }
    Ok(Allocation {
        id: AllocationId(allocation.id),
        epoch: Epoch(allocation.epoch),
        job: JobId(allocation.job_id),
        attempt: allocation.attempt,
        phase: required_enum("phase", allocation.phase)?,
        workers: Arc::new(workers),
        master_port: port_from_wire("master_port", allocation.master_port)?,
        granted_at: LogTime(allocation.granted_at_ms),
        started_at: allocation.started_at_ms.map(LogTime),
        from: allocation.from.map(key_from_wire),
    })
}

fn worker_to_wire(worker: &Worker) -> stored::Worker {
    let Worker { rank: _, virtual_card, node, slices, state, exit, card_port, program_port } = worker;
    stored::Worker {
        member: *virtual_card,
        node_id: node.0,
        slices: slices.iter().map(slice_to_wire).collect(),
        state: state.to_wire(),
        exit: exit.as_ref().map(exit_to_wire),
        card_port: u32::from(*card_port),
        program_port: u32::from(*program_port),
    }
}

/// Reads a worker; its rank is its place, which the caller knows.
fn worker_from_wire(worker: stored::Worker) -> Result<Worker, FieldError> {
    Ok(Worker {
        rank: Rank(0),
        virtual_card: worker.member,
        node: NodeId(worker.node_id),
        slices: slices_from_wire(worker.slices)?,
        state: required_enum("state", worker.state)?,
        exit: worker.exit.map(exit_from_wire).transpose().map_err(|error| error.under("exit"))?,
        card_port: port_from_wire("card_port", worker.card_port)?,
        program_port: port_from_wire("program_port", worker.program_port)?,
    })
}

pub(super) fn move_to_wire(movement: &Move) -> stored::Move {
    let Move { id, job, source, target, phase, started_at } = movement;
    stored::Move {
        id: id.0,
        job_id: job.0,
        source: source.0,
        target: target.0,
        phase: phase.to_wire(),
        started_at_ms: started_at.0,
    }
}

pub(super) fn move_from_wire(movement: &stored::Move) -> Result<Move, FieldError> {
    Ok(Move {
        id: MoveId(movement.id),
        job: JobId(movement.job_id),
        source: AllocationId(movement.source),
        target: AllocationId(movement.target),
        phase: required_enum("phase", movement.phase)?,
        started_at: LogTime(movement.started_at_ms),
    })
}
