//! Agents die and hang; workers are adopted, or are dead before their blocks are granted again (L2).

use std::path::Path;

use anyhow::Result;
use nix::sys::signal::Signal;
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

fn pids(file: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie computes nothing.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// An agent that is killed and started again adopts its workers and harms none.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_adopts_its_workers() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)]], lease: [200, 6_000, 8_000, 11_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let (file, go) = (pool.folder().join("pids"), pool.folder().join("go"));
    let line = format!("echo $$ >> {}; while [ ! -e {} ]; do sleep 0.05; done", file.display(), go.display());
    let job = submit(&client, shell(&line)).await?;
    wait_for(&client, job, JobState::Running).await?;
    until("the worker to say its pid", async || (!pids(&file).is_empty()).then_some(())).await?;
    pool.kill_agent(0);
    assert!(is_alive(pids(&file)[0]), "the worker does not die with its agent");
    pool.start_agent(0)?;
    let other = submit(&client, shell("true")).await?;
    wait_for(&client, other, JobState::Completed).await?;
    assert!(is_alive(pids(&file)[0]));
    std::fs::write(&go, "")?;
    let job = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((job.attempts, pids(&file).len()), (1, 1));
    pool.verify().await
}

/// An agent stopped past its lease: the worker is dead before anybody else computes on its blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_dead_before_its_blocks_are_granted_again() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("npu", 2)]], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let file = pool.folder().join("pids");
    // When a second attempt starts it looks whether the first one's process is still alive.
    let line = format!(
        "for old in $(cat {0} 2>/dev/null); do kill -0 $old 2>/dev/null && echo $old >> {0}.overlap; done; echo $$ >> {0}; exec sleep 600",
        file.display()
    );
    let job = submit(&client, on(shell(&line), 8, Span::Card)).await?;
    let running = wait_for(&client, job, JobState::Running).await?;
    let first = running.history[0].nodes[0].clone();
    let place = pool.nodes.iter().position(|node| node.name == first).expect("a node of this pool");
    until("the first attempt to say its pid", async || (!pids(&file).is_empty()).then_some(())).await?;
    pool.agent(place).signal(Signal::SIGSTOP)?;
    let second = until("a second attempt elsewhere", async || {
        let job = get(&client, job).await.ok()?;
        (job.attempts == 2 && job.state() == JobState::Running).then_some(job)
    })
    .await?;
    assert!(!is_alive(pids(&file)[0]), "the supervisor kills the worker though its agent is stopped");
    assert_ne!(second.history[1].nodes[0], first);
    until("the second attempt to say its pid", async || (pids(&file).len() == 2).then_some(())).await?;
    assert!(!file.with_extension("overlap").exists(), "two attempts computed at once");
    // The node comes back and takes work again.
    pool.agent(place).signal(Signal::SIGCONT)?;
    pool.wait_for_nodes(3).await?;
    let filler = submit(&client, on(shell("true"), 8, Span::Card)).await?;
    wait_for(&client, filler, JobState::Completed).await?;
    pool.verify().await
}

/// A drained node gives its work to others and takes no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_is_emptied() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, on(shell("sleep 600"), 8, Span::Card)).await?;
    let running = wait_for(&client, job, JobState::Running).await?;
    let node = running.history[0].nodes[0].clone();
    pool.cli_ok(&["node", "drain", &node, "--reason", "a test", "--yes"]).await?;
    let moved = until("the job to run elsewhere", async || {
        let job = get(&client, job).await.ok()?;
        (job.attempts == 2 && job.state() == JobState::Running).then_some(job)
    })
    .await?;
    assert_ne!(moved.history[1].nodes[0], node);
    pool.cli_ok(&["node", "uncordon", &node]).await?;
    pool.verify().await
}
