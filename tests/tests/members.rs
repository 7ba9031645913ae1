//! The membership changes while jobs run: add, promote, replace a dead member, transfer leadership.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tessera_api::v1::JobState;
use tessera_tests::jobs::{get, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, binary};
use tessera_tests::stayer::Stayer;
use tessera_tests::wait::until;
use tokio::process::Command;

use crate::stays::one_member;

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

/// Nobody else could tell a single member from its copy. Whoever moves it says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_copied_folder_of_a_single_member_is_refused_until_somebody_says_that_it_was_moved() -> Result<()> {
    let mut pool = Pool::start(one_member()).await?;
    let client = pool.client();
    let job = submit(&client, shell("true")).await?;
    wait_for(&client, job, JobState::Completed).await?;
    pool.end_member(0).await?;
    pool.start_member(0)?;
    until("the member to serve again", async || get(&client, job).await.ok()).await?;
    pool.end_member(0).await?;
    let (copy, config) = (pool.folder().join("copy"), pool.folder().join("member-0.toml"));
    let copied = Command::new("cp").arg("-a").args([&pool.members[0].data, &copy]).status().await?;
    assert!(copied.success());
    let member = |more: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["server", "--config"]).arg(&config).arg("--data-dir").arg(&copy).args(more);
        command
    };
    let mut refused = Stayer::start(member(&[]), "once with --moved-data-dir").await?;
    refused.ends_with(1).await?;
    let shown = refused.shown();
    assert_eq!(shown.matches("inode ").count() % 2, 0, "where it was used and where it lies: {shown}");
    assert!(shown.contains("it was used last at inode"), "{shown}");
    let mut moved = Stayer::start(member(&["--moved-data-dir"]), "").await?;
    until("the member that was moved to serve", async || get(&client, job).await.ok()).await?;
    moved.tell(Signal::SIGTERM)?;
    moved.ends_with(0).await
}
