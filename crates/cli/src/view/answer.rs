//! Answers to what was asked or done: submissions, changes, explanations, plans.

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::{ReasonView, WorkerView, words};
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
    /// What was changed.
    pub name: String,
    /// What was done to it.
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

/// What keeps a job from starting.
pub type ExplanationView = Shown<v1::Explanation>;

impl ExplanationView {
    fn detail(&self, out: &mut Page) {
        out.line("waits for", format!("{} ({})", self.sentence, self.constraint));
        for number in &self.numbers {
            out.line(&number.name, format!("{} {}", number.value, number.unit));
        }
        if !self.smallest_change.is_empty() {
            out.line("would start", &self.smallest_change);
        }
    }
}

/// When a job may start.
pub type EstimateView = Shown<v1::StartEstimate>;

impl EstimateView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        match text(self.start.as_ref()) {
            Some(start) => out.line("starts by", format!("{start} (in {})", clock.until(&start))),
            None => out.line("starts", format!("nobody can say: {}", self.unknown)),
        }
        for assumption in &self.assumptions {
            out.line("assuming", assumption);
        }
    }
}

/// Why a job stands where it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhyView {
    /// The job.
    pub job_id: u64,
    /// Its state.
    pub state: String,
    /// The reason kept with it.
    pub reason: ReasonView,
    /// What keeps it from starting.
    pub explanation: Option<ExplanationView>,
    /// When it may start, if that was asked.
    pub estimate: Option<EstimateView>,
    /// Revision that the answer reflects.
    pub revision: u64,
}

impl WhyView {
    /// The answer about `job_id`.
    #[must_use]
    pub fn of(job_id: u64, response: v1::WhyResponse) -> Self {
        Self {
            job_id,
            state: words::job_state(response.state),
            reason: response.reason.map(Into::into).unwrap_or_default(),
            explanation: response.explanation.map(Into::into),
            estimate: response.estimate.map(Into::into),
            revision: response.read.unwrap_or_default().revision,
        }
    }
}

impl Detail for WhyView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("job {}", self.job_id));
        out.state("state", &self.state);
        out.line("reason", format!("{} ({})", self.reason.sentence, self.reason.code));
        if let Some(explanation) = &self.explanation {
            explanation.detail(out);
        }
        if let Some(estimate) = &self.estimate {
            estimate.detail(clock, out);
        }
    }

    fn name(&self) -> String {
        let constraint = self.explanation.as_ref().map(|of| of.constraint.clone());
        constraint.unwrap_or_else(|| self.reason.code.clone())
    }
}

/// What would become of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanView {
    /// `starts`, `preempts`, `waits` or `refused`.
    pub verdict: String,
    /// Where it would go.
    pub workers: Vec<WorkerView>,
    /// Jobs that would be suspended.
    pub victims: Vec<Shown<v1::PlannedVictim>>,
    /// What of its wishes the nodes meet; empty when it has none.
    pub nodes: Vec<PlannedNodeView>,
    /// Why it would wait.
    pub explanation: Option<ExplanationView>,
    /// Why it would be refused.
    pub refusal: Option<ReasonView>,
    /// When it may start, if that was asked.
    pub estimate: Option<EstimateView>,
    /// Revision that the answer reflects.
    pub revision: u64,
}

/// A node that a job would go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedNodeView {
    /// Its name.
    pub node: String,
    /// What of the job's wishes it meets.
    pub terms: Vec<Shown<v1::ScoreTerm>>,
}

impl From<v1::PlannedNode> for PlannedNodeView {
    fn from(node: v1::PlannedNode) -> Self {
        Self { node: node.node_name, terms: node.terms.into_iter().map(Into::into).collect() }
    }
}

impl From<v1::PlanJobResponse> for PlanView {
    fn from(response: v1::PlanJobResponse) -> Self {
        Self {
            verdict: words::verdict(response.verdict),
            workers: response.workers.into_iter().map(Into::into).collect(),
            victims: response.victims.into_iter().map(Into::into).collect(),
            nodes: response.nodes.into_iter().map(Into::into).collect(),
            explanation: response.explanation.map(Into::into),
            refusal: response.refusal.map(Into::into),
            estimate: response.estimate.map(Into::into),
            revision: response.read.unwrap_or_default().revision,
        }
    }
}

impl Detail for PlanView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(match self.verdict.as_str() {
            "starts" => "it would start at once".to_owned(),
            "preempts" => "it would start when other jobs are suspended".to_owned(),
            "waits" => "it would wait".to_owned(),
            "refused" => "it would be refused".to_owned(),
            other => other.to_owned(),
        });
        if let Some(explanation) = &self.explanation {
            explanation.detail(out);
        }
        if let Some(refusal) = &self.refusal {
            out.line("refusal", format!("{} ({})", refusal.sentence, refusal.code));
        }
        if let Some(estimate) = &self.estimate {
            estimate.detail(clock, out);
        }
        if !self.workers.is_empty() {
            out.table(
                &["RANK", "CARD", "NODE", "SLICES"],
                self.workers.iter().map(|worker| {
                    let slices: Vec<String> = worker.slices.iter().map(super::job::SliceView::short).collect();
                    let (rank, virtual_card) = (worker.rank.to_string(), worker.virtual_card.to_string());
                    vec![rank, virtual_card, worker.node.clone(), slices.join(" + ")]
                }),
            );
        }
        if !self.nodes.is_empty() {
            out.title("what spoke for its nodes".to_owned());
            let terms = self.nodes.iter().flat_map(|node| node.terms.iter().map(move |term| (node, term)));
            out.table(
                &["NODE", "TERM", "SCORE", "WHAT"],
                terms.map(|(node, term)| {
                    vec![node.node.clone(), term.name.clone(), term.score.to_string(), term.sentence.clone()]
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
        self.verdict.clone()
    }
}
