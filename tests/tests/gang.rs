//! A gang of three workers on three nodes that find each other and add up their numbers.

use anyhow::{Context, Result};
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_over_three_nodes_reduces_together() -> Result<()> {
    let pool = Pool::start(Options::default()).await?;
    let client = pool.client();
    let mut spec = on(shell(&format!("exec python3 {}", pool.program("gang.py"))), 5, Span::Card);
    spec.gang = 3;
    let job = submit(&client, spec).await?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    let mut nodes = done.history[0].nodes.clone();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "five of eight blocks: one worker on each node");
    for rank in 0..3 {
        assert_eq!(output(&client, job, rank).await?, format!("rank {rank}: sum 6\n"));
    }
    pool.verify().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_gang_is_that_of_the_worker_that_failed() -> Result<()> {
    let pool = Pool::start(Options::default()).await?;
    let ran =
        pool.cli(&["job", "run", "--gang", "3", "--", "sh", "-c", "[ $RANK = 2 ] && exit 3; exec sleep 600"]).await?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(3), "the others were stopped for that: {said}");
    assert!(said.contains("exit code 3") && said.contains("rank 2 on "), "{said}");
    assert!(said.contains("--rank 2 --stderr"), "{said}");
    pool.verify().await
}

/// The agent of rank 2 is away when its program fails, and the others fail because their peer is gone, a second after
/// that: they are heard of first.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_told_in_a_hello_decides_when_it_was_the_first() -> Result<()> {
    let mut pool = Pool::start(Options { lease: [200, 60_000, 70_000, 90_000], ..Options::default() }).await?;
    let client = pool.client();
    let flags = pool.shared_folder("flags")?;
    let waits = |flag: &str| format!("while [ ! -e {}/{flag} ]; do sleep 0.05; done", flags.display());
    let line = format!("[ $RANK = 2 ] && {{ {}; exit 3; }}; {}; sleep 1; exit 7", waits("fail"), waits("gone"));
    let mut spec = on(shell(&line), 5, Span::Card);
    spec.gang = 3;
    let job = submit(&client, spec).await?;
    let runs = wait_for(&client, job, JobState::Running).await?;
    let name = runs.history[0].nodes[2].clone();
    let place = pool.nodes.iter().position(|node| node.name == name).context("a node of the pool")?;
    pool.kill_agent(place);
    std::fs::write(flags.join("fail"), "")?;
    until("rank 2 to have ended", async || pool.processes_on(place).is_empty().then_some(())).await?;
    std::fs::write(flags.join("gone"), "")?;
    until("the others to be heard of", async || {
        let heard = get(&client, job).await.ok()?;
        (heard.history[0].exit_code == Some(7) || heard.state() == JobState::Completing).then_some(())
    })
    .await?;
    pool.start_agent(place)?;
    let ended = wait_for(&client, job, JobState::Failed).await?;
    let attempt = &ended.history[0];
    assert_eq!((attempt.decisive_rank, attempt.exit_code), (Some(2), Some(3)), "{attempt:?}");
    pool.verify().await
}
