//! A member's wall clock is ten years ahead; nobody notices but its operator.

use anyhow::{Context, Result};
use tessera_api::v1::{JobState, RetryPolicy, TransferLeadershipRequest};
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The place of the member whose clock is wrong: it is asked to found the pool, and leads first.
const WRONG: usize = 0;

/// A job that fails once, and is tried again a second later, completes; its times are those of the other members.
async fn fails_once_and_completes(pool: &Pool, name: &str) -> Result<()> {
    let mark = pool.folder().join(name);
    let mut spec = shell(&format!("test -e {0} || {{ touch {0}; exit 1; }}", mark.display()));
    spec.retry = Some(RetryPolicy {
        max_retries: 1,
        backoff: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..RetryPolicy::default()
    });
    let client = pool.client();
    let job = submit(&client, spec).await?;
    let job = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!(job.attempts, 2, "it was to fail once");
    let submitted = job.submitted_at.context("a job was submitted at some time")?.seconds;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    assert!(submitted.abs_diff(i64::try_from(now)?) < 86_400, "it was submitted at {submitted}, and it is {now}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_ten_years_ahead_costs_nothing_when_it_leads() -> Result<()> {
    let nodes = vec![vec![("gpu", 8)]];
    let member_arguments = vec![(WRONG, "--clock-offset"), (WRONG, "10years")];
    let pool = Pool::start(Options { nodes, member_arguments, ..Options::default() }).await?;
    fails_once_and_completes(&pool, "first").await?;

    until("another member to lead", async || pool.leader().await.ok().filter(|leader| *leader != WRONG)).await?;
    let said = pool.client_of(WRONG).get_cluster_status(Default::default()).await?;
    assert!(said.clock_off && said.clock_offset.is_some_and(|offset| offset.seconds > 300_000_000), "{said:?}");

    pool.client()
        .transfer_leadership(TransferLeadershipRequest { member_id: said.member_id, ..Default::default() })
        .await?;
    fails_once_and_completes(&pool, "second").await?;
    let shown = pool.cli_ok(&["cluster", "status"]).await?;
    assert!(shown.contains("ahead: set it right"), "{shown}");
    pool.verify().await
}
