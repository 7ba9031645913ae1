//! Plans of placement and reports of agents as the log keeps them.

use super::card::slice_to_wire;
use super::checkpoint::{saved_from_wire, saved_to_wire};
use super::field::{FieldError, WireEnum, each, required, required_enum};
use super::spec::slices_from_wire;
use super::stored;
use crate::allocation::{PlannedWorker, WorkerExit};
use crate::command::{Observation, Plan, PlanPart, WorkerReport};
use crate::ids::{AllocationId, CardId, JobId, NodeId, Owner, Rank};
use crate::units::{Epoch, LogTime, Revision};

pub(super) fn plan_from_wire(plan: stored::CommitPlan) -> Result<Plan, FieldError> {
    Ok(Plan { revision: Revision(plan.revision), parts: each("parts", plan.parts, part_from_wire)? })
}

pub(super) fn plan_to_wire(plan: &Plan) -> stored::CommitPlan {
    stored::CommitPlan { revision: plan.revision.0, parts: plan.parts.iter().map(part_to_wire).collect() }
}

fn part_from_wire(part: stored::PlanPart) -> Result<PlanPart, FieldError> {
    use stored::plan_part::Part;
    Ok(match required("part", part.part)? {
        Part::Grant(grant) => PlanPart::Grant {
            job: JobId(grant.job_id),
            workers: each("workers", grant.workers, worker_from_wire)?,
            victims: grant.victims.into_iter().map(JobId).collect(),
        },
        Part::Evict(evict) => PlanPart::Evict { job: JobId(evict.job_id), node: NodeId(evict.node_id) },
        Part::Renumber(renumber) => {
            PlanPart::Renumber { card: CardId { node: NodeId(renumber.node_id), index: renumber.card_index } }
        }
        Part::MoveJob(movement) => PlanPart::Move {
            job: JobId(movement.job_id),
            workers: each("workers", movement.workers, worker_from_wire)?,
        },
    })
}

fn part_to_wire(part: &PlanPart) -> stored::PlanPart {
    use stored::plan_part::Part;
    let part = match part {
        PlanPart::Grant { job, workers, victims } => Part::Grant(stored::Grant {
            job_id: job.0,
            workers: workers.iter().map(worker_to_wire).collect(),
            victims: victims.iter().map(|victim| victim.0).collect(),
        }),
        PlanPart::Evict { job, node } => Part::Evict(stored::Evict { job_id: job.0, node_id: node.0 }),
        PlanPart::Renumber { card } => {
            Part::Renumber(stored::Renumber { node_id: card.node.0, card_index: card.index })
        }
        PlanPart::Move { job, workers } => {
            Part::MoveJob(stored::MoveJob { job_id: job.0, workers: workers.iter().map(worker_to_wire).collect() })
        }
    };
    stored::PlanPart { part: Some(part) }
}

fn worker_from_wire(worker: stored::PlannedWorker) -> Result<PlannedWorker, FieldError> {
    Ok(PlannedWorker {
        virtual_card: worker.member,
        node: NodeId(worker.node_id),
        slices: slices_from_wire(worker.slices)?,
    })
}

fn worker_to_wire(worker: &PlannedWorker) -> stored::PlannedWorker {
    stored::PlannedWorker {
        member: worker.virtual_card,
        node_id: worker.node.0,
        slices: worker.slices.iter().map(slice_to_wire).collect(),
    }
}

pub(super) fn report_from_wire(report: stored::WorkerReport) -> Result<WorkerReport, FieldError> {
    use stored::worker_report::Observation as Stored;
    Ok(WorkerReport {
        worker: owner_from_wire(&required("worker", report.worker)?),
        observation: match required("observation", report.observation)? {
            Stored::Running(stored::WorkerRunning {}) => Observation::Running,
            Stored::Stopped(exit) => {
                Observation::Stopped(exit_from_wire(exit).map_err(|error| error.under("stopped"))?)
            }
            Stored::Saved(saved) => Observation::Saved(saved_from_wire(saved).map_err(|error| error.under("saved"))?),
            Stored::Unusable(unusable) => Observation::Unusable { lost: unusable.lost, message: unusable.message },
            Stored::Unconfirmed(unconfirmed) => Observation::Unconfirmed { message: unconfirmed.message },
        },
    })
}

pub(super) fn report_to_wire(report: &WorkerReport) -> stored::WorkerReport {
    use stored::worker_report::Observation as Stored;
    stored::WorkerReport {
        worker: Some(owner_to_wire(&report.worker)),
        observation: Some(match &report.observation {
            Observation::Running => Stored::Running(stored::WorkerRunning {}),
            Observation::Stopped(exit) => Stored::Stopped(exit_to_wire(exit)),
            Observation::Saved(saved) => Stored::Saved(saved_to_wire(saved)),
            Observation::Unusable { lost, message } => {
                Stored::Unusable(stored::WorkerUnusable { lost: *lost, message: message.clone() })
            }
            Observation::Unconfirmed { message } => {
                Stored::Unconfirmed(stored::WorkerUnconfirmed { message: message.clone() })
            }
        }),
    }
}

pub(super) fn owner_from_wire(owner: &stored::Owner) -> Owner {
    Owner { allocation: AllocationId(owner.allocation_id), epoch: Epoch(owner.epoch), rank: Rank(owner.rank) }
}

pub(super) fn owner_to_wire(owner: &Owner) -> stored::Owner {
    let Owner { allocation, epoch, rank } = owner;
    stored::Owner { allocation_id: allocation.0, epoch: epoch.0, rank: rank.0 }
}

pub(super) fn exit_from_wire(exit: stored::WorkerExit) -> Result<WorkerExit, FieldError> {
    Ok(WorkerExit {
        cause: required_enum("cause", exit.cause)?,
        code: exit.code,
        signal: exit.signal,
        checkpointed: exit.checkpointed,
        message: exit.message,
        not_saved: exit.not_saved,
        ended_at: LogTime(exit.ended_at_ms),
    })
}

pub(super) fn exit_to_wire(exit: &WorkerExit) -> stored::WorkerExit {
    let WorkerExit { cause, code, signal, checkpointed, message, not_saved, ended_at } = exit;
    stored::WorkerExit {
        cause: cause.to_wire(),
        code: *code,
        signal: *signal,
        checkpointed: *checkpointed,
        message: message.clone(),
        not_saved: not_saved.clone(),
        ended_at_ms: ended_at.0,
    }
}
