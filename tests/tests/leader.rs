//! Members die; nothing acknowledged is lost and no worker notices (L3).

use std::collections::BTreeSet;

use anyhow::Result;
use tessera_api::v1::{JobState, SubmitJobRequest};
use tessera_tests::jobs::{get, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The leader is killed while jobs run and submissions stream in.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_and_nothing_acknowledged_is_lost() -> Result<()> {
    // Leases as in a real pool: what is tested is that a change of leader does not use them up.
    let mut pool = Pool::start(Options { lease: [500, 9_000, 12_000, 20_000], ..Options::default() }).await?;
    let client = pool.client();
    let pid_file = pool.folder().join("pids");
    let long = submit(&client, shell(&format!("echo $$ >> {}; exec sleep 600", pid_file.display()))).await?;
    wait_for(&client, long, JobState::Running).await?;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let leader = pool.leader().await?;
        for _ in 0..20 {
            acknowledged.push(submit(&client, shell("true")).await?);
        }
        pool.kill_member(leader);
        for _ in 0..20 {
            acknowledged.push(submit(&client, shell("true")).await?);
        }
        pool.start_member(leader)?;
        until(&format!("the member killed in round {round} to be back"), async || {
            let status = pool.client_of(leader).get_cluster_status(Default::default()).await.ok()?;
            status.leader.map(|_| ())
        })
        .await?;
    }
    assert_eq!(acknowledged.iter().collect::<BTreeSet<_>>().len(), 120, "a job id was handed out twice");
    for job in acknowledged {
        wait_for(&client, job, JobState::Completed).await?;
    }
    let running = get(&client, long).await?;
    assert_eq!((running.state(), running.attempts), (JobState::Running, 1));
    assert_eq!(std::fs::read_to_string(&pid_file)?.lines().count(), 1, "the worker was started once");
    pool.verify().await
}

/// A follower is killed, the pool goes on, and the follower catches up when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_dies_and_catches_up() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let follower = (pool.leader().await? + 1) % 3;
    pool.kill_member(follower);
    let mut jobs = Vec::new();
    for _ in 0..50 {
        jobs.push(submit(&client, shell("true")).await?);
    }
    pool.start_member(follower)?;
    let own = pool.client_of(follower);
    let last = *jobs.last().expect("there are jobs");
    let seen = wait_for(&own, last, JobState::Completed).await?;
    assert_eq!(seen.id, last);
    pool.verify().await
}

/// The same request id gives the same job, also when the leader changed in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_replayed_over_a_leader_change_gives_the_same_job() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let request = SubmitJobRequest { request_id: client.new_request_id(), spec: Some(shell("true")) };
    let first = client.submit_job(request.clone()).await?.job_id;
    let leader = pool.leader().await?;
    pool.kill_member(leader);
    assert_eq!(client.submit_job(request.clone()).await?.job_id, first);
    let mut other = request;
    other.spec = Some(shell("false"));
    let refusal = client.submit_job(other).await.expect_err("another body under the same id");
    assert_eq!(
        refusal.reason().map(|reason| reason.as_str_name().to_owned()).unwrap_or_default(),
        "ERROR_REASON_REQUEST_ID_REUSED"
    );
    Ok(())
}

/// Without a majority there is one clear error, and the pool goes on when the majority is back.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_there_is_one_clear_error() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let kept = submit(&client, shell("true")).await?;
    wait_for(&client, kept, JobState::Completed).await?;
    let leader = pool.leader().await?;
    let others: Vec<usize> = (0..3).filter(|place| *place != leader).collect();
    others.iter().for_each(|place| pool.kill_member(*place));
    let quick = client.with_deadline(std::time::Duration::from_secs(3));
    let error = quick.submit_job(SubmitJobRequest { spec: Some(shell("true")), ..Default::default() }).await;
    let text = error.expect_err("no majority").to_string();
    assert!(text.contains("quorum") || text.contains("majority"), "{text}");
    for place in others {
        pool.start_member(place)?;
    }
    assert_eq!(get(&client, kept).await?.state(), JobState::Completed);
    let more = submit(&client, shell("true")).await?;
    wait_for(&client, more, JobState::Completed).await?;
    Ok(())
}
