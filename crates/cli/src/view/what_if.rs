//! What a change would do.

use serde::Serialize;
use tessera_api::v1;

use super::answer::ExplanationView;
use super::compaction::{RoomView, places};
use super::shown::Shown;
use super::time::Clock;
use super::{WorkerView, words};
use crate::print::{Detail, Page};

/// What cards of one kind offer: compute and memory, as it is and after the change.
pub type CapacityView = Shown<v1::CapacityChange>;

/// A job for which the change makes a difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AffectedView {
    /// The job.
    pub job_id: u64,
    /// Its queue.
    pub queue: String,
    /// Its priority.
    pub priority: u32,
    /// Nodes that it is on.
    pub from: Vec<String>,
    /// Where it would run.
    pub to: Vec<WorkerView>,
    /// Why it would wait.
    pub explanation: Option<ExplanationView>,
    /// What suspending does to its work.
    pub checkpoint_mode: String,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIfView {
    /// What the pool offers.
    pub capacity: Vec<CapacityView>,
    /// Jobs that would be suspended.
    pub displaced: Vec<AffectedView>,
    /// Jobs that would start.
    pub started: Vec<AffectedView>,
    /// Jobs that wait.
    pub waiting_before: u64,
    /// Jobs that would wait.
    pub waiting_after: u64,
    /// The node that hosts, labels and links of added ones were taken from; empty when none was.
    pub like_node: String,
    /// Whether everything was played through.
    pub whole: bool,
    /// Revision that the answer reflects.
    pub revision: u64,
}

impl From<v1::AffectedJob> for AffectedView {
    fn from(job: v1::AffectedJob) -> Self {
        Self {
            job_id: job.job_id,
            queue: job.queue,
            priority: job.priority,
            from: job.from,
            to: job.to.into_iter().map(Into::into).collect(),
            explanation: job.explanation.map(Into::into),
            checkpoint_mode: words::checkpoint_mode(job.checkpoint_mode),
        }
    }
}

impl From<v1::WhatIfResponse> for WhatIfView {
    fn from(response: v1::WhatIfResponse) -> Self {
        Self {
            capacity: response.capacity.into_iter().map(Into::into).collect(),
            displaced: response.displaced.into_iter().map(Into::into).collect(),
            started: response.started.into_iter().map(Into::into).collect(),
            waiting_before: response.waiting_before,
            waiting_after: response.waiting_after,
            like_node: response.like_node,
            whole: response.whole,
            revision: response.read.unwrap_or_default().revision,
        }
    }
}

impl AffectedView {
    fn cells(&self) -> Vec<String> {
        let then = match &self.explanation {
            Some(explanation) => format!("waits: {}", explanation.sentence),
            None => places(&self.to),
        };
        let from = if self.from.is_empty() { "-".to_owned() } else { self.from.join(", ") };
        vec![self.job_id.to_string(), self.priority.to_string(), self.queue.clone(), from, then]
    }
}

impl Detail for WhatIfView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let waits = self.displaced.iter().filter(|job| job.explanation.is_some()).count();
        out.title(format!(
            "{} jobs would be suspended, {waits} of them would wait; {} waiting jobs would start",
            self.displaced.len(),
            self.started.len()
        ));
        out.line("waiting", format!("{} -> {} jobs", self.waiting_before, self.waiting_after));
        if !self.like_node.is_empty() {
            out.line("taken from", format!("{}: what was not said of hosts, labels and links", self.like_node));
        }
        if !self.whole {
            out.line("note", "the pool is so busy that not everything was played through");
        }
        out.table(
            &["KIND", "CARDS", "TFLOPS", "MEMORY MIB"],
            self.capacity.iter().map(|of| {
                let [before, after] = [of.before, of.after].map(|room| RoomView::from(room.unwrap_or_default()));
                vec![
                    words::kind(of.kind),
                    format!("{} -> {}", of.cards_before, of.cards_after),
                    format!("{} -> {}", before.tflops(), after.tflops()),
                    format!("{} -> {}", before.memory_mib, after.memory_mib),
                ]
            }),
        );
        for (title, jobs) in [("would be suspended", &self.displaced), ("would start", &self.started)] {
            if !jobs.is_empty() {
                out.title(title.to_owned());
                out.table(&["JOB", "PRIO", "QUEUE", "FROM", "THEN"], jobs.iter().map(AffectedView::cells));
            }
        }
    }

    fn name(&self) -> String {
        let jobs = self.displaced.iter().chain(&self.started);
        jobs.map(|job| format!("job/{}", job.job_id)).collect::<Vec<_>>().join("\n")
    }
}
