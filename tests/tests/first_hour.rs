//! The first hour of an operator without accelerators: a pool of processors, with blocks that fit them and with blocks
//! that do not.

use anyhow::{Context, Result};
use tessera_api::v1::{JobState, Span, WhyRequest};
use tessera_tests::jobs::{on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

fn processors(init: &[&'static str]) -> Options {
    Options { members: 1, nodes: vec![], local_nodes: 1, init: init.to_vec(), ..Options::default() }
}

/// Blocks of a thousandth of a TFLOPS: every processor has some.
#[tokio::test(flavor = "multi_thread")]
async fn processors_run_jobs_in_a_pool_with_small_blocks() -> Result<()> {
    let pool = Pool::start(processors(&["--block-size", "1GFLOPS", "--reference-precision", "fp32"])).await?;
    let blocks = pool.summary().await?.pool.and_then(|pool| pool.blocks).unwrap_or_default();
    assert!(blocks.free > 0, "{blocks:?}");
    let said = pool.cli_ok(&["job", "run", "--", "echo", "hello from a block"]).await?;
    assert!(said.contains("hello from a block"), "{said}");
    // Each node carries its name as a label. That nobody carries another one is said when the job is submitted.
    let own = format!("node={}", pool.nodes[0].name);
    assert_eq!(pool.cli_ok(&["run", "--node-label", &own, "--", "echo", "here"]).await?, "here\n");
    let file = pool.shared_folder("labels")?.join("job.yaml");
    std::fs::write(&file, "command: [echo]\nvirtual_card: {tflops: 0.001}\nnode_labels: {node: mars, zone: far}\n")?;
    let submitted = pool.cli(&["job", "submit", file.to_str().context("a path")?]).await?;
    let remark = String::from_utf8_lossy(&submitted.stderr);
    assert!(submitted.status.success() && remark.contains("no node carries node=mars and zone=far"), "{remark}");
    until("the list to say so too", async || {
        pool.cli_ok(&["job", "list"]).await.ok()?.contains("NO_NODE_WITH_LABELS").then_some(())
    })
    .await?;
    pool.verify().await
}

/// Blocks of a thousand TFLOPS: processors have none, and everybody who could wonder is told.
#[tokio::test(flavor = "multi_thread")]
async fn cards_without_blocks_are_complained_of_wherever_one_looks() -> Result<()> {
    let mut pool = Pool::start(processors(&["--block-size", "1000"])).await?;
    let name = pool.nodes[0].name.clone();
    let client = pool.client();
    for shown in [vec!["node", "show", name.as_str()], vec!["card", "show", &format!("{name}/0")]] {
        let text = pool.cli_ok(&shown).await?;
        assert!(text.contains("it has no block") && text.contains("cluster init --block-size"), "{text}");
    }
    let log = pool.agent(0).log();
    assert!(log.contains("it has no block, so no job runs on it"), "{log}");

    // More than all cards compute is refused with the total. Less is not, and waits for cards that have blocks.
    let refused = submit(&client, on(shell("true"), 1_000, Span::Card)).await.expect_err("it could never run");
    assert!(format!("{refused:#}").contains("asks for 1000 TFLOPS in all, and the pool has"), "{refused:#}");
    let mut spec = shell("true");
    spec.virtual_card.get_or_insert_default().milli_tflops = 1;
    let job = submit(&client, spec).await?;
    wait_for(&client, job, JobState::Pending).await?;
    let why = client.why(WhyRequest { job_id: job, ..Default::default() }).await?.explanation.unwrap_or_default();
    assert_eq!(why.constraint, "NO_BLOCKS", "{why:?}");
    until("the list to say so too", async || {
        pool.cli_ok(&["job", "list"]).await.ok()?.contains("NO_BLOCKS").then_some(())
    })
    .await?;
    let shown = pool.cli_ok(&["job", "show", &job.to_string()]).await?;
    assert!(shown.lines().any(|line| line.contains("waits for") && line.contains("NO_BLOCKS")), "{shown}");
    let shown: serde_json::Value =
        serde_json::from_str(&pool.cli_ok(&["job", "show", &job.to_string(), "-o", "json"]).await?)?;
    assert_eq!(shown["waits_for"], "NO_BLOCKS");

    let changed = pool.cli(&["pool", "config", "set", "--block-size", "0.001"]).await?;
    let error = String::from_utf8_lossy(&changed.stderr);
    assert!(!changed.status.success() && error.contains("`tessera cluster init --block-size"), "{error}");
    Ok(())
}
