//! Idle reclaim on real processors: a job that computes nothing is told so, loses what protected it, and has it again
//! as soon as it computes. That it is suspended and comes back is in `motion.rs`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tessera_api::v1::{Job, JobSpec, JobState, Span};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::page;
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// Waits until a job runs for this reason.
async fn runs_for(client: &Client, job: u64, code: &str) -> Result<Job> {
    until(&format!("job {job} to run for {code}"), async || {
        let seen = get(client, job).await.ok()?;
        let is_so = seen.state() == JobState::Running && seen.reason.as_ref()?.code == code;
        is_so.then_some(seen)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_job_gives_way_and_a_working_one_does_not() -> Result<()> {
    let init = vec!["--block-size", "1GFLOPS", "--reference-precision", "fp32"];
    let pool = Pool::start(Options { members: 1, nodes: vec![], local_nodes: 1, init, ..Options::default() }).await?;
    let client = pool.client();
    let blocks = pool.summary().await?.pool.and_then(|pool| pool.blocks).context("blocks")?.free;
    let part = |line: &str, parts: u64| {
        let mut spec = on(shell(line), 0, Span::Card);
        spec.virtual_card.get_or_insert_default().milli_tflops = (blocks / parts).max(1);
        spec
    };
    let set = ["queue", "set", "default", "--idle", "below 5% notify 2s preemptible 4s"];
    pool.cli_ok(&set).await?;
    let shown = pool.cli_ok(&["queue", "show", "default"]).await?;
    assert!(shown.contains("below 5% notify 2s preemptible 4s"), "{shown}");

    let (folder, other) = (pool.shared_folder("signs")?, "while :; do :; done");
    let signs = folder.display();
    let line = format!(
        "while [ ! -e {signs}/work ]; do sleep 0.5; done; while [ ! -e {signs}/rest ]; do :; done; exec sleep 1000"
    );
    let firm = |spec: JobSpec| JobSpec { preemptible: Some(false), ..spec };
    let sleeper = submit(&client, firm(part(&line, 2))).await?;
    let worker = submit(&client, firm(part(other, 4))).await?;
    let kept = firm(part("exec sleep 1000", 8));
    let kept = JobSpec { labels: [("tessera.idle".to_owned(), "keep".to_owned())].into(), ..kept };
    let kept = submit(&client, kept).await?;
    let idle = runs_for(&client, sleeper, "IDLE_PREEMPTIBLE").await?;
    let text = pool.cli_ok(&["job", "show", &sleeper.to_string()]).await?;
    assert!(text.contains("preemptible") && text.contains("IDLE_PREEMPTIBLE"), "{text}");
    let shown: Value = serde_json::from_str(&pool.cli_ok(&["job", "show", &sleeper.to_string(), "-o", "json"]).await?)?;
    assert_eq!(shown["idle"]["step"], "preemptible", "{shown}");
    let page = page::get(&pool.members[0].http, &format!("/v1/jobs/{sleeper}"), "*/*")?;
    assert!(page.contains("IDLE_STEP_PREEMPTIBLE"), "{page}");
    let events = pool.cli_ok(&["job", "events", &sleeper.to_string()]).await?;
    assert!(events.contains("IDLE_NOTICED"), "it was said before: {events}");
    ensure!(idle.idle.and_then(|idle| idle.since).is_some());
    let metrics = page::get(&pool.members[0].http, "/metrics", "text/plain")?;
    assert!(metrics.contains("tessera_jobs_idle{queue=\"default\",step=\"preemptible\"} 1"), "{metrics}");

    // It works, and is left alone again; it rests, and gives way to one that asks for all that it holds.
    std::fs::write(folder.join("work"), "")?;
    let busy = runs_for(&client, sleeper, "STARTED").await?;
    assert!(busy.idle.is_none(), "{busy:?}");
    std::fs::write(folder.join("rest"), "")?;
    runs_for(&client, sleeper, "IDLE_PREEMPTIBLE").await?;
    let urgent = submit(&client, JobSpec { priority: Some(90), ..part(other, 2) }).await?;
    wait_for(&client, urgent, JobState::Running).await?;
    let gone = get(&client, sleeper).await?;
    assert_eq!(gone.reason.map(|reason| reason.code).as_deref(), Some("PREEMPTED"));
    for job in [worker, kept] {
        let job = get(&client, job).await?;
        assert_eq!((job.state(), job.idle, job.attempts), (JobState::Running, None, 1));
    }
    pool.verify().await
}
