//! A gang of three workers on three nodes that find each other and add up their numbers.

use anyhow::Result;
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};

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
