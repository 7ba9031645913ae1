//! One trace from the command line to the end of the run, and the same metrics over OTLP as on the page.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use tessera_api::v1::{CancelJobRequest, Job, JobState, SubmitJobRequest};
use tessera_tests::collector::{Collector, Span, attributes};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The spans of a job that ran once, by one worker.
const LIFE: [&str; 7] = ["submit", "propose", "commit", "place", "launch", "run", "stop"];
/// The call that a submission is.
const CALL: &str = "tessera.v1.JobService/SubmitJob";

async fn start(collector: &Collector) -> Result<Pool> {
    let lease = [500, 9_000, 12_000, 20_000];
    let nodes = vec![vec![("gpu", 8)]];
    Pool::start(Options { nodes, lease, environment: collector.environment(), ..Options::default() }).await
}

/// Submits a line of shell by the command line, which is given more to say; answers the job's number.
async fn submit_by_hand(pool: &Pool, line: &str, more: &[&str]) -> Result<u64> {
    let file = pool.folder().join("job.yaml");
    let text =
        format!("name: traced\ncommand: [/bin/sh, -c, {line:?}]\nvirtual_card: {{ tflops: 2, memory: 64MiB }}\n");
    std::fs::write(&file, text)?;
    let file = file.to_string_lossy();
    let said = pool.cli_ok(&[&["job", "submit", &file, "--output", "json"], more].concat()).await?;
    let answer: serde_json::Value = serde_json::from_str(&said)?;
    answer["id"].as_u64().context("a job has a number")
}

/// The trace of a job and the id of the span that everything done for it lies in.
fn context_of(job: &Job) -> (String, String) {
    let parts: Vec<&str> = job.traceparent.split('-').collect();
    assert_eq!((parts.len(), parts[3]), (4, "01"), "the trace of a submission by hand is kept: {}", job.traceparent);
    (parts[1].to_owned(), parts[2].to_owned())
}

/// Waits until the trace of a job has the span of its submission and some of all these names; answers all of its spans.
async fn told(collector: &Collector, job: &Job, names: &[&str]) -> Result<Vec<Span>> {
    let (trace, submission) = context_of(job);
    until(&format!("{names:?} in trace {trace}"), async || {
        let spans = collector.trace(&trace);
        let there = |name: &&str| spans.iter().any(|span| span.name == **name);
        (spans.iter().any(|span| span.id == submission) && names.iter().all(there)).then_some(spans)
    })
    .await
}

/// Waits until a span of a trace has come.
async fn arrived(collector: &Collector, trace: &str, id: &str) -> Result<Span> {
    until(&format!("span {id}"), async || collector.trace(trace).into_iter().find(|span| span.id == id)).await
}

/// The only span of a name.
fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

/// The only span of a name within another one.
fn within<'a>(spans: &'a [Span], parent: &str, name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name && span.parent == parent).collect();
    assert_eq!(found.len(), 1, "{name} within {parent} in {spans:#?}");
    found[0]
}

/// The submission that made the job. A client that hears nothing for a while asks another member too: then there are
/// others in the trace, which were answered as the first one was.
fn submission_of<'a>(spans: &'a [Span], id: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.id == id).expect("the context in the ledger is that of a span");
    assert_eq!(found.name, "submit");
    found
}

#[track_caller]
fn says(span: &Span, key: &str, value: &str) {
    assert_eq!(span.attributes.get(key).map(String::as_str), Some(value), "{key} of {span:#?}");
}

/// Everything lies where it belongs, and nothing before what it follows from.
fn assert_nested(spans: &[Span], submission: &str) {
    let submit = submission_of(spans, submission);
    let propose = within(spans, submission, "propose");
    let commit = within(spans, &propose.id, "commit");
    let [place, launch, run, stop] = ["place", "launch", "run", "stop"].map(|name| only(spans, name));
    for child in [place, launch, run, stop] {
        assert_eq!(child.parent, submission, "{child:#?}");
    }
    assert!(submit.start <= propose.start && propose.start <= commit.start);
    assert!(commit.end <= propose.end && propose.end <= submit.end);
    assert_eq!(launch.end, run.start, "a run begins when its process does");
    assert!(place.start <= place.end && launch.start <= launch.end && run.start <= run.end);
    assert!(run.start <= stop.start && run.end <= stop.end);
}

/// The command line submits, and a collector has the whole life of the job in one trace.
#[tokio::test(flavor = "multi_thread")]
async fn one_trace_holds_the_life_of_a_job() -> Result<()> {
    let collector = Collector::start().await?;
    let pool = start(&collector).await?;
    let client = pool.client();
    let id = submit_by_hand(&pool, "echo $TRACEPARENT", &[]).await?;
    let job = wait_for(&client, id, JobState::Completed).await?;
    let (trace, submission) = context_of(&job);
    let spans = told(&collector, &job, &LIFE).await?;
    assert_nested(&spans, &submission);
    assert!(spans.iter().all(|span| span.failed.is_none()), "{spans:#?}");

    let submit = submission_of(&spans, &submission);
    let [place, run, stop] = ["place", "run", "stop"].map(|name| only(&spans, name));
    for span in [submit, place, run, stop] {
        says(span, "tessera.job.id", &id.to_string());
    }
    says(place, "tessera.nodes", &pool.nodes[0].name);
    says(place, "tessera.blocks", "2");
    says(place, "tessera.reason", "GRANTED");
    says(run, "process.exit.code", "0");
    says(stop, "tessera.stop.cause", "EXITED");
    let commits = spans.iter().filter(|span| span.name == "commit");
    assert!(commits.into_iter().all(|commit| commit.attributes.contains_key("tessera.raft.index")));
    assert_eq!(submit.resource["service.name"], "tessera-server");
    assert_eq!(run.resource["service.instance.id"], pool.nodes[0].name);

    // What the program does belongs to its run, and people find the trace by its id.
    assert_eq!(output(&client, id, 0).await?.trim(), format!("00-{trace}-{}-01", run.id));
    assert!(pool.cli_ok(&["job", "show", &id.to_string()]).await?.contains(&trace));
    Ok(())
}

/// The jobs of one message of a stream lie in one submission, and in the call that brought it.
#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_message_share_a_submission() -> Result<()> {
    let collector = Collector::start().await?;
    let pool = start(&collector).await?;
    let client = pool.client();
    let request = || SubmitJobRequest { request_id: client.new_request_id(), spec: Some(shell("true")) };
    let mut submissions = client.submit_jobs(futures::stream::iter([request(), request()]));
    let mut jobs = Vec::new();
    while let Some(submission) = submissions.next().await? {
        jobs.push(get(&client, submission.outcome?.job_id).await?);
    }
    assert_eq!((jobs.len(), &jobs[0].traceparent), (2, &jobs[1].traceparent));
    let (trace, submission) = context_of(&jobs[0]);
    let spans = told(&collector, &jobs[0], &["propose", "commit"]).await?;
    let submit = submission_of(&spans, &submission);
    says(submit, "tessera.jobs.submitted", "2");
    says(submit, "tessera.jobs.refused", "0");
    within(&spans, &within(&spans, &submission, "propose").id, "commit");
    let call = arrived(&collector, &trace, &submit.parent).await?;
    assert_eq!(call.name, "tessera.v1.JobService/SubmitJobs");
    says(&call, "rpc.response.status_code", "OK");
    Ok(())
}

/// A member passes a submission on; then the leader dies, and the agent too; and the job is cancelled: it is one trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_survives_the_leader_and_the_agent() -> Result<()> {
    let collector = Collector::start().await?;
    let mut pool = start(&collector).await?;
    let leader = pool.leader().await?;
    let follower = pool.members[(leader + 1) % 3].address.clone();
    let id = submit_by_hand(&pool, "exec sleep 600", &["--server", &follower]).await?;
    let client = pool.client();
    let job = wait_for(&client, id, JobState::Running).await?;
    let (trace, submission) = context_of(&job);
    // What is over is told while the job runs.
    let spans = told(&collector, &job, &LIFE[..5]).await?;
    assert!(spans.iter().all(|span| span.name != "run" && span.name != "stop"));
    let at_leader = arrived(&collector, &trace, &submission_of(&spans, &submission).parent).await?;
    assert_eq!(at_leader.name, CALL);
    if at_leader.resource["service.instance.id"] != follower {
        let at_follower = arrived(&collector, &trace, &at_leader.parent).await?;
        assert_eq!((at_follower.name.as_str(), &at_follower.resource["service.instance.id"]), (CALL, &follower));
    }

    pool.kill_member(leader);
    pool.kill_agent(0);
    pool.start_agent(0)?;
    until("another leader", async || {
        let known = pool.leader().await.ok()?;
        (known != leader).then_some(())
    })
    .await?;
    pool.cli_ok(&["job", "cancel", "--yes", &id.to_string()]).await?;
    let cancelled = wait_for(&client, id, JobState::Cancelled).await?;
    assert_eq!((cancelled.attempts, &cancelled.traceparent), (1, &job.traceparent));
    let spans = told(&collector, &job, &LIFE).await?;
    assert_nested(&spans, &submission);
    let [run, stop] = ["run", "stop"].map(|name| only(&spans, name));
    says(stop, "tessera.stop.cause", "ORDERED");
    says(run, "tessera.exit.signal", "15");
    assert_eq!(run.failed, None, "it was stopped by order");
    Ok(())
}

/// An operation that was refused or failed says so in its span; a caller without a context begins a trace of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_says_so_in_its_span() -> Result<()> {
    let collector = Collector::start().await?;
    let pool = start(&collector).await?;
    let client = pool.client();
    let id = submit(&client, shell("exit 3")).await?;
    let job = wait_for(&client, id, JobState::Failed).await?;
    let (trace, submission) = context_of(&job);
    let spans = told(&collector, &job, &LIFE).await?;
    assert_nested(&spans, &submission);
    let call = arrived(&collector, &trace, &submission_of(&spans, &submission).parent).await?;
    assert_eq!((call.name.as_str(), call.parent.as_str()), (CALL, ""));
    says(&call, "rpc.response.status_code", "OK");
    let run = only(&spans, "run");
    says(run, "process.exit.code", "3");
    assert_eq!(run.failed.as_deref(), Some("exited with code 3"));

    let mut missing = shell("true");
    missing.command = vec!["/nowhere/to/be/found".to_owned()];
    let id = submit(&client, missing).await?;
    let job = wait_for(&client, id, JobState::Failed).await?;
    let spans = told(&collector, &job, &LIFE[..5]).await?;
    assert!(only(&spans, "launch").failed.as_deref().is_some_and(|why| why.contains("cannot be run")), "{spans:#?}");

    let fills = submit(&client, on(shell("exec sleep 600"), 8, tessera_api::v1::Span::Card)).await?;
    wait_for(&client, fills, JobState::Running).await?;
    let waits = submit(&client, shell("true")).await?;
    client.cancel_job(CancelJobRequest { job_id: waits, ..Default::default() }).await?;
    let job = get(&client, waits).await?;
    let place = only(&told(&collector, &job, &["place"]).await?, "place").clone();
    assert!(place.failed.as_deref().is_some_and(|why| why.starts_with("cancelled")), "{place:#?}");
    assert!(!place.attributes.contains_key("tessera.nodes"));

    let large = on(shell("true"), 1_000_000, tessera_api::v1::Span::Pool);
    let request = SubmitJobRequest { spec: Some(large), ..Default::default() };
    client.submit_job(request).await.expect_err("the pool is smaller");
    let refused = until("the span of what was refused", async || {
        collector.spans().into_iter().find(|span| span.name == "submit" && span.failed.is_some())
    })
    .await?;
    let call = arrived(&collector, &refused.trace, &refused.parent).await?;
    let spans = collector.trace(&refused.trace);
    assert!(within(&spans, &refused.id, "propose").failed.is_some());
    assert_eq!((call.name.as_str(), call.failed.as_deref()), (CALL, None), "the caller asked for too much");
    Ok(())
}

fn page(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\nAccept: application/openmetrics-text\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    anyhow::ensure!(head.contains("200"), "{head}");
    Ok(body.to_owned())
}

/// The metrics of a page that have a series, as OTLP names them.
fn named(page: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut family = None;
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            family = Some(if kind == "info" { format!("{name}_info") } else { name.to_owned() });
        } else if !line.starts_with('#') {
            names.extend(family.take());
        }
    }
    names
}

/// The value of a counter on a page.
fn counted_on(page: &str, series: &str) -> Option<i64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The value of a counter with these labels over OTLP.
fn counted(metric: &Metric, labels: &[(&str, &str)]) -> Option<i64> {
    let Some(Data::Sum(sum)) = &metric.data else { panic!("a counter is a sum: {metric:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
    let wanted = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let point = sum.data_points.iter().find(|point| attributes(&point.attributes) == wanted)?;
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano <= point.time_unix_nano);
    match point.value? {
        Value::AsInt(value) => Some(value),
        Value::AsDouble(_) => None,
    }
}

/// A collector sees what the pages show: the same metrics, with the same values, from whoever tells the spans.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_over_otlp_are_those_of_the_page() -> Result<()> {
    let collector = Collector::start().await?;
    let pool = start(&collector).await?;
    let client = pool.client();
    for _ in 0..3 {
        let id = submit(&client, shell("true")).await?;
        wait_for(&client, id, JobState::Completed).await?;
    }
    let job = get(&client, 1).await?;
    let spans = told(&collector, &job, &["run"]).await?;
    let submission = submission_of(&spans, &context_of(&job).1);
    let led = pool.members.iter().find(|member| member.address == submission.resource["service.instance.id"]);
    let led = led.context("a member told it")?;
    let member = (led.address.as_str(), led.http.as_str());
    let agent = (pool.nodes[0].name.as_str(), pool.nodes[0].http.as_str());
    for (instance, http) in [member, agent] {
        until(&format!("the metrics of {instance} to be those on its page"), async || {
            let (_, metrics) = collector.metrics(instance)?;
            (metrics.keys().cloned().collect::<BTreeSet<_>>() == named(&page(http).ok()?)).then_some(())
        })
        .await?;
    }
    let queue = [("queue", "default")];
    let series: [(_, _, &[_], _); 3] = [
        (member, "tessera_jobs_submitted", &queue, "tessera_jobs_submitted_total{queue=\"default\"}"),
        (member, "tessera_raft_leader_changes", &[], "tessera_raft_leader_changes_total"),
        (agent, "tessera_agent_sessions", &[], "tessera_agent_sessions_total"),
    ];
    for ((instance, http), name, labels, on_page) in series {
        until(&format!("{name} of {instance} to be what its page shows"), async || {
            let (_, metrics) = collector.metrics(instance)?;
            let told = counted(metrics.get(name)?, labels)?;
            (told > 0 && counted_on(&page(http).ok()?, on_page) == Some(told)).then_some(())
        })
        .await?;
    }
    let (_, metrics) = collector.metrics(member.0).context("they came")?;
    let waits = metrics.get("tessera_job_wait_seconds").context("a histogram")?;
    let Some(Data::Histogram(histogram)) = &waits.data else { panic!("{waits:?}") };
    let point = &histogram.data_points[0];
    assert!(point.count > 0 && point.count == point.bucket_counts.iter().sum::<u64>());
    assert_eq!(waits.unit, "s");
    for (span, instance) in [(submission, member.0), (only(&spans, "run"), agent.0)] {
        let (resource, _) = collector.metrics(instance).context("they came")?;
        assert_eq!(span.resource, resource, "spans and metrics name the same process");
    }
    Ok(())
}
