//! In what way two plans differ.

use std::fmt;

use tessera_ledger::{JobId, PlanPart};

/// In what way the plan that comes out now differs from the one that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The committed plan is the beginning of the one that comes out: it was cut short, by other limits of
    /// one decision.
    CutShort {
        /// Parts that were committed.
        committed: usize,
        /// Parts that come out.
        now: usize,
    },
    /// The one that comes out is the beginning of the committed one: it was made with wider limits, or at a later time.
    WentFurther {
        /// Parts that were committed.
        committed: usize,
        /// Parts that come out.
        now: usize,
    },
    /// The same jobs, but one goes elsewhere: another release, which places otherwise.
    Elsewhere {
        /// The first job that does.
        job: JobId,
    },
    /// Another job's turn, or another kind of step: another release, or time that had passed between the state and
    /// the decision.
    OtherStep {
        /// The first part that differs, from 1.
        part: usize,
        /// The part that was committed there.
        committed: String,
        /// The part that results now.
        now: String,
    },
}

impl Difference {
    /// The difference of two lists of parts that are not the same.
    pub(super) fn between(committed: &[PlanPart], now: &[PlanPart]) -> Self {
        let same = committed.iter().zip(now).take_while(|(left, right)| left == right).count();
        if same == committed.len() {
            return Self::CutShort { committed: committed.len(), now: now.len() };
        }
        if same == now.len() {
            return Self::WentFurther { committed: committed.len(), now: now.len() };
        }
        match (&committed[same], &now[same]) {
            (PlanPart::Grant { job, .. }, PlanPart::Grant { job: other, .. })
            | (PlanPart::Move { job, .. }, PlanPart::Move { job: other, .. })
                if job == other =>
            {
                Self::Elsewhere { job: *job }
            }
            (left, right) => Self::OtherStep { part: same + 1, committed: step(left), now: step(right) },
        }
    }
}

/// A part of a plan in a few words.
fn step(part: &PlanPart) -> String {
    match part {
        PlanPart::Grant { job, victims, .. } if victims.is_empty() => format!("grant job {job}"),
        PlanPart::Grant { job, victims, .. } => format!("grant job {job} by preempting {} jobs", victims.len()),
        PlanPart::Evict { job, node } => format!("ask job {job} to leave {node}"),
        PlanPart::Renumber { card } => format!("renumber {card}"),
        PlanPart::Move { job, .. } => format!("move job {job}"),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort { committed, now } => write!(
                f,
                "{committed} parts were committed and {now} come out: the decision was cut short by other limits"
            ),
            Self::WentFurther { committed, now } => write!(
                f,
                "{committed} parts were committed and {now} come out: it was made with wider limits or at a later time"
            ),
            Self::Elsewhere { job } => write!(f, "job {job} goes elsewhere now: another release decided"),
            Self::OtherStep { part, committed, now } => write!(
                f,
                "part {part} was `{committed}` and is `{now}` now: another release decided, or time had passed"
            ),
        }
    }
}
