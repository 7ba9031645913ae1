//! A node is cut off in a network of the test's own making: its work is dead before it is tried elsewhere, and the node
//! is back when the network is.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};
use tessera_api::v1::{CardKind, JobSpec, JobState, Span};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, run_mark};
use tessera_tests::wait::until;

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("running ip")?;
    ensure!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The other end of the cable; it goes with the test.
struct FarNetwork(String);

impl FarNetwork {
    /// Makes a network of this thread's own, and a further one connected to it by a cable named `near`.
    fn make() -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace of the test's own")?;
        ip("link set lo up")?;
        let far = Self(format!("tessera-{}far-{}", run_mark(), std::process::id()));
        ip(&format!("netns add {}", far.0))?;
        ip(&format!("link add near type veth peer name far netns {}", far.0))?;
        ip("addr add 10.99.0.1/30 dev near")?;
        ip("link set near up")?;
        ip(&format!("-n {} addr add 10.99.0.2/30 dev far", far.0))?;
        ip(&format!("-n {} link set far up", far.0))?;
        ip(&format!("-n {} link set lo up", far.0))?;
        Ok(far)
    }

    fn file(&self) -> PathBuf {
        PathBuf::from("/var/run/netns").join(&self.0)
    }
}

impl Drop for FarNetwork {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.0));
    }
}

/// The same job on cards of one kind.
fn of_kind(mut spec: JobSpec, kind: CardKind) -> JobSpec {
    spec.virtual_card.get_or_insert_default().kinds = vec![kind.into()];
    spec
}

async fn a_node_is_cut_off(far: &FarNetwork) -> Result<()> {
    let options = Options {
        nodes: vec![vec![("npu", 8)], vec![("gpu", 8)]],
        host: "10.99.0.1",
        far_node: Some((0, far.file())),
        ..Options::default()
    };
    let pool = Pool::start(options).await?;
    let client = pool.client();
    // Nobody said how the nodes are reached: each tells the address from which it speaks to the members.
    let nodes = client.list_nodes(Default::default()).await?.nodes;
    for (node, own) in [(0, "10.99.0.2"), (1, "10.99.0.1")] {
        let told = nodes.iter().find(|told| told.name == pool.nodes[node].name).context("every node is listed")?;
        assert_eq!(told.worker_host, own);
        assert!(told.address.starts_with(&format!("{own}:")), "{}", told.address);
    }
    let quick = submit(&client, of_kind(shell("echo from afar"), CardKind::Npu)).await?;
    wait_for(&client, quick, JobState::Completed).await?;
    assert_eq!(output(&client, quick, 0).await?, "from afar\n", "members read the far node's output there");
    // Eight blocks of npu on the far node first; when it is gone, the job goes to the gpu node.
    let filler = submit(&client, of_kind(on(shell("sleep 600"), 8, Span::Card), CardKind::Gpu)).await?;
    wait_for(&client, filler, JobState::Running).await?;
    let job = submit(&client, on(shell("exec sleep 600"), 8, Span::Card)).await?;
    let running = wait_for(&client, job, JobState::Running).await?;
    assert_eq!(running.history[0].nodes[0], pool.nodes[0].name);
    until("the worker's process", async || (!pool.processes_on(0).is_empty()).then_some(())).await?;

    ip("link set near down")?;
    let waiting = until("the job to be tried elsewhere", async || {
        let job = get(&client, job).await.ok()?;
        (job.state() == JobState::Pending).then_some(job)
    })
    .await?;
    assert_eq!(waiting.reason.map(|reason| reason.code).as_deref(), Some("NODE_LOST"));
    assert_eq!(pool.processes_on(0), Vec::<i32>::new(), "its worker is dead before its blocks are free");

    ip("link set near up")?;
    pool.wait_for_nodes(2).await?;
    let again = wait_for(&client, job, JobState::Running).await?;
    assert_eq!(again.attempts, 2);
    pool.verify().await
}

#[test]
fn a_node_that_is_cut_off_computes_no_more_when_its_blocks_are_granted_again() -> Result<()> {
    // Network namespaces belong to threads: everything that opens a socket or starts a process does so on this one, or
    // on a thread that this one starts.
    let far = FarNetwork::make()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(a_node_is_cut_off(&far))
}
