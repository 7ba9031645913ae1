//! Compaction: what would be done, how far it is, and the move of one job.

use serde::Serialize;
use tessera_api::v1;

use super::job::{slices, tflops};
use super::shown::Shown;
use super::time::{Clock, seconds, short};
use super::words;
use crate::print::{Detail, Page};

/// The places of workers, in short.
pub(super) fn places(workers: &[v1::Worker]) -> String {
    let place = |worker: &v1::Worker| format!("{} {}", worker.node_name, slices(worker));
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

/// The cost of a move for its job.
fn cost(of: &v1::PlannedMove) -> String {
    let mode = words::checkpoint_mode(of.checkpoint_mode);
    format!("{} ({mode})", lost(seconds(of.work_lost.as_ref()).unwrap_or_default(), &mode))
}

fn cells(of: &v1::PlannedMove) -> Vec<String> {
    let room = if of.makes_room_for == 0 { "-".to_owned() } else { format!("job {}", of.makes_room_for) };
    vec![of.job_id.to_string(), places(&of.from), places(&of.to), cost(of), room]
}

/// The answer to `job move`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveAnswerView {
    /// The job.
    pub job_id: u64,
    /// The move, absent when it was asked for before under the same request id, and its revision; 0 when it was only
    /// planned.
    #[serde(flatten)]
    pub answer: Shown<v1::MoveJobResponse>,
}

impl MoveAnswerView {
    /// The answer about `job_id`.
    #[must_use]
    pub fn of(job_id: u64, response: v1::MoveJobResponse) -> Self {
        Self { job_id, answer: response.into() }
    }
}

impl Detail for MoveAnswerView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let verb = if self.answer.revision == 0 { "would move" } else { "is being moved" };
        out.title(format!("job {} {verb}", self.job_id));
        if let Some(planned) = &self.answer.planned {
            out.line("from", places(&planned.from));
            out.line("to", places(&planned.to));
            out.line("loses", cost(planned));
        }
    }

    fn name(&self) -> String {
        format!("job/{}", self.job_id)
    }
}

/// The compute that is free in one place, in TFLOPS.
pub(super) fn free(room: Option<v1::FreeRoom>) -> f64 {
    tflops(room.unwrap_or_default().milli_tflops)
}

/// The plan of a compaction.
pub type CompactionPlanView = Shown<v1::PlanCompactionResponse>;

/// A card, as `node/index`.
pub(super) fn place(card: &v1::CardRef) -> String {
    format!("{}/{}", card.node_name, card.card_index)
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
        let (before, after) = (self.before.clone().unwrap_or_default(), self.after.clone().unwrap_or_default());
        out.line("startable", change(before.startable_jobs, after.startable_jobs));
        out.line("work lost", format!("{} TFLOPS s", self.tflops_seconds_lost));
        let after = |kind: i32| after.kinds.iter().find(|of| of.kind == kind).copied().unwrap_or_default();
        out.table(
            &["KIND", "ON A CARD", "ON A NODE", "FREE", "EMPTY CARDS", "FRAGMENTED", "SLICES"],
            before.kinds.iter().map(|before| {
                let after = after(before.kind);
                let percent = |of: &v1::KindMeasure| format!("{} %", f64::from(of.fragmentation) / 10.0);
                vec![
                    words::kind(before.kind),
                    change(free(before.largest_on_card), free(after.largest_on_card)),
                    change(free(before.largest_on_node), free(after.largest_on_node)),
                    change(free(before.free), free(after.free)),
                    change(before.empty_cards, after.empty_cards),
                    change(percent(before), percent(&after)),
                    change(before.slices, after.slices),
                ]
            }),
        );
        if !self.moves.is_empty() {
            out.title("moves".to_owned());
            out.table(&["JOB", "FROM", "TO", "LOSES", "FOR"], self.moves.iter().map(cells));
        }
        if !self.renumbers.is_empty() {
            out.title("renumbered".to_owned());
            out.line("cards", self.renumbers.iter().map(place).collect::<Vec<_>>().join(", "));
        }
    }

    fn name(&self) -> String {
        self.moves.iter().map(|planned| format!("job/{}", planned.job_id)).collect::<Vec<_>>().join("\n")
    }
}

/// The progress of compaction.
pub type CompactionStatusView = Shown<v1::CompactionStatus>;

impl Detail for CompactionStatusView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("compaction {}", words::compaction_phase(self.phase)));
        if self.phase() != v1::CompactionPhase::Idle {
            out.line("begun by", if self.automatic { "the pool's settings" } else { "an operator" });
            out.line("moves", format!("{} of at most {}", self.begun, self.budget));
            out.line("ended", format!("{} well, {} not", self.done, self.failed));
            out.line("renumbered", format!("{} cards", self.renumbered));
        }
        if !self.moves.is_empty() {
            out.table(
                &["MOVE", "JOB", "STEP", "SINCE"],
                self.moves.iter().map(|of| {
                    let since = clock.ago(of.started_at.as_ref());
                    vec![of.move_id.to_string(), of.job_id.to_string(), words::move_phase(of.phase), since]
                }),
            );
        }
    }

    fn name(&self) -> String {
        words::compaction_phase(self.phase)
    }
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod tests;
