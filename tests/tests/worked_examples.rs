//! The patent's worked examples, through real members, real agents and real processes.

use anyhow::{Context, Result};
use tessera_api::v1::{CancelJobRequest, CardKind, Job, JobState, Span};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::pool::{CardSpec, Options, Pool, REFERENCE_POOL};
use tessera_tests::wait::until;

async fn pool(nodes: &[&[CardSpec]]) -> Result<Pool> {
    let nodes = nodes.iter().map(|cards| cards.to_vec()).collect();
    Pool::start(Options { nodes, in_order: true, ..Options::default() }).await
}

/// The kinds and numbers of the first and the last block of each slice of a job.
fn numbers(job: &Job) -> Vec<(CardKind, u64, u64)> {
    let workers = job.allocation.iter().flat_map(|allocation| &allocation.workers);
    let slices = workers.flat_map(|worker| &worker.slices);
    slices.map(|slice| (slice.kind(), slice.first_block_number, slice.last_block_number)).collect()
}

/// Slices that are neighbours and of one kind, as one.
fn regions(job: &Job) -> Vec<(CardKind, u64, u64)> {
    let mut regions: Vec<(CardKind, u64, u64)> = Vec::new();
    for (kind, first, last) in numbers(job) {
        match regions.last_mut().filter(|before| before.0 == kind && before.2 + 1 == first) {
            Some(before) => before.2 = last,
            None => regions.push((kind, first, last)),
        }
    }
    regions
}

async fn run(client: &Client, tflops: u64) -> Result<u64> {
    let job = submit(client, on(shell("sleep 600"), tflops, Span::Card)).await?;
    wait_for(client, job, JobState::Running).await?;
    Ok(job)
}

async fn cancel(client: &Client, job: u64) -> Result<()> {
    client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
    wait_for(client, job, JobState::Cancelled).await?;
    Ok(())
}

/// P8, P9: 200 blocks in the order of registration, one region per kind; 50 TFLOPS on node 0 are blocks 1 to 18 of its
/// GPUs, 19 to 38 of its NPU and 39 to 50 of its FPGA.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_tflops_on_node_0_of_the_reference_pool() -> Result<()> {
    let pool = pool(&REFERENCE_POOL).await?;
    let client = pool.client();
    let mut bases = Vec::new();
    for node in client.list_nodes(Default::default()).await?.nodes {
        bases.push((node.first_block_number, node.blocks.context("a node has blocks")?.free));
    }
    assert_eq!(bases, [(1, 63), (64, 56), (120, 26), (146, 55)]);

    let mut mixed = on(shell("sleep 600"), 50, Span::Node);
    mixed.virtual_card.get_or_insert_default().mixed = true;
    // Left to itself it goes where least is left over, as the README says.
    let job = submit(&client, mixed.clone()).await?;
    let running = wait_for(&client, job, JobState::Running).await?;
    assert_eq!(regions(&running), [(CardKind::Gpu, 146, 173), (CardKind::Npu, 174, 188), (CardKind::Fpga, 189, 195)]);
    cancel(&client, job).await?;

    for node in &pool.nodes[1..] {
        pool.cli_ok(&["node", "cordon", &node.name, "--reason", "the example is about another one"]).await?;
    }
    let job = submit(&client, mixed).await?;
    let job = wait_for(&client, job, JobState::Running).await?;
    assert_eq!(regions(&job), [(CardKind::Gpu, 1, 18), (CardKind::Npu, 19, 38), (CardKind::Fpga, 39, 50)]);
    cancel(&client, job.id).await?;
    pool.verify().await
}

/// P10: three applications on ten blocks; the first ends, a fourth asks for four; the others move together, the fourth
/// runs, and nobody's process is touched.
#[tokio::test(flavor = "multi_thread")]
async fn the_fourth_application_finds_room_once_the_others_have_moved_together() -> Result<()> {
    let pool = pool(&[&[("gpu", 10)]]).await?;
    let client = pool.client();
    let first = run(&client, 3).await?;
    let (second, third) = (run(&client, 3).await?, run(&client, 2).await?);
    let before = [get(&client, second).await?, get(&client, third).await?];
    assert_eq!([numbers(&before[0]), numbers(&before[1])], [[(CardKind::Gpu, 4, 6)], [(CardKind::Gpu, 7, 8)]]);

    cancel(&client, first).await?;
    let fourth = run(&client, 4).await?;
    let moved = until("the card to be renumbered", async || {
        let jobs =
            [get(&client, second).await.ok()?, get(&client, third).await.ok()?, get(&client, fourth).await.ok()?];
        let numbers = jobs.each_ref().map(numbers);
        let expected = [[(CardKind::Gpu, 1, 3)], [(CardKind::Gpu, 4, 5)], [(CardKind::Gpu, 6, 9)]];
        (numbers == expected).then_some(jobs)
    })
    .await?;
    for (before, after) in before.iter().zip(&moved) {
        assert_eq!((after.attempts, after.state()), (before.attempts, JobState::Running), "its process goes on");
    }
    let free = pool.summary().await?.pool.and_then(|pool| pool.blocks).map(|blocks| blocks.free);
    assert_eq!(free, Some(1), "block 10");
    pool.verify().await
}
