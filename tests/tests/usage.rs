//! Showback on a real pool: what jobs are told to have held is what they held, to the millisecond of the ledger's time,
//! whoever led meanwhile, and whichever member is asked.

use anyhow::{Context, Result};
use tessera_api::time::log_time;
use tessera_api::v1::{
    CheckpointMode, CheckpointPolicy, Job, JobState, QueryUsageRequest, QueryUsageResponse, Span, UsageGroup,
};
use tessera_tests::jobs::{on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

fn by(group: UsageGroup) -> QueryUsageRequest {
    QueryUsageRequest { by: group.into(), ..Default::default() }
}

/// The block-milliseconds that the attempts of an ended job held, by the ledger's own history.
fn held(job: &Job, blocks: u64) -> Result<u64> {
    let mut sum = 0;
    for attempt in &job.history {
        let granted = attempt.granted_at.as_ref().context("it was granted")?;
        let ended = attempt.ended_at.as_ref().context("it has ended")?;
        let at = |field, time| log_time(field, time).expect("the ledger's times are such").0;
        sum += blocks * (at("ended_at", ended) - at("granted_at", granted));
    }
    Ok(sum)
}

fn told(answer: &QueryUsageResponse, key: &str) -> Option<(u64, f64)> {
    let row = answer.rows.iter().find(|row| row.key == key)?;
    let sums = row.sums.as_ref()?;
    Some((sums.block_milliseconds, sums.lost_block_hours))
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_told_to_have_held_what_they_held_whoever_led() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let gate = pool.folder().join("gate");
    let line = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let first = submit(&client, on(shell(&line), 3, Span::Card)).await?;
    let quick = submit(&client, on(shell("true"), 2, Span::Card)).await?;
    wait_for(&client, first, JobState::Running).await?;
    let quick = wait_for(&client, quick, JobState::Completed).await?;
    // The leader goes while the first job runs, and the job ends under another.
    let killed = pool.leader().await?;
    pool.kill_member(killed);
    std::fs::write(&gate, "")?;
    let first = wait_for(&client, first, JobState::Completed).await?;
    pool.start_member(killed)?;

    let expected = [(first.id, held(&first, 3)?), (quick.id, held(&quick, 2)?)];
    for place in 0..3 {
        let own = pool.client_of(place);
        let answer =
            until(&format!("member {place} to tell usage"), async || own.query_usage(by(UsageGroup::Job)).await.ok())
                .await?;
        assert_eq!(answer.gaps, [], "of member {place}");
        for (job, sum) in expected {
            assert_eq!(told(&answer, &job.to_string()).map(|(sum, _)| sum), Some(sum), "job {job}, member {place}");
        }
        let total = answer.total.and_then(|total| total.sums).context("a total")?;
        assert_eq!(total.block_milliseconds, expected.iter().map(|(_, sum)| sum).sum::<u64>());
        assert_eq!(total.lost_block_hours, 0.0);
    }

    // Cut in two, the parts add up.
    let middle = first.history[0].started_at;
    let before = client.query_usage(QueryUsageRequest { to: middle, ..by(UsageGroup::Queue) }).await?;
    let after = client.query_usage(QueryUsageRequest { from: middle, ..by(UsageGroup::Queue) }).await?;
    let parts = [&before, &after].map(|part| told(part, "default").map_or(0, |(sum, _)| sum));
    assert_eq!(parts.iter().sum::<u64>(), expected.iter().map(|(_, sum)| sum).sum::<u64>());

    // A whole restart of the pool counts nothing again and forgets nothing.
    for place in 0..3 {
        pool.end_member(place).await?;
    }
    for place in 0..3 {
        pool.start_member(place)?;
    }
    let again = until("the pool to be back", async || client.query_usage(by(UsageGroup::Job)).await.ok()).await?;
    for (job, sum) in expected {
        assert_eq!(told(&again, &job.to_string()).map(|(sum, _)| sum), Some(sum), "job {job} after the restart");
    }
    let csv = pool.cli_ok(&["usage", "--by", "job", "--csv"]).await?;
    assert!(csv.starts_with("key,name,kind,block_hours,"), "{csv}");
    assert!(csv.contains(&format!(",{},", expected[0].1)), "{csv}");
    let file = pool.folder().join("usage.parquet");
    pool.cli_ok(&["usage", "--by", "job", "--parquet", &file.display().to_string()]).await?;
    let written = std::fs::read(&file)?;
    assert!(written.starts_with(b"PAR1") && written.ends_with(b"PAR1"), "a Parquet file");
    let inactive = pool.cli_ok(&["usage", "--by", "user", "--inactive", "1d", "-o", "name"]).await?;
    assert_eq!(inactive.lines().count(), 0, "everybody was here within a day: {inactive}");
    let inactive = pool.cli_ok(&["usage", "--by", "user", "--inactive", "1ms", "-o", "name"]).await?;
    assert_eq!(inactive.lines().count(), 1, "whoever submitted holds nothing any more: {inactive}");
    let refused = pool.cli(&["usage", "--by", "colour"]).await?;
    assert_eq!(refused.status.code(), Some(2));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_preempted_job_loses_is_told_as_lost() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let gate = pool.folder().join("gate");
    let waits = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Requeue.into(), ..Default::default() };
    let mut victim = on(shell(&waits), 6, Span::Card);
    victim.checkpoint = Some(checkpoint);
    victim.priority = Some(1);
    let victim = submit(&client, victim).await?;
    wait_for(&client, victim, JobState::Running).await?;
    let mut urgent = on(shell("true"), 5, Span::Card);
    urgent.priority = Some(90);
    let urgent = submit(&client, urgent).await?;
    wait_for(&client, urgent, JobState::Completed).await?;
    std::fs::write(&gate, "")?;
    let victim = wait_for(&client, victim, JobState::Completed).await?;
    assert_eq!(victim.attempts, 2, "it was preempted once");
    let answer = client.query_usage(by(UsageGroup::Job)).await?;
    let (sum, lost) = told(&answer, &victim.id.to_string()).context("it held something")?;
    assert_eq!(sum, held(&victim, 6)?);
    let first = Job { history: victim.history[..1].to_vec(), ..victim };
    let expected = held(&first, 6)? as f64 / 3_600_000.0;
    assert!((lost - expected).abs() < 1e-9, "{lost} lost, {expected} expected");
    Ok(())
}
