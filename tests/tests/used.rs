//! The use that a job makes of what it holds: measured on its node, reported to the leader on the session, and shown to
//! whoever asks.

use anyhow::{Context, Result};
use serde_json::Value;
use tessera_api::v1::{JobState, ListUseRequest, Span};
use tessera_tests::jobs::{on, shell, submit, wait_for};
use tessera_tests::page::get;
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The value of the series of a page that begins so and has these labels.
fn value(page: &str, metric: &str, labels: &[&str]) -> Option<f64> {
    let of_it =
        |line: &&str| line.starts_with(&format!("{metric}{{")) && labels.iter().all(|label| line.contains(label));
    page.lines().find(of_it)?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_uses_is_told_from_its_node_to_whoever_asks() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, on(shell("while :; do :; done"), 5, Span::Card)).await?;
    wait_for(&client, job, JobState::Running).await?;

    // Its agent measures every two seconds; its processor is busy all the time that the machine gives it.
    let used = until("its use", async || {
        let text = pool.cli_ok(&["job", "list", "--use", "-o", "json"]).await.ok()?;
        let listed: Value = serde_json::from_str(&text).ok()?;
        assert_eq!((listed[0]["id"].as_u64(), listed[0]["used"]["blocks"].as_u64()), (Some(job), Some(5)), "{text}");
        let used = listed[0]["used"].clone();
        (used["processors"].as_f64()? > 0.1).then_some(used)
    })
    .await?;
    assert_eq!((&used["workers"], &used["measured_workers"]), (&1.into(), &1.into()), "{used}");
    let share = used["utilization"].as_f64().context("a share")?;
    assert!((0.8..=1.0).contains(&share), "simulated cards compute hard for what is granted: {used}");
    assert_eq!(used["memory_used_mib"], used["memory_held_mib"], "and keep its memory in use");
    assert!(used["host_memory_mib"].as_u64().is_some(), "{used}");

    let text = pool.cli_ok(&["job", "show", &job.to_string(), "-o", "json"]).await?;
    let shown: Value = serde_json::from_str(&text)?;
    let worker = &shown["used"]["by_worker"][0];
    assert_eq!(
        (&worker["node"], &worker["slices"][0]["blocks"]),
        (&pool.nodes[0].name.clone().into(), &5.into()),
        "{text}"
    );

    // Every member can be asked, whoever leads.
    for member in &pool.members {
        let answer: Value = serde_json::from_str(&get(&member.http, &format!("/v1/jobs:use?job_ids={job}"), "*/*")?)?;
        assert_eq!(answer["uses"][0]["measuredWorkers"], 1, "{answer}");
    }
    let leader = &pool.members[pool.leader().await?];
    let labels = [&*format!("job_id=\"{job}\""), "queue=\"default\""];
    let page = get(&leader.http, "/metrics/detail/jobs", "text/plain")?;
    assert_eq!(value(&page, "tessera_job_granted_blocks", &labels), Some(5.0), "{page}");
    assert!(value(&page, "tessera_job_utilization_ratio", &labels).context("its use")? > 0.8, "{page}");
    assert_eq!(value(&page, "tessera_job_info", &["state=\"running\""]), Some(1.0), "{page}");
    let none = get(&leader.http, "/metrics/detail/jobs?queue=nobodys", "text/plain")?;
    assert_eq!(value(&none, "tessera_job_info", &[]), None, "{none}");
    for wrong in ["limit=0", "state=asleep", "colour=red"] {
        let refused = get(&leader.http, &format!("/metrics/detail/jobs?{wrong}"), "*/*").expect_err(wrong);
        assert!(refused.to_string().contains("400"), "{refused}");
    }
    let page = get(&pool.nodes[0].http, "/metrics", "text/plain")?;
    assert!(value(&page, "tessera_slice_utilization_ratio", &labels).context("its use")? > 0.8, "{page}");
    assert_eq!(value(&page, "tessera_slice_granted_blocks", &labels), Some(5.0));
    assert!(value(&page, "tessera_worker_processor_seconds_total", &labels).context("its time")? > 0.1, "{page}");
    assert!(value(&page, "tessera_card_energy_joules_total", &["card=\"0\""]).context("its energy")? > 0.0, "{page}");

    // What is over uses nothing, and no series of it stays.
    pool.cli_ok(&["job", "cancel", &job.to_string(), "--yes"]).await?;
    wait_for(&client, job, JobState::Cancelled).await?;
    let answer = client.list_use(ListUseRequest { job_ids: vec![job], by_worker: false }).await?;
    assert!(answer.uses.is_empty(), "{answer:?}");
    until("its series to be gone", async || {
        let page = get(&pool.nodes[0].http, "/metrics", "text/plain").ok()?;
        value(&page, "tessera_slice_granted_blocks", &labels).is_none().then_some(())
    })
    .await
}
