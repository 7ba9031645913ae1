//! Counts the events of entries. Only the leader counts, so that sums over members are right.

use tessera_ledger::{EntryEvents, Event, Job, JobState, NodeState, Reason, State, WorkerState};
use tessera_otlp::traceparent::sampled_trace;

use crate::metrics::Metrics;

/// Counts an event of an entry that lies between `known` and `state`.
pub(crate) fn count(metrics: &Metrics, known: &State, state: &State, entry: &EntryEvents, event: &Event) {
    match event {
        Event::Job { job, from, to, reason, .. } => {
            // An ended job stays in the ledger for longer than a leader lags behind it.
            let Some(job) = state.job(*job) else { return };
            job_moved(metrics, state, job, *from, *to, reason);
        }
        Event::Queue { .. } => metrics.queues_changed(state),
        Event::Quarantined { node, job, allocation, rank, message } => {
            metrics.quarantined();
            tracing::error!(
                %node, %job, %allocation, %rank, message,
                "a worker was killed and is not confirmed to be gone: its blocks are quarantined until an operator decides"
            );
        }
        Event::CheckpointSkipped { job, checkpoint, newest_left, message } => {
            metrics.checkpoint_skipped();
            tracing::warn!(%job, ?checkpoint, ?newest_left, message, "a job does not go on from a checkpoint");
        }
        Event::Move { id, in_progress: false, .. } => {
            if let Some(movement) = known.move_in_progress(*id) {
                metrics.migration_took(entry.time.since(movement.started_at));
            }
        }
        Event::Worker { allocation, rank, node, state: now, .. } => {
            let before = known.allocation(*allocation).and_then(|held| held.worker(*rank)).map(|worker| worker.state);
            let lost = state.node(*node).is_some_and(|node| node.state == NodeState::Lost);
            if let Some(outcome) = fenced(before, *now, lost) {
                metrics.fenced(outcome);
            }
        }
        _ => {}
    }
}

/// The outcome, as metrics name it, for a worker whose blocks were in doubt; `None` if they were not, or still are.
fn fenced(before: Option<WorkerState>, now: WorkerState, node_lost: bool) -> Option<&'static str> {
    match (before?, now) {
        (WorkerState::Lost, WorkerState::Stopped) => Some("confirmed"),
        (WorkerState::Lost, WorkerState::Running | WorkerState::Draining) => Some("running"),
        (before, WorkerState::Stopped) if node_lost && before != WorkerState::Stopped => Some("released"),
        _ => None,
    }
}

fn job_moved(metrics: &Metrics, state: &State, job: &Job, from: Option<JobState>, to: JobState, reason: &Reason) {
    let queue = &job.spec.queue;
    if from.is_none() {
        metrics.job_submitted(state, queue);
    }
    if from == Some(to) {
        return;
    }
    if to.is_terminal() {
        metrics.job_finished(state, queue, to.name());
    }
    match (from, to, reason) {
        (Some(JobState::Pending), JobState::Starting, _) if job.attempts == 1 => {
            let waited = job.changed_at.since(job.submitted_at);
            metrics.job_waited(state, queue, waited, sampled_trace(&job.traceparent));
        }
        (_, JobState::Suspending, Reason::Preempted { .. }) => metrics.preempted("priority"),
        (_, JobState::Suspending, Reason::Drained { .. }) => metrics.preempted("drain"),
        (Some(JobState::Moving), JobState::Running, Reason::Started) => metrics.migrated("done"),
        (Some(JobState::Moving), _, Reason::MoveFailed) => metrics.migrated("failed"),
        (Some(JobState::Moving), JobState::Completing, _) => metrics.migrated("overtaken"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Ledger, job};
    use tessera_ledger::{Command, Revision};

    #[test]
    fn the_life_of_a_job_is_counted_by_queue() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let waits = ledger.submit(job(4));
        let runs = ledger.submit(job(4));
        ledger.grant(runs, &[(node, 0, 4)]);
        ledger.apply(Command::CancelJob { job: waits });
        let metrics = Metrics::new();
        let entries = ledger.state.events_after(Revision(0)).expect("few entries are all remembered");
        for entry in entries {
            for event in entry.events.iter() {
                count(&metrics, &State::new(), &ledger.state, entry, event);
            }
        }
        let page = metrics.encode().expect("every metric can be written");
        for line in [
            "tessera_jobs_submitted_total{queue=\"default\"} 2",
            "tessera_jobs_finished_total{queue=\"default\",outcome=\"cancelled\"} 1",
            "tessera_job_wait_seconds_count{queue=\"default\"} 1",
        ] {
            assert!(page.contains(line), "{line} is not in:\n{page}");
        }
    }
}
