//! A rolling upgrade of the members under load, to the next release and, before its level is raised, back (L7).
//!
//! The next release is this binary with `--drill-next-level`: it announces one level more, and follows one rule more
//! (a queue may not be called `drill`) and knows one command more from that level on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use tessera_api::v1::{GetClusterStatusResponse, JobState};
use tessera_client::Client;
use tessera_tests::jobs::{get, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;
use tokio::task::JoinHandle;

/// Members of these tests are ended and started again: their ports must not be handed to the other test meanwhile.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const THIS: u32 = 1;
const NEXT: u32 = 1_000;

async fn status_of(pool: &Pool, place: usize) -> Option<GetClusterStatusResponse> {
    pool.client_of(place).get_cluster_status(Default::default()).await.ok()
}

/// Ends a member in order and starts it as this release or the next one; it has caught up when this is over.
async fn restart_as(pool: &mut Pool, place: usize, next: bool) -> Result<()> {
    pool.end_member(place).await?;
    pool.start_member_as(place, next)?;
    let highest = if next { NEXT } else { THIS };
    until("the member to be back and current", async || {
        let status = status_of(pool, place).await?;
        (status.leader.is_some() && status.highest_level == highest).then_some(())
    })
    .await?;
    let job = submit(&pool.client(), shell("true")).await?;
    get(&pool.client_of(place), job).await.context("the member reads what was written after its restart").map(drop)
}

async fn wait_for_level(pool: &Pool, level: u32) -> Result<()> {
    for place in 0..pool.members.len() {
        until(&format!("member {place} to be at level {level}"), async || {
            (status_of(pool, place).await?.level == level).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// Everybody says that this level is in force.
async fn ensure_level(pool: &Pool, level: u32) -> Result<()> {
    for place in 0..pool.members.len() {
        let status = status_of(pool, place).await.context("every member answers")?;
        ensure!(status.level == level, "member {place} is at level {}, not {level}", status.level);
    }
    Ok(())
}

/// Clients that submit all the time, until they are told to stop; each answers what was acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<Vec<u64>>>>,
}

impl Load {
    fn begin(client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let submitting = (0..2).map(|_| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let job = submit(&client, shell("true")).await?;
                    wait_for(&client, job, JobState::Completed).await?;
                    acknowledged.push(job);
                }
                Ok(acknowledged)
            })
        });
        let clients = submitting.collect();
        Self { stop, clients }
    }

    async fn end(self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await??);
        }
        Ok(all)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_upgraded_one_by_one_and_back_before_the_level_is_raised() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    // Leases as in a real pool: what is tested is that upgrades of members disturb no work.
    let lease = [500, 9_000, 12_000, 20_000];
    let mut pool = Pool::start(Options { lease, nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    wait_for_level(&pool, THIS).await?;
    let client = pool.client();
    let long = submit(&client, shell("sleep 600")).await?;
    wait_for(&client, long, JobState::Running).await?;
    let load = Load::begin(&client);

    // Two of three, and back: while one member is old nothing new is in force, and nothing keeps the old release from
    // coming back.
    for place in [0, 1] {
        restart_as(&mut pool, place, true).await?;
    }
    let text = pool.cli_ok(&["cluster", "status"]).await?;
    assert!(text.contains("not every member can apply 1000 yet"), "{text}");
    pool.cli_ok(&["queue", "set", "drill"]).await?;
    pool.cli_ok(&["queue", "remove", "drill", "--yes"]).await?;
    ensure_level(&pool, THIS).await?;
    for place in [0, 1] {
        restart_as(&mut pool, place, false).await?;
    }
    ensure_level(&pool, THIS).await?;

    // All three, with the level held: the last one can still go back.
    pool.cli_ok(&["pool", "config", "set", "--hold-level", "true"]).await?;
    for place in [0, 1, 2] {
        restart_as(&mut pool, place, true).await?;
    }
    let text = pool.cli_ok(&["cluster", "status"]).await?;
    assert!(text.contains("held; every member can apply 1000"), "{text}");
    pool.cli_ok(&["queue", "set", "drill"]).await?;
    restart_as(&mut pool, 2, false).await?;
    restart_as(&mut pool, 2, true).await?;
    ensure_level(&pool, THIS).await?;

    // Let go of, it is raised by itself, and what is new is in force.
    pool.cli_ok(&["pool", "config", "set", "--hold-level", "false"]).await?;
    wait_for_level(&pool, NEXT).await?;
    let refused = pool.cli(&["queue", "set", "drill"]).await?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("kept for drills"), "{text}");
    pool.cli_ok(&["queue", "show", "drill"]).await.context("what was accepted before stays")?;

    // From here on a member of the release before refuses to start, and says why; the next one is at home.
    pool.end_member(1).await?;
    pool.start_member_as(1, false)?;
    assert_ne!(pool.member_ended(1).await?, 0, "the old release refuses");
    let log = pool.member(1).log();
    let why = format!("the pool is at release level {NEXT}, and this member goes up to {THIS}");
    assert!(log.contains(&why), "{log}");
    pool.start_member_as(1, true)?;
    wait_for_level(&pool, NEXT).await?;

    let acknowledged = load.end().await?;
    assert!(!acknowledged.is_empty(), "there was load");
    let distinct: BTreeSet<u64> = acknowledged.iter().copied().collect();
    assert_eq!(distinct.len(), acknowledged.len(), "a job id was handed out twice");
    for place in 0..3 {
        let own = pool.client_of(place);
        for job in &acknowledged {
            assert_eq!(get(&own, *job).await?.state(), JobState::Completed, "job {job} on member {place}");
        }
    }
    let running = get(&client, long).await?;
    assert_eq!((running.state(), running.attempts), (JobState::Running, 1), "no worker noticed");
    pool.verify().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_too_old_cannot_join() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let mut pool = Pool::start_as(Options { members: 1, nodes: vec![], ..Options::default() }, true).await?;
    wait_for_level(&pool, NEXT).await?;
    let old = pool.add_process(false)?;
    let output = until("the process to be asked", async || {
        let output = pool.cli(&["cluster", "member", "add", &old]).await.ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (!text.contains("not reached")).then_some((output.status.success(), text))
    })
    .await?;
    assert!(!output.0 && output.1.contains("goes up to level 1, and level 1000 is in force"), "{}", output.1);
    Ok(())
}
