//! The control plane is lost: a pool begins anew from a backup, or from the one member that is left, while work
//! runs on.

use std::path::PathBuf;

use anyhow::{Context, Result};
use futures::future::join_all;
use tessera_api::v1::{Eligibility, Job, JobSpec, JobState, NodeState, OnDisconnect, Span};
use tessera_client::Client;
use tessera_tests::command::{field, refusal, text};
use tessera_tests::jobs::{get, on, output, revision, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::runbook::Runbook;
use tessera_tests::wait::until;

/// A job that goes on without a control plane, waits until it is told to end, and says how often it was started.
struct LongJob {
    runs: PathBuf,
    go: PathBuf,
}

impl LongJob {
    fn new(pool: &Pool) -> Result<(Self, JobSpec)> {
        let folder = pool.shared_folder("long")?;
        let own = Self { runs: folder.join("runs"), go: folder.join("go") };
        let line = format!(
            "echo run >> {}; while [ ! -e {} ]; do sleep 0.05; done; echo $((6 * 7))",
            own.runs.display(),
            own.go.display()
        );
        Ok((own, JobSpec { on_disconnect: OnDisconnect::Keep.into(), ..shell(&line) }))
    }

    async fn begin(&self, client: &Client, spec: JobSpec) -> Result<u64> {
        let job = submit(client, spec).await?;
        wait_for(client, job, JobState::Running).await?;
        until("the worker to run", async || self.runs.exists().then_some(())).await?;
        Ok(job)
    }

    /// Lets it end: it was started once, and its result is right.
    async fn end(&self, client: &Client, job: u64) -> Result<()> {
        std::fs::write(&self.go, "")?;
        let ended: Job = wait_for(client, job, JobState::Completed).await?;
        assert_eq!((ended.attempts, std::fs::read_to_string(&self.runs)?.as_str()), (1, "run\n"));
        assert_eq!(output(client, job, 0).await?, "42\n");
        Ok(())
    }
}

/// Starts the agents anew, and waits until their nodes are back: ready, and without new work.
async fn agents_accept(pool: &mut Pool, cluster: &str) -> Result<()> {
    for place in 0..pool.nodes.len() {
        pool.kill_agent(place);
        // Told nothing, it does not believe another pool.
        pool.start_agent(place)?;
        until("the agent to be refused", async || pool_log(pool, place).contains("--accept-pool").then_some(()))
            .await?;
        pool.kill_agent(place);
    }
    pool.accept_pool = Some(cluster.to_owned());
    for place in 0..pool.nodes.len() {
        pool.start_agent(place)?;
    }
    pool.wait_for_nodes(pool.nodes.len()).await?;
    let nodes = pool.client().list_nodes(Default::default()).await?.nodes;
    assert!(nodes.iter().all(|node| node.eligibility() == Eligibility::Cordoned), "{nodes:?}");
    Ok(())
}

fn pool_log(pool: &Pool, place: usize) -> String {
    let log = pool.folder().join(format!("{}.log", pool.nodes[place].name));
    std::fs::read_to_string(log).unwrap_or_default()
}

/// The steps with which every disaster ends: nodes are back, and new work may come.
async fn let_work_come(pool: &Pool, runbook: &mut Runbook) -> Result<()> {
    pool.follow(runbook.command("cluster status", &[])).await?;
    pool.follow(runbook.command("node list", &[])).await?;
    for node in &pool.nodes {
        pool.follow(runbook.command("node uncordon", &[("NODE", node.name.as_str())])).await?;
    }
    Ok(())
}

/// Adds the member at a place, whose data folder is empty, as a runbook says.
async fn add_member(pool: &mut Pool, place: usize, runbook: &mut Runbook) -> Result<()> {
    pool.start_member(place)?;
    let command = runbook.command("cluster member add", &[("MEMBER", pool.members[place].address.as_str())]);
    until("the member to be added", async || pool.follow(command.clone()).await.ok()).await.map(drop)
}

/// Sets a member's data folder aside, as an operator does, and answers where it is then.
fn set_aside(pool: &Pool, place: usize) -> Result<PathBuf> {
    let data = &pool.members[place].data;
    let aside = data.with_extension("old");
    std::fs::rename(data, &aside)?;
    Ok(aside)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_control_plane_is_restored_from_a_backup_while_work_runs() -> Result<()> {
    let options = Options { nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)]], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    pool.cli_ok(&["queue", "set", "research", "--weight", "3"]).await?;
    let (long, spec) = LongJob::new(&pool)?;
    let runs = long.begin(&client, spec).await?;
    let blocker = submit(&client, on(shell("sleep 600"), 8, Span::Card)).await?;
    wait_for(&client, blocker, JobState::Running).await?;
    let waits = submit(&client, on(shell("echo done"), 8, Span::Card)).await?;

    let mut runbook = Runbook::read("RestoreFromBackup")?;
    // Saved from a follower, under load.
    let file = pool.folder().join("pool.backup");
    let follower = pool.members[(pool.leader().await? + 1) % 3].address.clone();
    let save = ["cluster", "snapshot", "save", text(&file)?, "--server", &follower];
    let load = join_all((0..40).map(|_| submit(&client, shell("true"))));
    let (saved, submitted) = tokio::join!(pool.cli_ok(&save), load);
    saved?;
    let before: Vec<u64> = submitted.into_iter().collect::<Result<_>>()?;
    pool.follow(runbook.command("cluster snapshot list", &[("PLACE", text(pool.folder())?)])).await?;
    pool.follow(runbook.command("cluster snapshot inspect", &[("FILE", text(&file)?)])).await?;
    let inspect = ["cluster", "snapshot", "inspect", text(&file)?];
    let old_cluster = field(&pool, &inspect, "cluster_id").await?;
    let saved_at: u64 = field(&pool, &inspect, "revision").await?.parse()?;
    let after = submit(&client, shell("true")).await?;
    let revision_after = revision(&client).await?;
    assert!(revision_after > saved_at);

    // Everything is lost but the work.
    for place in 0..3 {
        pool.kill_member(place);
    }
    assert!(
        !pool.processes_on(0).is_empty() || !pool.processes_on(1).is_empty(),
        "work goes on without a control plane"
    );
    for place in 0..3 {
        set_aside(&pool, place)?;
    }
    let (data, address) = (pool.members[0].data.clone(), pool.members[0].address.clone());
    let restore = ["cluster", "snapshot", "restore", text(&file)?, "--data-dir", text(&data)?, "--address", &address];
    let said = refusal(&pool, &restore).await?;
    assert!(said.contains("--yes"), "{said}");
    let same = refusal(&pool, &[&restore[..], &["--yes", "--cluster-id", &old_cluster]].concat()).await?;
    assert!(same.contains("cannot have the id of the old one"), "{same}");
    let meanings = [("FILE", text(&file)?), ("DATA", text(&data)?), ("ADDRESS", address.as_str())];
    let mut command = runbook.command("cluster snapshot restore", &meanings);
    command.extend(["-o".to_owned(), "json".to_owned()]);
    let begun: serde_json::Value = serde_json::from_str(&pool.follow(command).await?)?;
    let cluster = begun["cluster_id"].as_str().context("a cluster id")?.to_owned();
    assert_ne!(cluster, old_cluster);
    let again = refusal(&pool, &[&restore[..], &["--yes"]].concat()).await?;
    assert!(again.contains("is not empty"), "{again}");
    pool.start_member(0)?;
    until("the restored member to lead", async || get(&client, runs).await.ok()).await?;

    // What was in the backup is there, and nothing is believed of work before its agents have spoken.
    assert_eq!(get(&client, waits).await?.state(), JobState::Pending);
    let running = get(&client, runs).await?;
    assert_eq!(running.state(), JobState::Running);
    assert_eq!(running.reason.context("a job has a reason")?.code, "NODE_DISCONNECTED");
    let queues = pool.cli_ok(&["queue", "list", "-o", "name"]).await?;
    assert!(queues.contains("research"), "{queues}");
    let nodes = client.list_nodes(Default::default()).await?.nodes;
    assert!(nodes.iter().all(|node| node.state() == NodeState::Lost), "{nodes:?}");
    assert!(revision(&client).await? > revision_after + 1_000_000_000, "revisions never go back");
    assert!(get(&client, after).await.is_err(), "what came after the backup is not known");
    let new = submit(&client, shell("true")).await?;
    assert!(new > after + 1_000_000, "job {new} after job {after}: no number is used again");
    pool.verify().await?;

    agents_accept(&mut pool, &cluster).await?;
    let adopted = until("the work to be adopted", async || {
        let job = get(&client, runs).await.ok()?;
        let disconnected = job.reason.as_ref().is_some_and(|reason| reason.code == "NODE_DISCONNECTED");
        (!disconnected).then_some(job)
    });
    let adopted = adopted.await?;
    assert_eq!((adopted.state(), adopted.attempts), (JobState::Running, 1));
    assert_eq!(get(&client, waits).await?.state(), JobState::Pending, "no new work comes before the operator says so");
    let_work_come(&pool, &mut runbook).await?;
    long.end(&client, runs).await?;
    pool.cli_ok(&["job", "cancel", &blocker.to_string(), "--yes"]).await?;
    wait_for(&client, waits, JobState::Completed).await?;
    wait_for(&client, new, JobState::Completed).await?;
    for job in before {
        // Those that came after the revision of the backup are unknown, the others run to their end.
        if get(&client, job).await.is_ok() {
            wait_for(&client, job, JobState::Completed).await?;
        }
    }
    pool.verify().await?;

    // It is a cluster like any other: members are added, and backups taken.
    add_member(&mut pool, 1, &mut runbook).await?;
    let newer = pool.folder().join("newer.backup");
    pool.follow(runbook.command("cluster snapshot save", &[("NEW", text(&newer)?)])).await?;
    runbook.was_followed();
    pool.verify().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_member_that_is_left_begins_anew_and_the_dead_are_refused() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let (long, spec) = LongJob::new(&pool)?;
    let runs = long.begin(&client, spec).await?;
    let cluster_before = field(&pool, &["cluster", "status"], "cluster_id").await?;
    for place in 0..3 {
        pool.kill_member(place);
    }
    let aside = set_aside(&pool, 0)?;
    let mut runbook = Runbook::read("MajorityLost")?;
    let mut command = runbook.command("cluster recover --from OLD", &[("OLD", text(&aside)?)]);
    command.extend(["--from", text(&pool.members[1].data)?, "-o", "json"].map(str::to_owned));
    let listed = pool.follow(command).await?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    let survivors = listed.as_array().context("a list of survivors")?;
    assert_eq!(survivors.len(), 2);
    assert!(survivors.iter().any(|survivor| survivor["most"] == true), "{survivors:?}");
    assert!(survivors.iter().all(|survivor| survivor["cluster_id"] == cluster_before.as_str()), "{survivors:?}");

    // Only the first one is left.
    let (data, address) = (pool.members[0].data.clone(), pool.members[0].address.clone());
    let recover =
        ["cluster", "recover", "--from", text(&aside)?, "--into", text(&data)?, "--address", &address, "-o", "json"];
    let said = refusal(&pool, &recover).await?;
    assert!(said.contains("--accept-loss"), "{said}");
    assert!(!data.exists(), "nothing is made before the operator has said so");
    let meanings = [("OLD", text(&aside)?), ("DATA", text(&data)?), ("ADDRESS", address.as_str())];
    let mut command = runbook.command("cluster recover --from OLD --into", &meanings);
    command.extend(["-o".to_owned(), "json".to_owned()]);
    let made = pool.cli(&command.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let warning = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && warning.contains("is lost"), "{warning}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
    let cluster = made["cluster_id"].as_str().context("a cluster id")?.to_owned();
    assert_ne!(cluster, cluster_before);
    pool.start_member(0)?;
    until("the recovered member to lead", async || get(&client, runs).await.ok()).await?;
    pool.verify().await?;
    agents_accept(&mut pool, &cluster).await?;
    let_work_come(&pool, &mut runbook).await?;

    // A dead member comes back with all it had: nobody listens to it, it is told why, and the pool goes on.
    pool.start_member(1)?;
    let log = pool.folder().join("member-1.log");
    until("the dead member to be told why it is refused", async || {
        let log = std::fs::read_to_string(&log).ok()?;
        (log.contains(&cluster) && log.contains("called")).then_some(())
    })
    .await?;
    let status = field(&pool, &["cluster", "status", "--server", &address], "cluster_id").await?;
    assert_eq!(status, cluster);
    let alone = pool.client_of(0);
    long.end(&alone, runs).await?;
    let job = submit(&alone, shell("true")).await?;
    wait_for(&alone, job, JobState::Completed).await?;
    // It is a cluster like any other: members are added.
    pool.kill_member(1);
    set_aside(&pool, 1)?;
    add_member(&mut pool, 1, &mut runbook).await?;
    runbook.was_followed();
    pool.verify().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_disk_is_damaged_is_replaced() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, shell("sleep 600")).await?;
    wait_for(&client, job, JobState::Running).await?;
    let damaged = (pool.leader().await? + 1) % 3;
    pool.end_member(damaged).await?;
    for file in std::fs::read_dir(pool.members[damaged].data.join("db"))? {
        let file = file?.path();
        if matches!(file.extension().and_then(|extension| extension.to_str()), Some("sst" | "log")) {
            let content: Vec<u8> = std::fs::read(&file)?.iter().map(|byte| !byte).collect();
            std::fs::write(&file, content)?;
        }
    }
    pool.start_member(damaged)?;
    assert_ne!(pool.member_ended(damaged).await?, 0, "it does not go on with what is damaged");
    pool.kill_member(damaged);

    let mut runbook = Runbook::read("MemberDiskDamaged")?;
    pool.follow(runbook.command("cluster status", &[])).await?;
    let mut command = runbook.command("cluster member list", &[]);
    command.extend(["-o".to_owned(), "json".to_owned()]);
    let members: serde_json::Value = serde_json::from_str(&pool.follow(command).await?)?;
    let address = pool.members[damaged].address.as_str();
    let members = members.as_array().context("a list of members")?;
    let id = members.iter().find(|member| member["address"] == address).context("it is a member")?["id"].to_string();
    set_aside(&pool, damaged)?;
    pool.follow(runbook.command("cluster member remove", &[("ID", id.as_str())])).await?;
    add_member(&mut pool, damaged, &mut runbook).await?;
    runbook.was_followed();
    let running = get(&client, job).await?;
    assert_eq!((running.state(), running.attempts), (JobState::Running, 1));
    pool.verify().await
}
