//! Stores that all nodes share and that are full, slow or away, through real processes: a job says so, loses nothing,
//! and comes bit for bit to what it comes to undisturbed.

use std::time::Duration;

use anyhow::{Context, Result};
use tessera_api::v1::{Job, JobState, ResumeJobRequest};
use tessera_client::Client;
use tessera_testkit::BucketServer;
use tessera_tests::jobs::{get, submit, suspend};
use tessera_tests::link::Link;
use tessera_tests::page::get as get_page;
use tessera_tests::pool::{Options, Pool};
use tessera_tests::small_disk::SmallDisk;
use tessera_tests::trainer::{Trainer, comes_to_the_same};
use tessera_tests::wait::until;

fn on_two_nodes(store: &str) -> Options {
    let agent_config = format!("[checkpoints]\nstore = {store:?}\n");
    Options { members: 1, nodes: vec![vec![("gpu", 8)]; 2], agent_config, ..Options::default() }
}

/// The nodes that keep the newest checkpoint of a job; none when it is in the store.
fn kept_by(job: &Job) -> Result<usize> {
    Ok(job.checkpoints.first().context("it is saved")?.parts[0].nodes.len())
}

/// Saves of all nodes that failed, as Prometheus is told.
fn saves_failed(pool: &Pool) -> Result<u64> {
    let mut failed = 0;
    for node in &pool.nodes {
        let page = get_page(&node.http, "/metrics", "text/plain")?;
        let line = "tessera_checkpoint_work_total{operation=\"save\",result=\"failed\"} ";
        let count = page.lines().find_map(|said| said.strip_prefix(line)).context("there from the beginning")?;
        failed += count.parse::<u64>()?;
    }
    Ok(failed)
}

async fn resume(client: &Client, job: u64) -> Result<()> {
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    Ok(())
}

/// It is full when a program is to be kept: its node keeps that, and says why. What is kept later is in the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_is_told_of_and_loses_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(disk) = SmallDisk::mount(&folder.path().join("store"))? else { return Ok(()) };
    let pool = Pool::start(on_two_nodes(&format!("file://{}", disk.folder().display()))).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(50)?;
    let job = submit(&client, trainer.spec(8, None)).await?;
    trainer.is_at(0, 1, 50).await?;
    disk.fill()?;
    let suspended = suspend(&client, job).await?;
    assert_eq!(suspended.checkpoints[0].progress, 50);
    assert!(kept_by(&suspended)? >= 1, "its node keeps it");
    let listed = pool.cli_ok(&["job", "checkpoints", &job.to_string()]).await?;
    assert!(pool.nodes.iter().any(|node| listed.contains(&node.name)), "it says where it is: {listed}");
    assert!(saves_failed(&pool)? >= 1, "operators are told");

    disk.make_room()?;
    resume(&client, job).await?;
    trainer.is_at(0, 2, 50).await?;
    trainer.limit(120)?;
    trainer.is_at(0, 2, 120).await?;
    let suspended = suspend(&client, job).await?;
    assert_eq!((suspended.checkpoints[0].progress, kept_by(&suspended)?), (120, 0));
    let listed = pool.cli_ok(&["job", "checkpoints", &job.to_string()]).await?;
    assert!(listed.contains("shared"), "{listed}");
    resume(&client, job).await?;
    comes_to_the_same(&client, &trainer, job, &[0, 50, 120]).await?;
    pool.verify().await
}

/// The bucket is slow, then it cannot be reached when a program is to be kept, then it hangs, and then it cannot be
/// reached when the program is to go on: that waits, and says for what.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_slow_or_away_costs_nothing_that_was_computed() -> Result<()> {
    let server = BucketServer::start()?;
    let link = Link::to(server.address().to_owned()).await?;
    let bucket = BucketServer::variables_at(&link.address());
    let pool = Pool::start(Options { bucket, ..on_two_nodes(&server.url("checkpoints")) }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(50)?;
    let job = submit(&client, trainer.spec(8, None)).await?;
    trainer.is_at(0, 1, 50).await?;
    link.open(Duration::from_millis(200));
    let suspended = suspend(&client, job).await?;
    assert_eq!((suspended.checkpoints[0].progress, kept_by(&suspended)?), (50, 0), "slow is not away");
    link.open(Duration::ZERO);
    resume(&client, job).await?;
    trainer.is_at(0, 2, 50).await?;

    trainer.limit(100)?;
    trainer.is_at(0, 2, 100).await?;
    link.cut();
    let suspended = suspend(&client, job).await?;
    assert_eq!(suspended.checkpoints[0].progress, 100);
    assert!(kept_by(&suspended)? >= 1 && saves_failed(&pool)? >= 1, "its node keeps it, and operators are told");
    resume(&client, job).await?;
    trainer.is_at(0, 3, 100).await?;

    link.silence();
    trainer.limit(120)?;
    trainer.is_at(0, 3, 120).await?;
    let suspended = suspend(&client, job).await?;
    assert!(suspended.checkpoints[0].progress == 120 && kept_by(&suspended)? >= 1, "nobody waits for its answer");
    resume(&client, job).await?;
    trainer.is_at(0, 4, 120).await?;

    link.open(Duration::ZERO);
    trainer.limit(150)?;
    trainer.is_at(0, 4, 150).await?;
    let suspended = suspend(&client, job).await?;
    assert_eq!((suspended.checkpoints[0].progress, kept_by(&suspended)?), (150, 0), "it is in the bucket again");
    link.cut();
    resume(&client, job).await?;
    until("its agent to say that the checkpoint cannot be had now", async || {
        let seen = get(&client, job).await.ok()?;
        let node = &seen.history.last().filter(|last| last.number == 5)?.nodes[0];
        let log = std::fs::read_to_string(pool.folder().join(format!("{node}.log"))).ok()?;
        log.contains("a checkpoint cannot be had now; it is tried again").then_some(())
    })
    .await?;
    assert_eq!(get(&client, job).await?.state(), JobState::Starting, "nothing begins from the beginning");
    link.open(Duration::ZERO);
    comes_to_the_same(&client, &trainer, job, &[0, 50, 100, 120, 150]).await?;
    pool.verify().await
}
