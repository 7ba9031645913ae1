//! The timings of leases are changed while work runs (L2, L6).
#![allow(clippy::float_cmp)] // settings are shown as they were given

use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The setting that says how long a silent node's blocks are kept at present.
const CEILING: &str = "lease_regrant_ceiling_seconds";

/// A setting of the pool, in seconds.
async fn setting(pool: &Pool, name: &str) -> Result<f64> {
    let text = pool.cli_ok(&["pool", "config", "show", "--output", "json"]).await?;
    let shown: serde_json::Value = serde_json::from_str(&text)?;
    shown[name].as_f64().with_context(|| format!("{name} in {shown}"))
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

/// Longer and shorter, back and forth: work that runs is not disturbed, and who leads next knows what was
/// granted before.
#[tokio::test(flavor = "multi_thread")]
async fn timings_are_changed_while_a_worker_runs() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)]], lease: [200, 5_000, 6_500, 9_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    assert_eq!(setting(&pool, CEILING).await?, 9.0, "nothing else was ever in force while there was a node");
    let (file, go) = (pool.shared_folder("starts")?.join("pids"), pool.folder().join("go"));
    let line = format!("echo one >> {}; while [ ! -e {} ]; do sleep 0.05; done", file.display(), go.display());
    let job = submit(&client, shell(&line)).await?;
    wait_for(&client, job, JobState::Running).await?;
    until("the worker to start", async || (lines(&file) == 1).then_some(())).await?;

    pool.set_lease([400, 8_000, 10_000, 14_000]).await?;
    assert_eq!(setting(&pool, CEILING).await?, 14.0);
    pool.set_lease([100, 5_000, 6_000, 8_000]).await?;
    assert_eq!(setting(&pool, "lease_regrant_after_seconds").await?, 8.0);
    assert_eq!(setting(&pool, CEILING).await?, 14.0, "longer leases may still run");
    let shown = pool.cli_ok(&["pool", "config", "show"]).await?;
    assert!(shown.contains("blocks are granted again after 14s for now"), "{shown}");

    // Whoever leads next knows of the longer leases too, and sees to it that they are forgotten when they are over.
    let leader = pool.leader().await?;
    pool.kill_member(leader);
    let over = async || setting(&pool, CEILING).await.ok().filter(|ceiling| *ceiling == 8.0);
    until("the longer leases to be over", over).await?;

    std::fs::write(&go, "")?;
    wait_for(&client, job, JobState::Completed).await?;
    let job = get(&client, job).await?;
    assert_eq!((job.attempts, lines(&file)), (1, 1), "it was never disturbed: {:?}", job.history);
    pool.verify().await
}

/// The leader that granted long leases is gone, and shorter ones are in force: a worker whose agent is stopped is dead
/// before anybody else computes on its blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_under_a_longer_lease_is_dead_before_its_blocks_are_granted_again() -> Result<()> {
    let nodes = vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("npu", 2)]];
    let mut pool = Pool::start(Options { nodes, lease: [600, 12_000, 15_000, 20_000], ..Options::default() }).await?;
    let client = pool.client();
    let attempts = pool.shared_folder("attempts")?;
    std::fs::write(attempts.join("lock"), "")?;
    // Whoever computes holds the lock for as long as it lives.
    let line = format!(
        "cd {}; exec 9<lock; flock -n 9 || touch overlap; mktemp run.XXXXXX; exec sleep 600",
        attempts.display()
    );
    let begun = || {
        let names = std::fs::read_dir(&attempts).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("run.")).count()
    };
    let job = submit(&client, on(shell(&line), 8, Span::Card)).await?;
    let running = wait_for(&client, job, JobState::Running).await?;
    let first = running.history[0].nodes[0].clone();
    let place = pool.nodes.iter().position(|node| node.name == first).expect("a node of this pool");
    until("the first attempt to begin", async || (begun() == 1).then_some(())).await?;
    assert!(!pool.processes_on(place).is_empty());
    pool.set_lease([300, 4_000, 5_200, 7_000]).await?;
    pool.agent(place).signal(Signal::SIGSTOP)?;
    let leader = pool.leader().await?;
    pool.kill_member(leader);
    until("the second attempt to begin", async || (begun() == 2).then_some(())).await?;
    assert!(!attempts.join("overlap").exists(), "two attempts computed at once");
    pool.agent(place).signal(Signal::SIGCONT)?;
    pool.verify().await
}

/// Settings that would stop work for nothing are refused in words that say which rule they break, and nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn timings_that_contradict_each_other_are_refused() -> Result<()> {
    let pool = Pool::start(Options { members: 1, nodes: vec![], ..Options::default() }).await?;
    for (lease, rule) in [
        ([900, 2_000, 3_000, 5_000], "three heartbeats"),
        ([200, 700, 3_000, 5_000], "election_timeout_max"),
        ([200, 2_000, 2_050, 5_000], "half a heartbeat"),
        ([200, 2_000, 3_000, 3_100], "a quarter longer"),
    ] {
        let refused = pool.set_lease(lease).await.expect_err("it must be refused").to_string();
        assert!(refused.contains("config.leases.") && refused.contains(rule), "{refused}");
    }
    assert_eq!(setting(&pool, "lease_stop_after_seconds").await?, 2.0);
    Ok(())
}
