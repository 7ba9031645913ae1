//! Measures the time that the metrics page of a large pool takes to make: `cargo run --release -p tessera-controller
//! --example metrics_page -- NODES JOBS`. Every node has eight cards.

#![expect(clippy::print_stdout, reason = "what a developer runs by hand prints for its developer")]

use std::sync::Arc;
use std::time::Instant;

use tessera_controller::metrics::Metrics;
use tessera_controller::telemetry::Telemetry;
use tessera_controller::view::LedgerView;
use tessera_ledger::{CardKind, Command, EntryPosition, LogTime, Request, Revision, State};
use tessera_testkit::{card, job, node, numbered, request, submission};
use tokio::sync::watch;

/// Commands of one entry.
const BATCH: usize = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let nodes = numbers.next().transpose()?.unwrap_or(12_500);
    let jobs = numbers.next().transpose()?.unwrap_or(100_000);
    let registering = (0..nodes).map(|number| Command::RegisterNode {
        node: node(&format!("node-{number:05}")),
        cards: numbered((0..8).map(|_| card(CardKind::Gpu, 989, 81_920))),
    });
    let submitting = (0..jobs).map(|_| submission(job(4, 1_024)));
    let commands: Vec<Request> = registering.chain(submitting).map(request).collect();
    let mut state = State::new();
    for batch in commands.chunks(BATCH) {
        let revision = Revision(state.revision().0 + 1);
        state.apply(EntryPosition { revision, time: LogTime(revision.0 * 1_000) }, batch);
    }
    println!("{} cards, {jobs} jobs", state.card_count());
    let metrics = Metrics::new();
    let (_publish, published) = watch::channel(Arc::new(state));
    metrics.show(LedgerView::new(published), Telemetry::default(), None);
    for number in 1..=5 {
        let began = Instant::now();
        let page = metrics.encode()?;
        let series = page.lines().filter(|line| !line.starts_with('#')).count();
        println!("page {number}: {:.1} ms, {series} series", began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}
