//! Work in motion, through real processes and real programs: whatever interrupts a job, it goes on where it was, and
//! what it comes to is bit for bit what it comes to undisturbed.

use std::path::Path;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tessera_api::v1::{
    CheckpointMode, CheckpointPolicy, JobSpec, JobState, MoveJobRequest, ResumeJobRequest, Span, SuspendJobRequest,
    TransferLeadershipRequest,
};
use tessera_tests::jobs::{get, on, output, shell, submit, suspend, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::trainer::{Trainer, comes_to_the_same, is_saved, undisturbed};
use tessera_tests::wait::until;

/// A node of the pool by name.
fn place_of(pool: &Pool, name: &str) -> usize {
    pool.nodes.iter().position(|node| node.name == name).expect("it is a node of the pool")
}

/// Suspended and resumed, moved to another node, preempted: each time it saves itself and goes on elsewhere or later.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_where_it_was_when_it_is_suspended_moved_and_preempted() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(50)?;
    let job = submit(&client, JobSpec { priority: Some(10), ..trainer.spec(8, None) }).await?;
    trainer.is_at(0, 1, 50).await?;
    let suspended = suspend(&client, job).await?;
    assert_eq!(suspended.checkpoints[0].progress, 50);
    // L5: what it gave back, and how it was saved.
    let first = &suspended.history[0];
    assert_eq!(
        (first.blocks, first.saved_as(), first.epoch),
        (8, CheckpointMode::Cooperative, suspended.checkpoints[0].epoch)
    );
    let listed = pool.cli_ok(&["job", "checkpoints", &job.to_string()]).await?;
    assert!(listed.contains("1.last") && listed.contains("yes"), "{listed}");
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    trainer.is_at(0, 2, 50).await?;
    trainer.limit(120)?;
    trainer.is_at(0, 2, 120).await?;

    client.move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
    trainer.is_at(0, 3, 120).await?;
    let runs = trainer.runs(0);
    assert_ne!(runs[1].1, runs[2].1, "it is on another node");
    trainer.limit(200)?;
    trainer.is_at(0, 3, 200).await?;

    // Two jobs of a higher priority take both cards.
    let gate = pool.shared_folder("gate")?;
    let line = format!("while [ ! -e {}/open ]; do sleep 0.02; done", gate.display());
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(submit(&client, JobSpec { priority: Some(90), ..on(shell(&line), 8, Span::Card) }).await?);
    }
    for other in &others {
        wait_for(&client, *other, JobState::Running).await?;
    }
    let preempted = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!(preempted.reason.map(|reason| reason.code), Some("PREEMPTED".to_owned()));
    assert!(preempted.history[2].lost_seconds < 5.0, "it saved itself: {:?}", preempted.history[2]);
    std::fs::write(gate.join("open"), "")?;
    trainer.is_at(0, 4, 200).await?;
    let done = comes_to_the_same(&client, &trainer, job, &[0, 50, 120, 200]).await?;
    assert_eq!(done.attempts, 4);
    assert!(done.checkpoints.is_empty(), "it is over");
    until("what nobody needs to be removed", async || {
        let left: usize = pool.nodes.iter().map(|node| files_below(&node.data.join("checkpoints"))).sum();
        (left == 0).then_some(())
    })
    .await?;
    pool.verify().await
}

/// Its queue's window ends while it computes: it saves itself, waits, and goes on in the next one by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_where_it_was_when_the_next_window_opens() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(50)?;
    let set = async |window: &str| pool.cli_ok(&["queue", "set", "night", "--window", window]).await;
    let (open, closed) = ("* * * * * for 2m", "0 0 29 2 * for 1m in Europe/Berlin");
    set(closed).await?;
    let job = submit(&client, JobSpec { queue: "night".to_owned(), ..trainer.spec(8, None) }).await?;
    until("the job to be told to wait for its window", async || {
        let why = pool.cli_ok(&["job", "why", &job.to_string()]).await.ok()?;
        why.contains("OUTSIDE_WINDOW").then_some(())
    })
    .await?;
    set(open).await?;
    trainer.is_at(0, 1, 50).await?;
    set(closed).await?;
    let suspended = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!(suspended.reason.map(|reason| reason.code), Some("OUTSIDE_WINDOW".to_owned()));
    assert!(suspended.not_before.is_some(), "it is known when the window opens");
    let shown = pool.cli_ok(&["queue", "show", "night"]).await?;
    assert!(shown.contains(closed) && shown.contains("closed until"), "{shown}");
    set("always").await?;
    comes_to_the_same(&client, &trainer, job, &[0, 50]).await?;
    pool.verify().await
}

/// It computes nothing for so long that its queue takes its blocks back, whatever it asked for; the leader dies in
/// between. It goes on where it was when it is told to.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_idle_goes_on_where_it_was_when_it_is_told_to() -> Result<()> {
    let init = vec!["--block-size", "1GFLOPS", "--reference-precision", "fp32"];
    // Its lease outlasts the leader, however slow this machine is: nobody else suspends it.
    let (lease, local_nodes) = ([200, 20_000, 25_000, 32_000], 1);
    let mut pool = Pool::start(Options { nodes: vec![], local_nodes, lease, init, ..Options::default() }).await?;
    let client = pool.client();
    let blocks = pool.summary().await?.pool.and_then(|pool| pool.blocks).context("blocks")?.free;
    let ladder = "below 20% notify 2s suspend 8s";
    pool.cli_ok(&["queue", "set", "default", "--idle", ladder]).await?;
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(50)?;
    let mut spec = JobSpec { preemptible: Some(false), ..trainer.spec(0, None) };
    spec.virtual_card.get_or_insert_default().milli_tflops = (blocks / 2).max(1);
    let job = submit(&client, spec).await?;
    trainer.is_at(0, 1, 50).await?;
    until("it to be noticed", async || {
        let seen = get(&client, job).await.ok()?;
        (seen.reason?.code == "IDLE_NOTICED").then_some(())
    })
    .await?;
    let leader = pool.leader().await?;
    pool.kill_member(leader);
    let suspended = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!(suspended.reason.map(|reason| reason.code).as_deref(), Some("IDLE_SUSPENDED"));
    assert_eq!(suspended.checkpoints[0].progress, 50);
    let why = pool.cli_ok(&["job", "why", &job.to_string()]).await?;
    assert!(why.contains("IDLE_SUSPENDED") && why.contains("resume"), "{why}");
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    comes_to_the_same(&client, &trainer, job, &[0, 50]).await?;
    pool.verify().await
}

fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { 1 }).sum()
}

/// It is asked to save while it runs. Its node is lost, with all that it had: a copy on another node is gone on from.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_takes_no_more_than_was_computed_since_the_last_checkpoint() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 3], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(150)?;
    let job = submit(&client, trainer.spec(5, Some(1))).await?;
    trainer.is_at(0, 1, 150).await?;
    let saved = is_saved(&client, job, 150, 2).await?;
    assert_eq!(saved.state(), JobState::Running, "it was not stopped for that");
    let home = place_of(&pool, &saved.history[0].nodes[0]);
    pool.kill_agent(home);
    pool.kill_supervisors(home)?;
    trainer.is_at(0, 2, 150).await?;
    let home = pool.nodes[home].name.clone();
    assert_ne!(trainer.runs(0)[1].1, home, "that node is gone");
    let done = comes_to_the_same(&client, &trainer, job, &[0, 150]).await?;
    assert_eq!(done.history[1].from_attempt, 1);
    Ok(())
}

/// It is moved to a node that has nothing of it: what it saved so far is there before it is told to stop.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_so_far_is_where_a_program_goes_before_it_stops() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 3], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(150)?;
    let mut spec = trainer.spec(5, Some(1));
    // On a slow machine it saves more than once while one is brought: that one is to be seen afterwards.
    spec.checkpoint.get_or_insert_default().keep = 16;
    let job = submit(&client, spec).await?;
    trainer.is_at(0, 1, 150).await?;
    let saved = is_saved(&client, job, 150, 2).await?;
    let has_it = &saved.checkpoints[0].parts[0].nodes;
    let target = pool.nodes.iter().find(|node| !has_it.contains(&node.name)).context("a third node")?;
    pool.cli_ok(&["job", "move", &job.to_string(), "--to", &target.name, "--yes"]).await?;
    trainer.is_at(0, 2, 150).await?;
    assert_eq!(trainer.runs(0)[1].1, target.name);
    let moved = get(&client, job).await?;
    let newest = &moved.checkpoints[0];
    assert_eq!((newest.attempt, newest.progress), (1, 150));
    // What it saved when it stopped, if it saved anything then, is newer than what was brought there before.
    let brought = moved.checkpoints.iter().any(|saved| saved.parts[0].nodes.contains(&target.name));
    assert!(brought, "nobody else has a copy made there: {:?}", moved.checkpoints);
    comes_to_the_same(&client, &trainer, job, &[0, 150]).await?;
    pool.verify().await
}

/// The leader and the agent die while what a stopped worker wrote is being kept: the next ones finish that.
#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_leader_and_agent_while_saving_loses_nothing() -> Result<()> {
    let options =
        Options { nodes: vec![vec![("gpu", 8)]; 2], lease: [500, 9_000, 12_000, 20_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(80)?;
    let job = submit(&client, trainer.spec(5, None)).await?;
    trainer.is_at(0, 1, 80).await?;
    let first = get(&client, job).await?;
    let home = place_of(&pool, &first.history[0].nodes[0]);
    let leader = pool.leader().await?;
    client.suspend_job(SuspendJobRequest { job_id: job, ..Default::default() }).await?;
    // It is stopping, has stopped, or is being saved: whichever it is, both are gone.
    until("the program to have been told", async || (!trainer.lines("saves-0").is_empty()).then_some(())).await?;
    pool.kill_agent(home);
    pool.kill_member(leader);
    pool.start_agent(home)?;
    let suspended = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!(suspended.checkpoints.first().map(|newest| newest.progress), Some(80), "{:?}", suspended.history);
    pool.start_member(leader)?;
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    trainer.is_at(0, 2, 80).await?;
    comes_to_the_same(&client, &trainer, job, &[0, 80]).await?;
    pool.verify().await
}

/// Says what an attempt begins with; the first one runs until it is told to stop, and saves itself then.
const SAVES_AT_ITS_END: &str = "trap 'echo saved > $TESSERA_CHECKPOINT_DIR/state; exit 0' TERM
    if [ $TESSERA_ATTEMPT -gt 1 ]; then cat $TESSERA_CHECKPOINT_DIR/state; exit; fi
    echo begins; while :; do sleep 0.05; done";

/// Agents say with their heartbeats what they keep; between two of them they are suspended, and the leader hands over.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_just_before_the_leader_hands_over_is_gone_on_from() -> Result<()> {
    let lease = [2_000, 9_000, 12_000, 20_000];
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], lease, ..Options::default() }).await?;
    let client = pool.client();
    let mode = CheckpointMode::Cooperative.into();
    let checkpoint = Some(CheckpointPolicy { mode, signal: "SIGTERM".to_owned(), ..CheckpointPolicy::default() });
    let spec = JobSpec { checkpoint, ..shell(SAVES_AT_ITS_END) };
    let mut jobs = Vec::new();
    for _ in 0..8 {
        jobs.push(submit(&client, spec.clone()).await?);
    }
    for job in &jobs {
        until("it to begin", async || (output(&client, *job, 0).await.ok()? == "begins\n").then_some(())).await?;
    }
    let suspended: Vec<_> = try_join_all(jobs.iter().map(|job| suspend(&client, *job))).await?;
    assert!(suspended.iter().all(|job| job.checkpoints.len() == 1), "{suspended:?}");
    until("the leader to hand over", async || {
        client.transfer_leadership(TransferLeadershipRequest::default()).await.ok()
    })
    .await?;
    for job in &jobs {
        client.resume_job(ResumeJobRequest { job_id: *job, ..Default::default() }).await?;
    }
    for job in &jobs {
        let done = wait_for(&client, *job, JobState::Completed).await?;
        assert_eq!(output(&client, *job, 0).await?, "saved\n", "{:?}", done.history);
    }
    pool.verify().await
}

/// A program that listens to nobody is killed after its grace, and goes on from what it had saved before; one that
/// never saved begins again.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_everything_is_ended_and_begins_again() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(60)?;
    let mut spec = trainer.spec(5, None);
    spec.command[2].push_str(" ignore");
    spec.checkpoint.as_mut().context("it has one")?.grace = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let job = submit(&client, spec).await?;
    trainer.is_at(0, 1, 60).await?;
    let suspended = suspend(&client, job).await?;
    assert!(suspended.checkpoints.is_empty());
    assert!(suspended.history[0].lost_seconds > 0.5, "the loss is told: {:?}", suspended.history[0]);
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    trainer.is_at(0, 2, 60).await?;
    comes_to_the_same(&client, &trainer, job, &[0, 0]).await?;
    pool.verify().await
}

/// A program that is killed in the middle of writing what it needs, and one that does not hear that it is to stop: both
/// go on from what they had saved while they ran, and nobody takes a half for a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_save_at_its_end_goes_on_from_what_it_saved_before() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    for (word, seconds) in [("dies", 50), ("deaf", 1)] {
        let trainer = Trainer::new(&pool, word)?;
        trainer.limit(60)?;
        let mut spec = trainer.spec(5, Some(1));
        spec.command[2].push_str(&format!(" {word}"));
        spec.checkpoint.as_mut().context("it has one")?.grace = Some(prost_types::Duration { seconds, nanos: 0 });
        let job = submit(&client, spec).await?;
        is_saved(&client, job, 60, 1).await?;
        let suspended = suspend(&client, job).await?;
        assert_eq!(suspended.checkpoints.first().map(|newest| newest.progress), Some(60), "{word}");
        client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
        trainer.is_at(0, 2, 60).await?;
        comes_to_the_same(&client, &trainer, job, &[0, 60]).await?;
    }
    pool.verify().await
}

/// The newest checkpoint is damaged on disk, wherever it lies: the one before is gone on from, and nobody is told that
/// nothing was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_passed_over_for_the_one_before() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(40)?;
    let job = submit(&client, trainer.spec(5, Some(1))).await?;
    is_saved(&client, job, 40, 2).await?;
    trainer.limit(90)?;
    trainer.is_at(0, 1, 90).await?;
    suspend(&client, job).await?;
    let newest = is_saved(&client, job, 90, 2).await?.checkpoints.remove(0);
    let name = format!("sequence-{}", newest.sequence);
    let damaged: usize = pool.nodes.iter().map(|node| damage(&node.data.join("checkpoints"), &name)).sum();
    assert!(damaged >= 2, "{damaged} chunks of {name}");
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    // The one before is at 40, or at 90 where the last second's came just before the stop.
    let again =
        until("a later attempt to run", async || trainer.runs(0).into_iter().rfind(|(attempt, ..)| *attempt > 1))
            .await?;
    let seen = get(&client, job).await?;
    let failed = seen.history.iter().find(|attempt| attempt.number == 2).context("it was tried")?;
    let why = failed.reason.clone().context("it failed")?;
    assert!(why.code == "CHECKPOINT_DAMAGED" && why.sentence.contains("damaged"), "{why:?}");
    let events = pool.cli_ok(&["job", "events", &job.to_string()]).await?;
    assert!(events.contains("is passed over, the job goes on from 1."), "{events}");
    assert!(again.2 == 40 || again.2 == 90, "{again:?}");
    trainer.is_at(0, again.0, 90).await?;
    comes_to_the_same(&client, &trainer, job, &[0, again.2]).await?;
    pool.verify().await
}

/// Changes a byte of every chunk of the checkpoints of that name; answers how many.
fn damage(folder: &Path, name: &str) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            damaged += damage(&path, name);
        } else if path.display().to_string().contains(name) && !path.ends_with("manifest") {
            let mut bytes = std::fs::read(&path).expect("it is readable");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).expect("it is writable");
            damaged += 1;
        }
    }
    damaged
}

/// A gang saves and returns whole: both of its programs go on at one step.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_goes_on_whole() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let trainer = Trainer::new(&pool, "trainer")?;
    trainer.limit(100)?;
    let job = submit(&client, JobSpec { gang: 2, ..trainer.spec(8, None) }).await?;
    for rank in 0..2 {
        trainer.is_at(rank, 1, 100).await?;
    }
    let suspended = suspend(&client, job).await?;
    assert_eq!(suspended.checkpoints[0].parts.len(), 2);
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    for rank in 0..2 {
        trainer.is_at(rank, 2, 100).await?;
    }
    comes_to_the_same(&client, &trainer, job, &[0, 100]).await?;
    assert_eq!(output(&client, job, 1).await?, undisturbed()?);
    pool.verify().await
}
