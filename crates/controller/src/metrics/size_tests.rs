//! The size of the metrics page of a member: bounded, whatever the fleet.

use std::collections::BTreeSet;
use std::sync::Arc;

use tessera_ledger::{Command, EntryPosition, LogTime, QueueSettings, Request, Revision, State};
use tessera_metrics::declare::Process;
use tessera_metrics::{OTHER_QUEUES, QUEUES_SHOWN};
use tokio::sync::watch;

use super::*;
use crate::fixture::{Ledger, card, job, node};

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

/// The part of the 5,000 series allowed to a member that is not for its calls.
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

/// Everything that is counted by queue happens in each queue.
fn happen(metrics: &Metrics, state: &State) {
    let names: Vec<&str> = state.queues().map(|queue| queue.settings.name.as_str()).collect();
    for queue in &names {
        metrics.job_submitted(state, queue);
        metrics.job_waited(state, queue, Duration::from_secs(1), None);
        metrics.job_finished(state, queue, "completed");
        metrics.job_finished(state, queue, "failed");
    }
    metrics.jobs_wait(Some(names.iter().map(|queue| ((queue.to_string(), WaitCode::NoRoom), 1)).collect()));
}

/// Metrics that say something of a queue.
fn saying(page: &str, queue: &str) -> BTreeSet<&'static str> {
    let of_queue = format!("queue=\"{queue}\"");
    let lines: Vec<&str> = page.lines().filter(|line| line.contains(&of_queue)).collect();
    let by_queue = table::all().filter(|metric| metric.of == Process::Member && metric.labels.contains(&"queue"));
    let is_of = |line: &str, name: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with("_bucket{"))
    };
    by_queue.map(|metric| metric.name).filter(|name| lines.iter().any(|line| is_of(line, name))).collect()
}

#[test]
fn what_is_shown_of_queues_ends_with_them_and_the_living_have_their_names() {
    let (mut ledger, mut ended) = (Ledger::default(), Vec::new());
    let node = ledger.node("a", &[10]);
    for number in 0..QUEUES_SHOWN + 5 {
        let queue = format!("gone-{number}");
        ledger.apply(Command::SetQueue { queue: QueueSettings::new(queue.clone()) });
        let id = ledger.submit(tessera_ledger::JobSpec { queue: queue.clone(), ..job(4) });
        ended.push((id, queue));
    }
    let (metrics, publish) = member(ledger.state.clone());
    happen(&metrics, &ledger.state);
    let page = metrics.encode().expect("every metric can be written");
    let not_by_hand = BTreeSet::from([table::JOBS_IDLE.declaration.name]);
    let by_queue = table::all().filter(|metric| metric.of == Process::Member && metric.labels.contains(&"queue"));
    let expected: BTreeSet<_> = by_queue.map(|metric| metric.name).filter(|name| !not_by_hand.contains(name)).collect();
    assert_eq!(saying(&page, "gone-0"), expected, "a metric by queue that is new happens here, too");

    for (id, queue) in &ended {
        ledger.apply(Command::CancelJob { job: *id });
        ledger.apply(Command::RemoveQueue { name: queue.clone() });
    }
    ledger.apply(Command::SetQueue { queue: QueueSettings::new("production".to_owned()) });
    let runs = ledger.submit(tessera_ledger::JobSpec { queue: "production".to_owned(), ..job(4) });
    ledger.grant(runs, &[(node, 0, 4)]);
    metrics.queues_changed(&ledger.state);
    happen(&metrics, &ledger.state);
    publish.send_replace(Arc::new(ledger.state.clone()));
    let page = metrics.encode().expect("every metric can be written");
    assert_eq!(saying(&page, "production"), expected);
    for (_, queue) in &ended {
        assert_eq!(saying(&page, queue), BTreeSet::new(), "{queue} is gone");
    }
    // Their jobs are known for longer, and are counted.
    let line = format!("tessera_jobs{{queue=\"{OTHER_QUEUES}\",state=\"cancelled\"}} {}", ended.len());
    assert!(page.contains(&line), "{line} is not in:\n{page}");
}

#[test]
fn queues_beyond_those_shown_are_summed_up() {
    let queues = 40 * QUEUES_SHOWN;
    let state = fleet(1, queues);
    let (metrics, _publish) = member(state.clone());
    happen(&metrics, &state);
    let page = metrics.encode().expect("every metric can be written");
    assert!(series(&page) < MOST, "{} series", series(&page));
    let rest = queues + 1 - QUEUES_SHOWN;
    // The queue `default` is one of those shown, and has no job.
    let line = format!("tessera_jobs{{queue=\"{OTHER_QUEUES}\",state=\"pending\"}} {rest}");
    assert!(page.contains(&line), "{line}");
}
