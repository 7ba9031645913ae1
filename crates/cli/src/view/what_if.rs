//! The effect of a change.

use tessera_api::v1;

use super::compaction::{free, places};
use super::shown::Shown;
use super::time::Clock;
use super::words;
use crate::print::{Detail, Page};

/// The effect that a change would have.
pub type WhatIfView = Shown<v1::WhatIfResponse>;

fn cells(job: &v1::AffectedJob) -> Vec<String> {
    let then = match &job.explanation {
        Some(explanation) => format!("waits: {}", explanation.sentence),
        None => places(&job.to),
    };
    let from = if job.from.is_empty() { "-".to_owned() } else { job.from.join(", ") };
    vec![job.job_id.to_string(), job.priority.to_string(), job.queue.clone(), from, then]
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
                let memory = |room: Option<v1::FreeRoom>| room.unwrap_or_default().memory_mib;
                vec![
                    words::kind(of.kind),
                    format!("{} -> {}", of.cards_before, of.cards_after),
                    format!("{} -> {}", free(of.before), free(of.after)),
                    format!("{} -> {}", memory(of.before), memory(of.after)),
                ]
            }),
        );
        for (title, jobs) in [("would be suspended", &self.displaced), ("would start", &self.started)] {
            if !jobs.is_empty() {
                out.title(title.to_owned());
                out.table(&["JOB", "PRIO", "QUEUE", "FROM", "THEN"], jobs.iter().map(cells));
            }
        }
    }

    fn name(&self) -> String {
        let jobs = self.displaced.iter().chain(&self.started);
        jobs.map(|job| format!("job/{}", job.job_id)).collect::<Vec<_>>().join("\n")
    }
}
