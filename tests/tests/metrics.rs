//! The metrics that members and agents publish: well-formed, named by the rules, and bounded.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use tessera_api::v1::JobState;
use tessera_metrics::declare::Process;
use tessera_metrics::page::problems;
use tessera_metrics::table;
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::page::get;
use tessera_tests::pool::{Options, Pool};

/// Runs Prometheus' own check over a page.
fn promtool(page: &str) -> Result<String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool is not there: run deploy/setup.sh test")?;
    child.stdin.take().context("no standard input")?.write_all(page.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok(format!("{}{}", if output.status.success() { "" } else { "failed: " }, String::from_utf8_lossy(&said)))
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_keep_the_rules_of_the_field() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let job = submit(&client, shell("true")).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let leader = pool.leader().await?;
    for address in [&pool.members[leader].http, &pool.nodes[0].http] {
        let page = get(address, "/metrics", "text/plain")?;
        assert_eq!(promtool(&page)?, "", "of {address}:\n{page}");
        assert!(page.contains("tessera_build_info"), "{page}");
        let open = get(address, "/metrics", "application/openmetrics-text; version=1.0.0")?;
        assert!(open.ends_with("# EOF\n"), "OpenMetrics ends with its mark");
        assert!(page.lines().count() < 5_000);
    }
    let page = get(&pool.members[leader].http, "/metrics/detail/jobs", "text/plain")?;
    assert_eq!(promtool(&page)?, "", "job by job:\n{page}");
    assert_eq!(problems(&page, Process::JobsPage, &[]), Vec::<String>::new(), "{page}");
    let page = get(&pool.nodes[0].http, "/metrics", "text/plain")?;
    assert_eq!(problems(&page, Process::Agent, &[]), Vec::<String>::new(), "{page}");
    let page = get(&pool.members[leader].http, "/metrics", "text/plain")?;
    // Shown once there is something to show.
    let absent = [&table::CLOCK_OFFSET.declaration, &table::RAFT_SNAPSHOT_AGE.declaration];
    assert_eq!(problems(&page, Process::Member, &absent), Vec::<String>::new(), "{page}");
    for name in ["tessera_raft_is_leader 1", "tessera_raft_term", "tessera_blocks{", "tessera_jobs{", "tessera_nodes{"]
    {
        assert!(page.contains(name), "{name} is missing:\n{page}");
    }
    assert!(get(&pool.members[leader].http, "/livez", "*/*").is_ok());
    assert!(get(&pool.members[leader].http, "/readyz", "*/*").is_ok());
    Ok(())
}
