//! The membership changes while jobs run: add, promote, replace a dead member, transfer leadership.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tessera_api::v1::JobState;
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

fn ids(list: &str) -> Result<Vec<(u64, String)>> {
    let members: serde_json::Value = serde_json::from_str(list)?;
    let members = members.as_array().or_else(|| members["members"].as_array()).context("a list of members")?;
    members
        .iter()
        .map(|member| {
            let id = member["id"].as_u64().or_else(|| member["id"].as_str()?.parse().ok()).context("an id")?;
            Ok((id, member["address"].as_str().context("an address")?.to_owned()))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_replaced_while_jobs_run() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let long = submit(&client, shell("sleep 600")).await?;
    wait_for(&client, long, JobState::Running).await?;
    assert!(!pool.cli(&["cluster", "init"]).await?.status.success(), "a cluster is made once");

    let leader = pool.leader().await?;
    let dead = (leader + 1) % 3;
    pool.kill_member(dead);
    let address = pool.members[dead].address.clone();
    let before = ids(&pool.cli_ok(&["cluster", "member", "list", "-o", "json"]).await?)?;
    let old = before.iter().find(|(_, known)| *known == address).context("the dead member is listed")?.0;
    std::fs::remove_dir_all(&pool.members[dead].data)?;
    pool.start_member(dead)?;
    let taken_for = format!("others take it for member {old} of cluster");
    until("what has lost its folder to know whom it is taken for", async || {
        pool.cli_ok(&["cluster", "status"]).await.ok()?.contains(&taken_for).then_some(())
    })
    .await?;

    // A member with an empty folder under a known address gets a new id; the old one is never used again.
    pool.cli_ok(&["cluster", "member", "remove", &old.to_string(), "--yes"]).await?;
    until("the new member to be added", async || {
        let output = pool.cli(&["cluster", "member", "add", &address]).await.ok()?;
        output.status.success().then_some(())
    })
    .await?;
    let after = ids(&pool.cli_ok(&["cluster", "member", "list", "-o", "json"]).await?)?;
    let new = after.iter().find(|(_, known)| *known == address).context("the new member is listed")?.0;
    assert!(new > old, "ids are never used again: {before:?} {after:?}");
    until("the new member to have caught up and to vote", async || {
        let output = pool.cli(&["cluster", "member", "promote", &new.to_string()]).await.ok()?;
        output.status.success().then_some(())
    })
    .await?;

    pool.member(dead).signal(Signal::SIGSTOP)?;
    let refused = pool.cli(&["cluster", "transfer-leader", "--to", &new.to_string()]).await?;
    pool.member(dead).signal(Signal::SIGCONT)?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&format!("member {new} was to lead")), "{said}");
    pool.cli_ok(&["cluster", "transfer-leader", "--to", &new.to_string()]).await?;
    until("the new member to lead", async || (pool.leader().await.ok()? == dead).then_some(())).await?;
    let job = submit(&client, shell("true")).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let running = tessera_tests::jobs::get(&client, long).await?;
    assert_eq!((running.state(), running.attempts), (JobState::Running, 1));
    pool.verify().await
}
