//! Answers to what was asked or done: submissions, changes, explanations, plans.

use serde::Serialize;
use tessera_api::v1;

use super::job::slices;
use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::words;
use crate::print::{Column, Detail, Page, Tabular};

/// A submitted job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubmissionView {
    /// Its number.
    pub id: u64,
    /// Revision of the submission.
    pub revision: u64,
    /// The request id.
    pub request_id: String,
}

impl Detail for SubmissionView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        out.title(format!("job {} submitted", self.id));
    }

    fn name(&self) -> String {
        format!("job/{}", self.id)
    }
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MutationView {
    /// The name of the object that was changed.
    pub name: String,
    /// The change that was made to it.
    pub done: String,
    /// Revision of the change.
    pub revision: u64,
}

impl Tabular for MutationView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[Column::left("NAME"), Column::left("DONE"), Column::wide("REVISION")];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![self.name.clone(), self.done.clone(), self.revision.to_string()]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// The obstacle that keeps a job from starting.
fn explain(of: &v1::Explanation, out: &mut Page) {
    out.line("waits for", format!("{} ({})", of.sentence, of.constraint));
    for number in &of.numbers {
        out.line(&number.name, format!("{} {}", number.value, number.unit));
    }
    if !of.smallest_change.is_empty() {
        out.line("would start", &of.smallest_change);
    }
}

/// The time at which a job may start.
fn estimate(of: &v1::StartEstimate, clock: &Clock, out: &mut Page) {
    match text(of.start.as_ref()) {
        Some(start) => out.line("starts by", format!("{start} (in {})", clock.until(start.as_str()))),
        None => out.line("starts", format!("nobody can say: {}", of.unknown)),
    }
    for assumption in &of.assumptions {
        out.line("assuming", assumption);
    }
}

/// The explanation of a job's state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhyView {
    /// The job.
    pub job_id: u64,
    /// Its state, the reason kept with it, what keeps it from starting, and when it may start.
    #[serde(flatten)]
    pub answer: Shown<v1::WhyResponse>,
}

impl WhyView {
    /// The answer about `job_id`.
    #[must_use]
    pub fn of(job_id: u64, response: v1::WhyResponse) -> Self {
        Self { job_id, answer: response.into() }
    }
}

impl Detail for WhyView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("job {}", self.job_id));
        out.state("state", &words::job_state(self.answer.state));
        let reason = self.answer.reason.clone().unwrap_or_default();
        out.line("reason", format!("{} ({})", reason.sentence, reason.code));
        if let Some(explanation) = &self.answer.explanation {
            explain(explanation, out);
        }
        if let Some(of) = &self.answer.estimate {
            estimate(of, clock, out);
        }
    }

    fn name(&self) -> String {
        let constraint = self.answer.explanation.as_ref().map(|of| of.constraint.clone());
        constraint.unwrap_or_else(|| self.answer.reason.clone().unwrap_or_default().code)
    }
}

/// The expected course of a job.
pub type PlanView = Shown<v1::PlanJobResponse>;

impl Detail for PlanView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(match words::verdict(self.verdict).as_str() {
            "starts" => "it would start at once".to_owned(),
            "preempts" => "it would start when other jobs are suspended".to_owned(),
            "waits" => "it would wait".to_owned(),
            "refused" => "it would be refused".to_owned(),
            other => other.to_owned(),
        });
        if let Some(explanation) = &self.explanation {
            explain(explanation, out);
        }
        if let Some(refusal) = &self.refusal {
            out.line("refusal", format!("{} ({})", refusal.sentence, refusal.code));
        }
        if let Some(of) = &self.estimate {
            estimate(of, clock, out);
        }
        if !self.workers.is_empty() {
            out.table(
                &["RANK", "CARD", "NODE", "SLICES"],
                self.workers.iter().map(|worker| {
                    vec![worker.rank.to_string(), worker.member.to_string(), worker.node_name.clone(), slices(worker)]
                }),
            );
        }
        if !self.nodes.is_empty() {
            out.title("what spoke for its nodes".to_owned());
            let terms = self.nodes.iter().flat_map(|node| node.terms.iter().map(move |term| (node, term)));
            out.table(
                &["NODE", "TERM", "SCORE", "WHAT"],
                terms.map(|(node, term)| {
                    vec![node.node_name.clone(), term.name.clone(), term.score.to_string(), term.sentence.clone()]
                }),
            );
        }
        if !self.victims.is_empty() {
            out.title("to be suspended".to_owned());
            out.table(
                &["JOB", "PRIO", "BLOCKS", "SUSPENSION", "LOSES", "TFLOPS S"],
                self.victims.iter().map(|victim| {
                    let mode = words::checkpoint_mode(victim.checkpoint_mode);
                    let work_lost = seconds(victim.work_lost.as_ref()).unwrap_or_default();
                    vec![
                        victim.job_id.to_string(),
                        victim.priority.to_string(),
                        victim.blocks.to_string(),
                        mode.clone(),
                        super::compaction::lost(work_lost, &mode),
                        victim.tflops_seconds_lost.to_string(),
                    ]
                }),
            );
        }
    }

    fn name(&self) -> String {
        words::verdict(self.verdict)
    }
}
