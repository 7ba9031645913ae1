//! The life of jobs, through real processes.

use anyhow::Result;
use tessera_api::v1::{CancelJobRequest, Eligibility, HostRequest, JobSpec, JobState, Span};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, REFERENCE_POOL};
use tessera_tests::wait::until;

/// P9 and the spans: a virtual card on one card, over the kinds of a node, over the nodes of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_on_virtual_cards_of_every_span() -> Result<()> {
    let nodes = REFERENCE_POOL.iter().map(|cards| cards.to_vec()).collect();
    let pool = Pool::start(Options { nodes, ..Options::default() }).await?;
    let client = pool.client();
    let say = "cat $TESSERA_VCARD_FILE; echo rank $RANK of $WORLD_SIZE";

    let card = submit(&client, on(shell(say), 20, Span::Card)).await?;
    wait_for(&client, card, JobState::Completed).await?;
    assert!(output(&client, card, 0).await?.contains("rank 0 of 1"));

    let mut mixed = on(shell(say), 50, Span::Node);
    mixed.virtual_card.get_or_insert_default().mixed = true;
    let node = submit(&client, mixed).await?;
    let job = wait_for(&client, node, JobState::Completed).await?;
    assert_eq!(job.history[0].exit_code, Some(0));
    let text = output(&client, node, 0).await?;
    assert!(text.contains("fpga") && text.contains("npu"), "50 TFLOPS are more than one kind has on a node: {text}");

    let mut wide = on(shell(say), 100, Span::Pool);
    wide.virtual_card.get_or_insert_default().mixed = true;
    let wide = submit(&client, wide).await?;
    let job = wait_for(&client, wide, JobState::Completed).await?;
    assert!(job.history[0].nodes.len() >= 2, "100 TFLOPS are more than one node has");
    assert!(output(&client, wide, 1).await?.contains("rank 1 of"));

    pool.verify().await?;
    let counts = pool.summary().await?;
    let blocks = counts.pool.and_then(|pool| pool.blocks);
    assert_eq!(blocks.map(|blocks| blocks.free), Some(200));
    Ok(())
}

/// Exit codes, output and signals reach whoever asks, and failed jobs say why.
#[tokio::test(flavor = "multi_thread")]
async fn ends_are_reported_as_they_were() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let fails = submit(&client, shell("echo to the log; echo to stderr >&2; exit 7")).await?;
    let job = wait_for(&client, fails, JobState::Failed).await?;
    assert_eq!(job.history[0].exit_code, Some(7));
    assert_eq!(job.reason.map(|reason| reason.code).as_deref(), Some("NON_ZERO_EXIT"));
    assert_eq!(output(&client, fails, 0).await?, "to the log\n");

    let dies = submit(&client, shell("kill -9 $$")).await?;
    let job = wait_for(&client, dies, JobState::Failed).await?;
    assert_eq!(job.history[0].signal, Some(9));

    let mut missing = shell("");
    missing.command = vec!["/no/such/program".to_owned()];
    let missing = submit(&client, missing).await?;
    let job = wait_for(&client, missing, JobState::Failed).await?;
    let reason = job.reason.expect("an end has a reason");
    assert_eq!(reason.code, "START_FAILED");
    assert!(reason.sentence.contains("/no/such/program"), "{}", reason.sentence);

    let mut endless = shell("sleep 600");
    endless.time_limit = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let limited = submit(&client, endless).await?;
    wait_for(&client, limited, JobState::Timeout).await?;

    let cancelled = submit(&client, shell("sleep 600")).await?;
    wait_for(&client, cancelled, JobState::Running).await?;
    client.cancel_job(CancelJobRequest { job_id: cancelled, ..Default::default() }).await?;
    wait_for(&client, cancelled, JobState::Cancelled).await?;
    pool.verify().await
}

/// The limits that a job asks of its host are those that its control groups let it use, in either version of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_held_to_what_its_job_asks_of_the_host() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let mut spec = shell(
        "while IFS=: read -r _ controllers path; do case $controllers in \
         '') cd /sys/fs/cgroup$path && cat cpu.max memory.max;; \
         cpu|cpu,cpuacct) cat /sys/fs/cgroup/cpu$path/cpu.cfs_quota_us;; \
         memory) cat /sys/fs/cgroup/memory$path/memory.limit_in_bytes;; \
         esac; done < /proc/self/cgroup; true",
    );
    spec.host = Some(HostRequest { milli_cpus: 1_500, memory_mib: 64 });
    let job = submit(&client, spec).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let text = output(&client, job, 0).await?;
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.contains(&"150000"), "one and a half processors: {text}");
    assert!(words.contains(&"67108864"), "64 MiB: {text}");
    pool.verify().await
}

/// A failed attempt is tried again, in its own folder, as often as the job says.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_is_tried_again() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let mut spec = shell("[ \"$TESSERA_ATTEMPT\" = 3 ]");
    spec.retry = Some(tessera_api::v1::RetryPolicy {
        max_retries: 5,
        backoff: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }),
        ..Default::default()
    });
    let job = submit(&client, spec).await?;
    let job = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((job.attempts, job.retries), (3, 2));
    Ok(())
}

/// P5d, P7: a more important job takes the blocks of a less important one, which resumes by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_job_resumes_by_itself() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let flag = pool.folder().join("second-run");
    let mut low = on(shell(&format!("[ -e {0} ] && exit 0; touch {0}; exec sleep 600", flag.display())), 8, Span::Card);
    low.priority = Some(10);
    let low = submit(&client, low).await?;
    wait_for(&client, low, JobState::Running).await?;
    until("the first run to leave its mark", async || flag.exists().then_some(())).await?;
    let mut high = on(shell("true"), 4, Span::Card);
    high.priority = Some(90);
    let high = submit(&client, high).await?;
    wait_for(&client, high, JobState::Completed).await?;
    let job = wait_for(&client, low, JobState::Completed).await?;
    assert_eq!(job.attempts, 2);
    assert_eq!(job.preempted_at.len(), 1);
    pool.verify().await
}

/// One thousand short jobs: none lost, none run twice.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_short_jobs_run_once_each() -> Result<()> {
    // Leases as a pool has them by default: on a machine that is busy otherwise, shorter ones end work that runs well.
    let lease = [1_000, 9_000, 12_000, 20_000];
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 24)]; 2], lease, ..Options::default() }).await?;
    let client = pool.client();
    let marks = pool.shared_folder("marks")?;
    let mut jobs = Vec::new();
    for number in 0..300 {
        // Appending is how a second run would show.
        let line = format!("echo run >> {}/{number}", marks.display());
        jobs.push(submit(&client, shell(&line)).await?);
    }
    let last = *jobs.last().expect("there are jobs");
    until("the last job to be over", async || {
        let open = get(&client, last).await.ok()?.state();
        tessera_tests::jobs::is_end(open).then_some(())
    })
    .await?;
    for job in &jobs {
        wait_for(&client, *job, JobState::Completed).await?;
    }
    for (number, job) in jobs.into_iter().enumerate() {
        let runs = std::fs::read_to_string(marks.join(number.to_string()))?;
        assert_eq!(runs, "run\n", "job {number} did not run exactly once: {:?}", get(&client, job).await?);
    }
    pool.verify().await
}

/// A script whose interpreter cannot be run, and a program that somebody is writing: that is so on every node.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_wrote_wrongly_costs_no_node() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let busy = pool.shared_folder("busy")?.join("program");
    std::fs::copy("/bin/true", &busy)?;
    let written = std::fs::File::options().append(true).open(&busy)?;
    let of_script = |script: &str| JobSpec { command: vec![], script: script.to_owned(), ..shell("") };
    let of_command = |command: &str| JobSpec { command: vec![command.to_owned()], ..shell("") };
    for (wrong, why) in [
        (of_script("#!/etc/passwd\necho never\n"), "interpreter `/etc/passwd`: `/etc/passwd` may not be executed"),
        (of_script("#!/usr/bin/pythn\n"), "interpreter `/usr/bin/pythn`: `/usr/bin/pythn` is not on this node"),
        (of_script("#!/bin/sh\r\necho never\r\n"), "its first line ends with a carriage return"),
        (of_command(&busy.display().to_string()), "some process has it open for writing"),
        (of_command("pythn"), "it is in no folder of its PATH (`/"),
        (of_command("/etc/passwd"), "`/etc/passwd` may not be executed by this job"),
    ] {
        let job = submit(&client, wrong).await?;
        let failed = wait_for(&client, job, JobState::Failed).await?;
        let said = failed.reason.unwrap_or_default();
        assert!(said.code == "START_FAILED" && said.sentence.contains(why), "{why:?} is not in {said:?}");
    }
    drop(written);
    let nodes = client.list_nodes(Default::default()).await?.nodes;
    assert!(nodes.iter().all(|node| node.eligibility() == Eligibility::Eligible), "{nodes:?}");
    pool.verify().await
}

/// The output of a job that says nothing of its own is kept for as long as the pool says, also when that is said later.
#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_an_ended_job_goes_when_the_pool_says_so() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let hour = Some(prost_types::Duration { seconds: 3_600, nanos: 0 });
    let usual = submit(&client, shell("echo usual")).await?;
    let own = submit(&client, JobSpec { output_retention: hour, ..shell("echo own") }).await?;
    for job in [usual, own] {
        wait_for(&client, job, JobState::Completed).await?;
    }
    let settled = || {
        let folders = std::fs::read_dir(pool.nodes[0].data.join("workers")).into_iter().flatten().flatten();
        folders.filter(|folder| folder.path().join("settled.json").exists()).count()
    };
    until("the leader to have let both workers go", async || (settled() == 2).then_some(())).await?;
    assert_eq!(output(&client, usual, 0).await?, "usual\n", "the pool keeps it for days");

    pool.cli_ok(&["pool", "config", "set", "--output-retention", "1ms"]).await?;
    until("the output to go", async || {
        let refused = output(&client, usual, 0).await.err()?;
        format!("{refused:#}").contains("OUTPUT_EXPIRED").then_some(())
    })
    .await?;
    assert_eq!(output(&client, own, 0).await?, "own\n", "it has a word of its own");
    pool.verify().await
}
