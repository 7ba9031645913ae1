//! Compaction: what would be done, how far it is, and the move of one job.

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, seconds, short, text};
use super::{WorkerView, words};
use crate::print::{Detail, Page};

/// A move of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedMoveView {
    /// The job.
    pub job_id: u64,
    /// Where it is.
    pub from: Vec<WorkerView>,
    /// Where it goes.
    pub to: Vec<WorkerView>,
    /// How it is suspended.
    pub checkpoint_mode: String,
    /// Work that it loses.
    pub work_lost_seconds: f64,
    /// The waiting job that it makes room for.
    pub makes_room_for: Option<u64>,
}

impl From<v1::PlannedMove> for PlannedMoveView {
    fn from(planned: v1::PlannedMove) -> Self {
        Self {
            job_id: planned.job_id,
            from: planned.from.into_iter().map(Into::into).collect(),
            to: planned.to.into_iter().map(Into::into).collect(),
            checkpoint_mode: words::checkpoint_mode(planned.checkpoint_mode),
            work_lost_seconds: seconds(planned.work_lost.as_ref()).unwrap_or_default(),
            makes_room_for: (planned.makes_room_for > 0).then_some(planned.makes_room_for),
        }
    }
}

/// Where workers are, in short.
pub(super) fn places(workers: &[WorkerView]) -> String {
    let place = |worker: &WorkerView| {
        let slices: Vec<String> = worker.slices.iter().map(super::job::SliceView::short).collect();
        format!("{} {}", worker.node, slices.join(" + "))
    };
    workers.iter().map(place).collect::<Vec<_>>().join(", ")
}

/// Work that a job loses when it is stopped, for people. What is saved on the way out is known only then.
pub(super) fn lost(seconds: f64, checkpoint_mode: &str) -> String {
    let lost = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match checkpoint_mode {
        "cooperative" if lost.as_secs() == 0 => "what it does not save".to_owned(),
        "cooperative" => format!("at most {}, what it does not save", short(lost)),
        "transparent" if lost.is_zero() => "what cannot be dumped".to_owned(),
        _ if lost.is_zero() => "nothing yet".to_owned(),
        _ => short(lost),
    }
}

impl PlannedMoveView {
    fn cells(&self) -> Vec<String> {
        let room = self.makes_room_for.map_or_else(|| "-".to_owned(), |job| format!("job {job}"));
        let cost = format!("{} ({})", lost(self.work_lost_seconds, &self.checkpoint_mode), self.checkpoint_mode);
        vec![self.job_id.to_string(), places(&self.from), places(&self.to), cost, room]
    }
}

/// The answer to `job move`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveAnswerView {
    /// The job.
    pub job_id: u64,
    /// The move; absent when it was asked for before under the same request id.
    pub planned: Option<PlannedMoveView>,
    /// Revision of the move; 0 when it was only planned.
    pub revision: u64,
}

impl MoveAnswerView {
    /// The answer about `job_id`.
    #[must_use]
    pub fn of(job_id: u64, response: v1::MoveJobResponse) -> Self {
        Self { job_id, planned: response.planned.map(Into::into), revision: response.revision }
    }
}

impl Detail for MoveAnswerView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let verb = if self.revision == 0 { "would move" } else { "is being moved" };
        out.title(format!("job {} {verb}", self.job_id));
        if let Some(planned) = &self.planned {
            out.line("from", places(&planned.from));
            out.line("to", places(&planned.to));
            out.line(
                "loses",
                format!("{} ({})", lost(planned.work_lost_seconds, &planned.checkpoint_mode), planned.checkpoint_mode),
            );
        }
    }

    fn name(&self) -> String {
        format!("job/{}", self.job_id)
    }
}

/// What one place has free.
pub type RoomView = Shown<v1::FreeRoom>;

impl RoomView {
    pub(super) fn tflops(&self) -> f64 {
        tflops(self.milli_tflops)
    }
}

/// How fragmented the cards of one kind are.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindMeasureView {
    /// The kind.
    pub kind: String,
    /// The largest virtual card that fits on one card.
    pub largest_on_card: RoomView,
    /// The largest that fits over the cards of one node.
    pub largest_on_node: RoomView,
    /// All that is free.
    pub free: RoomView,
    /// Cards that nobody uses.
    pub empty_cards: u32,
    /// How far what is free is from lying together as much as it could, in percent.
    pub fragmentation_percent: f64,
    /// Slices in force.
    pub slices: u64,
}

impl From<v1::KindMeasure> for KindMeasureView {
    fn from(measure: v1::KindMeasure) -> Self {
        Self {
            kind: words::kind(measure.kind),
            largest_on_card: measure.largest_on_card.unwrap_or_default().into(),
            largest_on_node: measure.largest_on_node.unwrap_or_default().into(),
            free: measure.free.unwrap_or_default().into(),
            empty_cards: measure.empty_cards,
            fragmentation_percent: f64::from(measure.fragmentation) / 10.0,
            slices: measure.slices,
        }
    }
}

/// How fragmented the pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolMeasureView {
    /// By kind.
    pub kinds: Vec<KindMeasureView>,
    /// Waiting jobs that would start.
    pub startable_jobs: u32,
}

impl From<Option<v1::PoolMeasure>> for PoolMeasureView {
    fn from(measure: Option<v1::PoolMeasure>) -> Self {
        let measure = measure.unwrap_or_default();
        Self { kinds: measure.kinds.into_iter().map(Into::into).collect(), startable_jobs: measure.startable_jobs }
    }
}

/// What compaction would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactionPlanView {
    /// Moves.
    pub moves: Vec<PlannedMoveView>,
    /// Cards that are renumbered, as `node/index`.
    pub renumbers: Vec<String>,
    /// The pool as it is.
    pub before: PoolMeasureView,
    /// The pool as it would be.
    pub after: PoolMeasureView,
    /// Work that is lost.
    pub tflops_seconds_lost: u64,
    /// Revision that the answer reflects.
    pub revision: u64,
}

impl From<v1::PlanCompactionResponse> for CompactionPlanView {
    fn from(response: v1::PlanCompactionResponse) -> Self {
        let card = |card: v1::CardRef| format!("{}/{}", card.node_name, card.card_index);
        Self {
            moves: response.moves.into_iter().map(Into::into).collect(),
            renumbers: response.renumbers.into_iter().map(card).collect(),
            before: response.before.into(),
            after: response.after.into(),
            tflops_seconds_lost: response.tflops_seconds_lost,
            revision: response.read.unwrap_or_default().revision,
        }
    }
}

fn change(before: impl ToString, after: impl ToString) -> String {
    let (before, after) = (before.to_string(), after.to_string());
    if before == after { before } else { format!("{before} -> {after}") }
}

impl Detail for CompactionPlanView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        if self.moves.is_empty() && self.renumbers.is_empty() {
            out.title("nothing would be gained".to_owned());
        } else {
            let (moves, cards) = (self.moves.len(), self.renumbers.len());
            out.title(format!("{moves} moves, {cards} cards renumbered"));
        }
        out.line("startable", change(self.before.startable_jobs, self.after.startable_jobs));
        out.line("work lost", format!("{} TFLOPS s", self.tflops_seconds_lost));
        let after = |kind: &str| self.after.kinds.iter().find(|of| of.kind == kind).cloned().unwrap_or_default();
        out.table(
            &["KIND", "ON A CARD", "ON A NODE", "FREE", "EMPTY CARDS", "FRAGMENTED", "SLICES"],
            self.before.kinds.iter().map(|before| {
                let after = after(&before.kind);
                let percent = |of: &KindMeasureView| format!("{} %", of.fragmentation_percent);
                vec![
                    before.kind.clone(),
                    change(before.largest_on_card.tflops(), after.largest_on_card.tflops()),
                    change(before.largest_on_node.tflops(), after.largest_on_node.tflops()),
                    change(before.free.tflops(), after.free.tflops()),
                    change(before.empty_cards, after.empty_cards),
                    change(percent(before), percent(&after)),
                    change(before.slices, after.slices),
                ]
            }),
        );
        if !self.moves.is_empty() {
            out.title("moves".to_owned());
            out.table(&["JOB", "FROM", "TO", "LOSES", "FOR"], self.moves.iter().map(PlannedMoveView::cells));
        }
        if !self.renumbers.is_empty() {
            out.title("renumbered".to_owned());
            out.line("cards", self.renumbers.join(", "));
        }
    }

    fn name(&self) -> String {
        self.moves.iter().map(|planned| format!("job/{}", planned.job_id)).collect::<Vec<_>>().join("\n")
    }
}

/// How far compaction is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactionStatusView {
    /// Where it stands.
    pub phase: String,
    /// Whether the pool's settings began it.
    pub automatic: bool,
    /// Most moves.
    pub budget: u32,
    /// Moves that were begun.
    pub begun: u32,
    /// Moves that ended well.
    pub done: u32,
    /// Moves that did not.
    pub failed: u32,
    /// Cards that were renumbered.
    pub renumbered: u32,
    /// Moves in progress.
    pub moves: Vec<MoveProgressView>,
}

/// A move in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MoveProgressView {
    /// Its number.
    pub id: u64,
    /// The job.
    pub job_id: u64,
    /// Its step.
    pub phase: String,
    /// When it began.
    pub started_at: Option<String>,
}

impl From<v1::CompactionStatus> for CompactionStatusView {
    fn from(status: v1::CompactionStatus) -> Self {
        let moves = status.moves.into_iter().map(|of| MoveProgressView {
            id: of.move_id,
            job_id: of.job_id,
            phase: words::move_phase(of.phase),
            started_at: text(of.started_at.as_ref()),
        });
        Self {
            phase: words::compaction_phase(status.phase),
            automatic: status.automatic,
            budget: status.budget,
            begun: status.begun,
            done: status.done,
            failed: status.failed,
            renumbered: status.renumbered,
            moves: moves.collect(),
        }
    }
}

impl Detail for CompactionStatusView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("compaction {}", self.phase));
        if self.phase != "idle" {
            out.line("begun by", if self.automatic { "the pool's settings" } else { "an operator" });
            out.line("moves", format!("{} of at most {}", self.begun, self.budget));
            out.line("ended", format!("{} well, {} not", self.done, self.failed));
            out.line("renumbered", format!("{} cards", self.renumbered));
        }
        if !self.moves.is_empty() {
            out.table(
                &["MOVE", "JOB", "STEP", "SINCE"],
                self.moves.iter().map(|of| {
                    let since = clock.ago(of.started_at.as_deref());
                    vec![of.id.to_string(), of.job_id.to_string(), of.phase.clone(), since]
                }),
            );
        }
    }

    fn name(&self) -> String {
        self.phase.clone()
    }
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod tests;
