//! Agents die and hang; workers are adopted, or are dead before their blocks are granted again (L2).

use std::path::PathBuf;

use anyhow::Result;
use nix::sys::signal::Signal;
use tessera_api::v1::{JobState, Span, StreamLogsRequest};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// An agent that is killed and started again adopts its workers and harms none.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_adopts_its_workers() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)]], lease: [200, 6_000, 8_000, 11_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let (runs, go) = (pool.folder().join("runs"), pool.folder().join("go"));
    let line = format!("echo run >> {}; while [ ! -e {} ]; do sleep 0.05; done", runs.display(), go.display());
    let job = submit(&client, shell(&line)).await?;
    wait_for(&client, job, JobState::Running).await?;
    until("the worker to run", async || runs.exists().then_some(())).await?;
    pool.kill_agent(0);
    assert!(!pool.processes_on(0).is_empty(), "the worker does not die with its agent");
    pool.start_agent(0)?;
    let other = submit(&client, shell("true")).await?;
    wait_for(&client, other, JobState::Completed).await?;
    std::fs::write(&go, "")?;
    let job = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((job.attempts, std::fs::read_to_string(&runs)?.as_str()), (1, "run\n"));
    pool.verify().await
}

/// A reader that follows a worker's output sees all of it, though its agent is ended and started again meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn output_is_followed_over_a_restart_of_the_agent() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)]], lease: [200, 6_000, 8_000, 11_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let go = pool.folder().join("go");
    let line = format!("echo before; while [ ! -e {} ]; do sleep 0.05; done; echo after", go.display());
    let job = submit(&client, shell(&line)).await?;
    wait_for(&client, job, JobState::Running).await?;
    let mut output =
        client.stream_logs(StreamLogsRequest { job_id: job, follow: true, ..StreamLogsRequest::default() });
    let mut seen = Vec::new();
    while seen != b"before\n" {
        seen.extend(output.next().await?.expect("the worker goes on").data);
    }
    pool.end_agent(0).await?;
    pool.start_agent(0)?;
    std::fs::write(&go, "")?;
    while let Some(chunk) = output.next().await? {
        seen.extend(chunk.data);
    }
    assert_eq!(String::from_utf8_lossy(&seen), "before\nafter\n");
    wait_for(&client, job, JobState::Completed).await?;
    pool.verify().await
}

/// An agent stopped past its lease: the worker is dead before anybody else computes on its blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_dead_before_its_blocks_are_granted_again() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("npu", 2)]], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let witness = Witness::new(&pool)?;
    let job = submit(&client, on(shell(&witness.program("exec sleep 600")), 8, Span::Card)).await?;
    let place = witness.first_place(&pool, &client, job).await?;
    pool.agent(place).signal(Signal::SIGSTOP)?;
    witness.second_attempt(&pool, &client, job, place).await?;
    // The node comes back and takes work again.
    pool.agent(place).signal(Signal::SIGCONT)?;
    pool.wait_for_nodes(3).await?;
    let filler = submit(&client, on(shell("true"), 8, Span::Card)).await?;
    wait_for(&client, filler, JobState::Completed).await?;
    pool.verify().await
}

/// Agent and supervisor are killed and nobody starts them again: all that the worker forked is dead before the job
/// runs elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_forked_is_dead_before_its_job_runs_elsewhere() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("npu", 2)]], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let witness = Witness::new(&pool)?;
    let forks = "setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.1; done' & wait";
    let job = submit(&client, on(shell(&witness.program(forks)), 8, Span::Card)).await?;
    let place = witness.first_place(&pool, &client, job).await?;
    pool.kill_agent(place);
    pool.kill_supervisors(place)?;
    witness.second_attempt(&pool, &client, job, place).await?;
    pool.start_agent(place)?;
    pool.wait_for_nodes(3).await?;
    pool.verify().await
}

/// A lock that every process of an attempt holds as long as it lives, so that two attempts that compute at once
/// are seen.
struct Witness {
    folder: PathBuf,
}

impl Witness {
    fn new(pool: &Pool) -> Result<Self> {
        let folder = pool.shared_folder("witness")?;
        std::fs::write(folder.join("lock"), "")?;
        Ok(Self { folder })
    }

    fn program(&self, then: &str) -> String {
        format!(
            "cd {}; exec 9<lock; flock -n 9 || echo overlap >> overlaps; echo run >> runs; {then}",
            self.folder.display()
        )
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.folder.join("runs")).unwrap_or_default().lines().count()
    }

    /// Waits until the first attempt computes; answers the place of its node.
    async fn first_place(&self, pool: &Pool, client: &Client, job: u64) -> Result<usize> {
        let running = wait_for(client, job, JobState::Running).await?;
        until("the first attempt to compute", async || (self.runs() == 1).then_some(())).await?;
        let node = &running.history[0].nodes[0];
        Ok(pool.nodes.iter().position(|known| known.name == *node).expect("a node of this pool"))
    }

    /// Waits until a second attempt computes on another node, and looks whether it was alone.
    async fn second_attempt(&self, pool: &Pool, client: &Client, job: u64, first: usize) -> Result<()> {
        let second = until("a second attempt elsewhere", async || {
            let job = get(client, job).await.ok()?;
            (job.attempts == 2 && job.state() == JobState::Running).then_some(job)
        })
        .await?;
        assert_eq!(
            pool.processes_on(first),
            Vec::<i32>::new(),
            "the first attempt is dead though nobody told it to stop"
        );
        assert_ne!(second.history[1].nodes[0], pool.nodes[first].name);
        until("the second attempt to compute", async || (self.runs() == 2).then_some(())).await?;
        assert!(!self.folder.join("overlaps").exists(), "two attempts computed at once");
        Ok(())
    }
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
