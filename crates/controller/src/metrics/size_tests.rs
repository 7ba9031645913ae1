//! How large the page of a member becomes: bounded, whatever the fleet.

use std::sync::Arc;

use tessera_ledger::{Command, EntryPosition, LogTime, QueueSettings, Request, Revision, State};
use tessera_metrics::{OTHER_QUEUES, QUEUES_SHOWN};
use tokio::sync::watch;

use super::*;
use crate::fixture::{card, job, node};

/// A ledger of so many nodes with eight cards each, and so many queues with a job each, made in few entries.
fn fleet(nodes: u32, queues: usize) -> State {
    let registering = (0..nodes).map(|number| {
        let name = format!("node-{number:05}");
        let cards = (0..8).map(|index| card(&name, index, 100)).collect();
        Command::RegisterNode { node: node(&name), cards }
    });
    let named = |number: usize| format!("queue-{number:04}");
    let queueing = (0..queues).map(|number| Command::SetQueue { queue: QueueSettings::new(named(number)) });
    let submitting = (0..queues).map(|number| {
        let spec = tessera_ledger::JobSpec { queue: named(number), ..job(4) };
        tessera_testkit::submission(spec)
    });
    let requests: Vec<Request> = registering.chain(queueing).chain(submitting).map(tessera_testkit::request).collect();
    let mut state = State::new();
    state.apply(EntryPosition { revision: Revision(1), time: LogTime(1_000_000) }, &requests);
    state
}

/// Of the 5,000 series that a member may have, those that are not of its calls.
const MOST: usize = 4_000;

fn series(page: &str) -> usize {
    page.lines().filter(|line| !line.starts_with('#')).count()
}

/// Everything of a member but consensus, which has a few dozen series of its own, and what it serves, which has others
/// that depend on nothing in the pool.
fn member(state: State) -> (Arc<Metrics>, watch::Sender<Arc<State>>) {
    let metrics = Metrics::new();
    let (publish, published) = watch::channel(Arc::new(state));
    metrics.show(LedgerView::new(published), Telemetry::default(), None);
    (metrics, publish)
}

#[test]
fn a_hundred_thousand_cards_make_a_page_no_longer() {
    let (metrics, _publish) = member(fleet(12_500, 1));
    let page = metrics.encode().expect("every metric can be written");
    assert!(page.contains("tessera_pool_limit_used{limit=\"cards\"} 100000"), "{page}");
    assert!(series(&page) < MOST, "{} series", series(&page));
}

#[test]
fn queues_beyond_those_shown_are_summed_up() {
    let queues = 40 * QUEUES_SHOWN;
    let state = fleet(1, queues);
    let submitted: Vec<String> = state.queues().map(|queue| queue.settings.name.clone()).collect();
    let (metrics, _publish) = member(state);
    for queue in &submitted {
        metrics.job_submitted(queue);
        metrics.job_waited(queue, Duration::from_secs(1), None);
        metrics.job_finished(queue, "completed");
        metrics.job_finished(queue, "failed");
    }
    metrics.jobs_wait(Some(submitted.iter().map(|queue| ((queue.clone(), WaitCode::NoRoom), 1)).collect()));
    let page = metrics.encode().expect("every metric can be written");
    assert!(series(&page) < MOST, "{} series", series(&page));
    let rest = queues + 1 - QUEUES_SHOWN;
    // The queue `default` is one of those shown, and has no job.
    let line = format!("tessera_jobs{{queue=\"{OTHER_QUEUES}\",state=\"pending\"}} {rest}");
    assert!(page.contains(&line), "{line}");
}
