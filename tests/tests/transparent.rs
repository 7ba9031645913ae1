//! Programs that know nothing of checkpoints, through real processes and CRIU: whatever interrupts a job, it goes on
//! where it was, and what it comes to is bit for bit what it comes to undisturbed. What cannot be dumped runs on until
//! it is told to stop, and its attempt says why.
//!
//! Where CRIU cannot be used these tests fail, and say what the node says.

use std::path::Path;

use anyhow::{Context, Result};
use tessera_api::v1::{
    CheckpointPolicy, Job, JobSpec, JobState, MoveJobRequest, ResumeJobRequest, Span, SuspendJobRequest,
};
use tessera_tests::dumping::{pool_that_dumps, socket_of_a_stranger};
use tessera_tests::jobs::{get, on, resume, shell, submit, suspend, wait_for};
use tessera_tests::library::build;
use tessera_tests::pool::{Options, Pool};
use tessera_tests::unaware::{STEPS, Unaware};
use tessera_tests::wait::until;

/// A pool of nodes that can dump programs.
async fn pool(nodes: usize) -> Result<Pool> {
    pool_that_dumps(options(nodes, "")).await
}

fn options(nodes: usize, agent_config: &str) -> Options {
    let nodes = vec![vec![("gpu", 8)]; nodes];
    Options { members: 1, nodes, agent_config: agent_config.to_owned(), ..Options::default() }
}

/// Leases that a change of leader does not use up.
const LEASE: [u64; 4] = [200, 9_000, 12_000, 15_000];

/// Kills the leader and starts it anew.
async fn leader_dies(pool: &mut Pool) -> Result<()> {
    let leader = pool.kill_leader().await?;
    pool.start_member(leader)
}

/// Suspended and resumed, moved to another node, preempted, and its node drained; the leader dies in the middle of
/// each.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_knows_nothing_goes_on_where_it_was() -> Result<()> {
    let mut pool = pool_that_dumps(Options { members: 3, lease: LEASE, ..options(2, "") }).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, "")?;
    let job = submit(&client, JobSpec { priority: Some(10), ..program.spec(8) }).await?;
    program.is_at(50).await?;
    client.suspend_job(SuspendJobRequest { job_id: job, ..Default::default() }).await?;
    leader_dies(&mut pool).await?;
    let suspended = wait_for(&client, job, JobState::Suspended).await?;
    assert!(suspended.history[0].lost_seconds < 5.0, "it was saved: {:?}", suspended.history[0]);
    let listed = pool.cli_ok(&["job", "checkpoints", &job.to_string()]).await?;
    assert!(listed.contains("1.last") && listed.contains("yes"), "{listed}");
    resume(&client, job).await?;
    program.goes_on_to(120).await?;

    let before = get(&client, job).await?.history[1].nodes.clone();
    client.move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
    leader_dies(&mut pool).await?;
    until("the job to run elsewhere", async || {
        let seen = get(&client, job).await.ok()?;
        (seen.state() == JobState::Running && seen.history.len() == 3).then_some(())
    })
    .await?;
    let after = get(&client, job).await?.history[2].nodes.clone();
    assert_ne!(before, after, "it is on another node");
    program.goes_on_to(200).await?;

    // Two jobs of a higher priority take both cards.
    let gate = pool.shared_folder("gate")?;
    let line = format!("while [ ! -e {}/open ]; do sleep 0.02; done", gate.display());
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(submit(&client, JobSpec { priority: Some(90), ..on(shell(&line), 8, Span::Card) }).await?);
    }
    leader_dies(&mut pool).await?;
    for other in &others {
        wait_for(&client, *other, JobState::Running).await?;
    }
    let preempted = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!(preempted.reason.map(|reason| reason.code), Some("PREEMPTED".to_owned()));
    assert!(preempted.history[2].lost_seconds < 5.0, "it was saved: {:?}", preempted.history[2]);
    std::fs::write(gate.join("open"), "")?;
    wait_for(&client, job, JobState::Running).await?;
    program.goes_on_to(260).await?;

    let home = get(&client, job).await?.history.last().context("it ran")?.nodes[0].clone();
    pool.cli_ok(&["node", "drain", &home, "--reason", "a test", "--yes"]).await?;
    leader_dies(&mut pool).await?;
    until("the job to run elsewhere", async || {
        let seen = get(&client, job).await.ok()?;
        let place = seen.history.last()?.nodes.first()?.clone();
        (seen.state() == JobState::Running && place != home).then_some(())
    })
    .await?;
    program.goes_on_to(300).await?;
    let done = program.comes_to_the_same(&client, job).await?;
    assert_eq!((done.attempts, done.retries), (5, 0));
    assert_eq!(program.runs().len(), 1, "it began once");
    pool.verify().await
}

/// A parent and a child that talk by a pipe and by a TCP connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_processes_goes_on_with_its_pipes_and_connections() -> Result<()> {
    let pool = pool(2).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, "tree")?;
    let job = submit(&client, program.spec(8)).await?;
    program.is_at(50).await?;
    suspend(&client, job).await?;
    resume(&client, job).await?;
    program.goes_on_to(120).await?;
    let before = get(&client, job).await?.history[1].nodes.clone();
    client.move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
    until("the job to run elsewhere", async || {
        let seen = get(&client, job).await.ok()?;
        (seen.state() == JobState::Running && seen.history.last()?.nodes != before).then_some(())
    })
    .await?;
    program.goes_on_to(200).await?;
    program.comes_to_the_same(&client, job).await?;
    assert_eq!(program.runs().len(), 1, "it began once");
    Ok(())
}

/// The agent is killed while what was dumped is being packed; its next one finishes that.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_while_it_saves_loses_nothing() -> Result<()> {
    let mut pool = pool(1).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, "big 64")?;
    let job = submit(&client, program.spec(8)).await?;
    program.is_at(50).await?;
    client.suspend_job(SuspendJobRequest { job_id: job, ..Default::default() }).await?;
    let workers = pool.nodes[0].data.join("workers");
    until("the dump to be on disk", async || found_below(&workers, "image.json").then_some(())).await?;
    pool.kill_agent(0);
    pool.start_agent(0)?;
    let suspended = wait_for(&client, job, JobState::Suspended).await?;
    assert_eq!((suspended.checkpoints.len(), suspended.history[0].not_saved.as_str()), (1, ""));
    resume(&client, job).await?;
    program.comes_to_the_same(&client, job).await?;
    assert_eq!(program.runs().len(), 1, "it began once");
    Ok(())
}

fn found_below(folder: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.ends_with(name) || path.is_dir() && found_below(&path, name))
}

/// Two cases, state that would be lost, and state that CRIU does not take: the program is told to stop, begins again,
/// and its attempt says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_dumped_begins_again_and_its_attempt_says_why() -> Result<()> {
    let pool = pool(1).await?;
    let client = pool.client();
    let path = socket_of_a_stranger(&pool)?;
    for (words, why) in
        [("stray".to_owned(), "has outlived its parent"), (format!("socket {}", path.display()), "unix")]
    {
        let program = Unaware::new(&pool, &words)?;
        let job = submit(&client, program.spec(8)).await?;
        program.is_at(50).await?;
        let suspended = suspend(&client, job).await?;
        let said = &suspended.history[0].not_saved;
        assert!(said.starts_with("its processes cannot be dumped: ") && said.contains(why), "{said}");
        assert!(suspended.checkpoints.is_empty());
        let shown = pool.cli_ok(&["job", "show", &job.to_string()]).await?;
        assert!(shown.contains(said), "{shown}");
        resume(&client, job).await?;
        program.comes_to_the_same(&client, job).await?;
        assert_eq!(program.runs().len(), 2, "it began again");
        std::fs::rename(program.folder(), pool.folder().join(format!("over-{job}")))?;
    }
    Ok(())
}

/// A named pipe and a listening Unix socket in its folder, which no checkpoint of a cooperative program could hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_keeps_the_pipes_and_sockets_of_its_folder() -> Result<()> {
    let pool = pool(1).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, "names")?;
    let job = submit(&client, program.spec(8)).await?;
    program.is_at(50).await?;
    let suspended = suspend(&client, job).await?;
    assert_eq!((suspended.checkpoints.len(), suspended.history[0].not_saved.as_str()), (1, ""));
    resume(&client, job).await?;
    program.comes_to_the_same(&client, job).await?;
    assert_eq!(program.runs().len(), 1, "it began once");
    Ok(())
}

/// A library that it has loaded is away when it is to go on: that is nobody's fault, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_way_of_going_on_for_a_while_costs_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let (library, away) = (folder.path().join("some.so"), folder.path().join("away.so"));
    build("int some;", &library)?;
    let pool = pool(1).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, &format!("library {}", library.display()))?;
    let job = submit(&client, program.spec(8)).await?;
    program.is_at(50).await?;
    suspend(&client, job).await?;
    std::fs::rename(&library, &away)?;
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    until("a restore to fail", async || {
        let history = get(&client, job).await.ok()?.history;
        let failed =
            |code: &str| history.iter().any(|attempt| attempt.reason.as_ref().is_some_and(|is| is.code == code));
        failed("NOT_RESTORED").then_some(())
    })
    .await?;
    std::fs::rename(&away, &library)?;
    let done = program.comes_to_the_same(&client, job).await?;
    assert_eq!((done.retries, program.runs().len()), (0, 1), "it began once");
    Ok(())
}

/// A library that answers like NVIDIA's driver, and writes down what it is asked.
const LIKE_A_DRIVER: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    static int note(const char *what) {
        FILE *file = fopen(getenv("NOTES"), "a");
        fprintf(file, "%s\n", what);
        return fclose(file);
    }
    int cuInit(unsigned flags) { return 0; }
    int cuGetErrorString(int code, const char **text) { *text = "?"; return 0; }
    int cuCheckpointProcessLock(int pid, void *arguments) { return note("lock"); }
    int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return note("checkpoint"); }
    int cuCheckpointProcessRestore(int pid, void *arguments) { return note("restore"); }
    int cuCheckpointProcessUnlock(int pid, void *arguments) { return note("unlock"); }
"#;

/// The memory of a process on cards is brought into the process before it is dumped, and back when it was restored:
/// seen by a library in the place of the driver's.
#[tokio::test(flavor = "multi_thread")]
async fn the_driver_of_its_cards_is_told_before_and_after() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let library = folder.path().join("libcuda.so.1");
    build(LIKE_A_DRIVER, &library)?;
    let notes = folder.path().join("notes");
    let shown = |path: &Path| path.display().to_string();
    let environment = vec![("LD_LIBRARY_PATH", shown(folder.path())), ("NOTES", shown(&notes))];
    let pool = pool_that_dumps(Options { environment, ..options(1, "") }).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, &format!("library {}", library.display()))?;
    let job = submit(&client, program.spec(8)).await?;
    program.is_at(50).await?;
    suspend(&client, job).await?;
    assert_eq!(std::fs::read_to_string(&notes)?, "lock\ncheckpoint\n");
    resume(&client, job).await?;
    assert_eq!(std::fs::read_to_string(&notes)?, "lock\ncheckpoint\nrestore\nunlock\n");
    program.comes_to_the_same(&client, job).await?;
    Ok(())
}

/// Dumped while it runs, a tree with connections among it, whose log grows on. Its node is lost, and the leader with
/// it: a copy on another node is gone on from.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_takes_no_more_than_was_computed_since_the_last_dump() -> Result<()> {
    let mut pool = pool_that_dumps(Options { members: 3, ..options(2, "") }).await?;
    let client = pool.client();
    let program = Unaware::new(&pool, "tree log")?;
    let mut spec = program.spec(8);
    let every = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    spec.checkpoint = spec.checkpoint.map(|policy| CheckpointPolicy { every, ..policy });
    let job = submit(&client, spec).await?;
    program.is_at(50).await?;
    // One that was begun after it had come there.
    let newest = |job: &Job| job.checkpoints.first().map_or(0, |newest| newest.sequence);
    let before = newest(&get(&client, job).await?);
    let saved = until("a dump to be kept by two nodes", async || {
        let seen = get(&client, job).await.ok()?;
        let whole = seen.checkpoints.first()?.parts.iter().all(|part| part.nodes.len() == 2);
        (newest(&seen) > before + 1 && whole).then_some(seen)
    })
    .await?;
    assert_eq!(saved.state(), JobState::Running, "it was not stopped for that");
    let home = pool.nodes.iter().position(|node| node.name == saved.history[0].nodes[0]).context("a node")?;
    pool.kill_agent(home);
    pool.kill_supervisors(home)?;
    leader_dies(&mut pool).await?;
    let home = pool.nodes[home].name.clone();
    // The nodes of this pool share one host: ports that the lost one had may be taken for a moment, and it is tried
    // again.
    until("the job to run elsewhere", async || {
        let seen = get(&client, job).await.ok()?;
        (seen.state() == JobState::Running && seen.history.last()?.nodes[0] != home).then_some(())
    })
    .await?;
    let done = program.comes_to_the_same(&client, job).await?;
    assert_eq!(done.history.last().map(|last| last.from_attempt), Some(1));
    assert_eq!(program.runs().len(), 1, "it began once");
    let log = std::fs::read_to_string(program.folder().join("log"))?;
    assert!((1..=STEPS).all(|step| log.lines().any(|line| line == step.to_string())), "no line is missing");
    Ok(())
}

/// Without CRIU a node says so, and a job that needs it waits and says for what.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_a_node_that_can_dump_it() -> Result<()> {
    let pool = Pool::start(options(1, "[checkpoints]\ncriu = '/nowhere/criu'\n")).await?;
    let client = pool.client();
    let shown = pool.cli_ok(&["node", "show", &pool.nodes[0].name]).await?;
    assert!(shown.contains("tessera.criu") && shown.contains("/nowhere/criu"), "{shown}");
    let program = Unaware::new(&pool, "")?;
    let job = submit(&client, program.spec(8)).await?.to_string();
    let why = until("the job to say why it waits", async || {
        let said = pool.cli_ok(&["job", "why", &job]).await.ok()?;
        said.contains("tessera.transparent").then_some(said)
    })
    .await?;
    assert!(why.contains("tessera.transparent=criu"), "{why}");
    Ok(())
}
