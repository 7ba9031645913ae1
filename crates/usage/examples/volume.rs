//! The size of large accounts, and the time that sums over them take:
//! `cargo run -p tessera-usage --example volume -- ROWS`.

#![expect(clippy::print_stdout, reason = "what a developer runs by hand prints for its developer")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_ledger::{AllocationId, JobId, LogTime, Rank, Revision};
use tessera_usage::books::Entry;
use tessera_usage::{Change, Class, Database, GroupBy, Holding, JobFacts, Query};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("usage.sqlite");
    let mut database = Database::open(&path, "pool")?;
    let began = Instant::now();
    for batch in (0..rows).collect::<Vec<_>>().chunks(1_000) {
        let entries: Vec<Entry> = batch.iter().map(|number| entry(*number)).collect();
        let last = entries.last().map(|entry| (entry.revision, entry.time)).unwrap_or_default();
        database.keep(&entries, last)?;
    }
    let kept = began.elapsed();
    drop(database);
    let bytes = std::fs::metadata(&path)?.len();
    println!("{rows} jobs: {} MiB, {} bytes a job, {:.1} us a job", bytes >> 20, bytes / rows, micros(kept, rows));
    let database = Database::open_to_read(&path)?;
    for by in [GroupBy::Queue, GroupBy::Submitter, GroupBy::Job] {
        let asked = Instant::now();
        let answer = database.sums(&Query { by: by.clone(), rows: 1_000, ..Query::default() })?;
        println!("sums by {by:?}: {} ms, {} rows", asked.elapsed().as_millis(), answer.rows.len());
    }
    Ok(())
}

fn micros(took: Duration, rows: u64) -> f64 {
    took.as_secs_f64() * 1e6 / rows.max(1) as f64
}

/// A job of one worker that began as the one a thousand before it ended.
fn entry(number: u64) -> Entry {
    let job = Arc::new(JobFacts {
        id: JobId(number + 1),
        name: "train".to_owned(),
        submitter: format!("person-{}", number % 200),
        queue: format!("queue-{}", number % 40),
        labels: BTreeMap::from([("project".to_owned(), format!("project-{}", number % 90))]),
    });
    let class = Class { kind: "gpu", vendor: "nvidia".to_owned(), model: "H100".to_owned() };
    let holding = Holding {
        allocation: AllocationId(number + 1),
        attempt: 1,
        rank: Rank(0),
        class,
        blocks: 1 + number % 989,
        block_milli_tflops: 1_000,
        memory_mib: 1_024,
    };
    let mut changes = vec![Change::Began { job, holding }];
    if let Some(ended) = number.checked_sub(1_000) {
        changes.push(Change::Ended { allocation: AllocationId(ended + 1), rank: Rank(0) });
    }
    Entry { revision: Revision(number + 1), time: LogTime(1_000_000 + number * 800), changes }
}
