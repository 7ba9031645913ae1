//! A job as it is shown.

use std::ops::Deref;

use serde::Serialize;
use tessera_api::v1::{self, JobState};

use super::checkpoint::{CheckpointView, name_of};
use super::shown::Shown;
use super::spec::SpecView;
use super::time::Clock;
use super::{UseView, words};
use crate::print::{Column, Tabular};

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobView {
    /// The job as the ledger has it.
    #[serde(flatten)]
    pub job: Shown<v1::Job>,
    /// The constraint that it waits for now; absent where that was not asked or the job does not wait.
    pub waits_for: Option<String>,
    /// The use that it makes of its allocation; absent where that was not asked or the job holds nothing.
    pub used: Option<UseView>,
    /// The spec as it was submitted.
    #[serde(flatten)]
    pub spec: SpecView,
    /// Exit code of its last attempt.
    pub exit_code: Option<i32>,
    /// Signal that ended its last attempt.
    pub signal: Option<i32>,
}

impl From<v1::Job> for JobView {
    fn from(mut job: v1::Job) -> Self {
        let last = job.history.last();
        let (exit_code, signal) = last.map_or((None, None), |attempt| (attempt.exit_code, attempt.signal));
        let spec = job.spec.take().unwrap_or_default().into();
        Self { job: job.into(), waits_for: None, used: None, spec, exit_code, signal }
    }
}

impl Deref for JobView {
    type Target = v1::Job;

    fn deref(&self) -> &v1::Job {
        &self.job
    }
}

/// The address at which rank 0 listens.
pub(super) fn master_of(allocation: &v1::Allocation) -> String {
    format!("{}:{}", allocation.master_address, allocation.master_port)
}

/// The checkpoint that an attempt went on from; none: it began from the beginning.
pub(super) fn from_of(attempt: &v1::Attempt) -> Option<String> {
    (attempt.from_attempt > 0).then(|| name_of(attempt.from_attempt, attempt.from_sequence))
}

/// Thousandths of a TFLOPS as TFLOPS.
pub(super) fn tflops(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

impl JobView {
    /// Returns whether its state is final.
    #[must_use]
    pub fn is_over(&self) -> bool {
        use JobState::{Cancelled, Completed, Failed, Timeout};
        matches!(self.state(), Completed | Failed | Cancelled | Timeout)
    }

    /// Returns whether it waits for an allocation, or would if nobody kept it from that.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state(), JobState::Pending | JobState::Suspended)
    }

    /// Its state, in a word.
    #[must_use]
    pub fn stands(&self) -> String {
        words::job_state(self.state)
    }

    /// The reason of its state.
    #[must_use]
    pub fn why(&self) -> v1::Reason {
        self.reason.clone().unwrap_or_default()
    }

    /// The checkpoints that it can resume from, newest first.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<CheckpointView> {
        self.checkpoints.iter().cloned().map(Into::into).collect()
    }

    /// The worker of several by which it failed: its rank, and its node's name.
    #[must_use]
    pub fn failed_by(&self) -> Option<(u32, &str)> {
        let last = self.history.last().filter(|last| self.state() == JobState::Failed && last.reason == self.reason);
        last.and_then(decided_by)
    }

    /// The reason for which it ended, and the worker of which that is said.
    #[must_use]
    pub fn why_ended(&self) -> String {
        by(self.why().sentence, self.failed_by())
    }

    /// The reason of its state, in a word.
    #[must_use]
    pub fn why_short(&self) -> String {
        self.waits_for.clone().unwrap_or_else(|| self.why().code)
    }

    /// The virtual card that it requests.
    pub(super) fn card(&self) -> v1::VirtualCardRequest {
        self.spec.virtual_card.clone().unwrap_or_default()
    }

    fn nodes(&self) -> String {
        let workers = self.allocation.iter().flat_map(|allocation| &allocation.workers);
        let mut nodes: Vec<&str> = workers.map(|worker| worker.node_name.as_str()).collect();
        nodes.dedup();
        if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") }
    }

    fn demand(&self) -> String {
        let each = tflops(self.card().milli_tflops);
        if self.spec.gang > 1 { format!("{}x{each}", self.spec.gang) } else { each.to_string() }
    }
}

impl Tabular for JobView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("JOB"),
            Column::left("NAME"),
            Column::left("QUEUE"),
            Column::state("STATE"),
            Column::left("REASON"),
            Column::right("TFLOPS"),
            Column::right("PRIO"),
            Column::right("AGE"),
            Column::right("RAN"),
            Column::left("NODES"),
            Column::wide("SPAN"),
            Column::wide("MEMORY"),
            Column::wide("ATTEMPTS"),
            Column::wide("USER"),
            Column::wide("EXIT"),
        ];
        COLUMNS
    }

    fn cells(&self, clock: &Clock) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.spec.name.clone(),
            self.spec.queue.clone(),
            self.stands(),
            self.why_short(),
            self.demand(),
            self.spec.priority().to_string(),
            clock.ago(self.submitted_at.as_ref()),
            clock.between(self.started_at.as_ref(), self.ended_at.as_ref()),
            self.nodes(),
            words::span(self.card().span),
            format!("{} MiB", self.card().memory_mib),
            self.attempts.to_string(),
            self.submitter.clone(),
            exit_text(self.exit_code, self.signal),
        ]
    }

    fn name(&self) -> String {
        format!("job/{}", self.id)
    }
}

/// The worker of several that decided how an attempt ended.
fn decided_by(attempt: &v1::Attempt) -> Option<(u32, &str)> {
    let rank = attempt.decisive_rank.filter(|_| attempt.nodes.len() > 1)?;
    Some((rank, attempt.nodes.get(usize::try_from(rank).ok()?)?))
}

/// A sentence about a worker, with the worker's name.
fn by(said: String, worker: Option<(u32, &str)>) -> String {
    match worker {
        Some((rank, node)) => format!("{said} (rank {rank} on {node})"),
        None => said,
    }
}

/// The end of an attempt, and the worker that decided it where there are several.
pub(super) fn exit_of(attempt: &v1::Attempt) -> String {
    by(exit_text(attempt.exit_code, attempt.signal), decided_by(attempt))
}

pub(super) fn exit_text(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => code.to_string(),
        (None, None) => "-".to_owned(),
    }
}

/// The slices of a worker, each as `gpu 0 [1-9]`: kind, index of the card, block numbers.
pub(super) fn slices(worker: &v1::Worker) -> String {
    let short = |of: &v1::SliceView| {
        let card = of.slice.map_or(0, |slice| slice.card_index);
        format!("{} {card} [{}-{}]", words::kind(of.kind), of.first_block_number, of.last_block_number)
    };
    worker.slices.iter().map(short).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_named_only_where_the_job_failed_by_it() {
        let reason = |sentence: &str| Some(v1::Reason { sentence: sentence.to_owned(), ..v1::Reason::default() });
        let nodes = ["n0", "n1"].map(str::to_owned).to_vec();
        let attempt =
            v1::Attempt { decisive_rank: Some(1), nodes, reason: reason("exit code 3"), ..Default::default() };
        let ended = |state: JobState, why| {
            let history = vec![attempt.clone()];
            JobView::from(v1::Job { state: state.into(), reason: reason(why), history, ..v1::Job::default() })
                .why_ended()
        };
        assert_eq!(ended(JobState::Failed, "exit code 3"), "exit code 3 (rank 1 on n1)");
        assert_eq!(ended(JobState::Cancelled, "cancelled by bob"), "cancelled by bob");
        assert_eq!(ended(JobState::Failed, "no node has room"), "no node has room");
    }
}
