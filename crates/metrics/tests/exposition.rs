//! Tests of the page that declarations produce.

use std::time::Duration;

use prometheus_client::registry::Registry;
use tessera_metrics::declare::Process;
use tessera_metrics::{page, table};

#[test]
fn a_declaration_says_name_unit_labels_and_meaning_once() {
    let mut registry = Registry::default();
    table::JOBS_SUBMITTED.by_label(&mut registry).of(["red"]).inc();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let waits = table::JOB_WAIT.traced(&mut registry);
    waits.of(["red"]).observe(Duration::from_secs(2), Some(trace.to_owned()));
    waits.of(["red"]).observe(Duration::from_secs(20), None);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("it can be written");
    for line in [
        "# HELP tessera_jobs_submitted Jobs submitted.",
        "tessera_jobs_submitted_total{queue=\"red\"} 1",
        "# UNIT tessera_job_wait_seconds seconds",
        "tessera_job_wait_seconds_count{queue=\"red\"} 2",
        // Whoever sees a slow bucket finds a trace of what was slow.
        "tessera_job_wait_seconds_bucket{le=\"5.0\",queue=\"red\"} 1 # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"} 2.0",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

#[test]
fn what_is_not_declared_so_is_found_on_a_page() {
    let text = "# HELP tessera_nodes Nodes.\n# TYPE tessera_nodes counter\ntessera_nodes{state=\"ready\",rack=\"1\"} 1\n\
                # TYPE tessera_made_up gauge\ntessera_made_up 1\n";
    let problems = page::problems(text, Process::Member, &[]);
    let found = |problem: &str| assert!(problems.iter().any(|said| said.contains(problem)), "{problem}: {problems:?}");
    found("tessera_nodes is shown as a counter");
    found("tessera_nodes{state=\"ready\",rack=\"1\"} 1 has other labels");
    found("tessera_made_up is not declared");
    found("tessera_raft_term is declared and not on the page");
}
