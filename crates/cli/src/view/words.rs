//! The words of the wire in lower case, as people and JSON see them.

use tessera_api::v1::*;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(value: i32) -> String {
                spelled($kind::try_from(value).ok().map(|known| known.as_str_name()), $prefix, value)
            }
        )*
    };
}

words! {
    /// State of a job.
    job_state: JobState, "JOB_STATE_";
    /// Step of idle jobs.
    idle_step: IdleStep, "IDLE_STEP_";
    /// State of a worker.
    worker_state: WorkerState, "WORKER_STATE_";
    /// Phase of an allocation.
    allocation_phase: AllocationPhase, "ALLOCATION_PHASE_";
    /// Phase of a move.
    move_phase: MovePhase, "MOVE_PHASE_";
    /// State of a node.
    node_state: NodeState, "NODE_STATE_";
    /// Eligibility of a node.
    eligibility: Eligibility, "ELIGIBILITY_";
    /// State of a block.
    block_state: BlockState, "BLOCK_STATE_";
    /// Kind of a card.
    kind: CardKind, "CARD_KIND_";
    /// Precision.
    precision: Precision, "PRECISION_";
    /// Span of a virtual card.
    span: Span, "SPAN_";
    /// Isolation.
    isolation: Isolation, "ISOLATION_";
    /// Packing.
    packing: Packing, "PACKING_";
    /// Checkpoint mode.
    checkpoint_mode: CheckpointMode, "CHECKPOINT_MODE_";
    /// Who divides the time of a card.
    time_slicer: TimeSlicer, "TIME_SLICER_";
    /// Health of a card.
    health: CardHealth, "CARD_HEALTH_";
    /// Verdict of a plan.
    verdict: PlanVerdict, "PLAN_VERDICT_";
    /// Where a run of compaction stands.
    compaction_phase: CompactionPhase, "COMPACTION_PHASE_";
    /// Role of a member.
    member_role: MemberRole, "MEMBER_ROLE_";
}

/// A value that this release does not know is shown by its number.
pub(super) fn spelled(name: Option<&str>, prefix: &str, value: i32) -> String {
    match name {
        Some(name) => name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase(),
        None => format!("unknown_{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_architecture() {
        assert_eq!(job_state(JobState::Suspending as i32), "suspending");
        assert_eq!(kind(CardKind::Fpga as i32), "fpga");
        assert_eq!(job_state(99), "unknown_99");
    }
}
