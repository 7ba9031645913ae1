//! A program that is to be dumped and cannot be, through real processes and CRIU: what it writes when it is told to
//! stop is what it goes on from, if its job says so. Whichever of the two is newer counts, and what it comes to is bit
//! for bit what it comes to undisturbed.
//!
//! Where CRIU cannot be used these tests fail, and say what the node says.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use tessera_api::v1::{CheckpointMode, CheckpointPolicy, Job, JobSpec, JobState, MoveJobRequest, Span};
use tessera_tests::dumping::{pool_that_dumps, socket_of_a_stranger};
use tessera_tests::jobs::{get, on, output, resume, shell, submit, suspend, wait_for};
use tessera_tests::paced::{Paced, comes_to};
use tessera_tests::pool::{Options, Pool, program_here};
use tessera_tests::wait::until;

const PROGRAM: &str = "falls_back.py";
const STEPS: u64 = 400;

/// The program, and what it is told and tells.
struct Program {
    paced: Paced,
    program: String,
    socket: PathBuf,
}

impl Program {
    fn new(pool: &Pool) -> Result<Self> {
        let paced = Paced::new(pool.shared_folder("program")?);
        paced.limit(50)?;
        Ok(Self { paced, program: pool.program(PROGRAM), socket: socket_of_a_stranger(pool)? })
    }

    fn spec(&self) -> JobSpec {
        let (folder, socket) = (self.paced.folder().display(), self.socket.display());
        let mut spec = on(shell(&format!("exec python3 {} {folder} {STEPS} {socket}", self.program)), 8, Span::Card);
        spec.checkpoint = Some(CheckpointPolicy {
            mode: CheckpointMode::Transparent.into(),
            fallback: CheckpointMode::Cooperative.into(),
            grace: Some(prost_types::Duration { seconds: 50, nanos: 0 }),
            ..CheckpointPolicy::default()
        });
        spec
    }

    /// Lets it go on to this step, connected or not, and waits until it is so.
    async fn is_at(&self, step: u64, connected: bool) -> Result<()> {
        let wish = self.paced.folder().join("connect");
        if connected {
            fs::write(&wish, "")?
        } else if wish.exists() {
            fs::remove_file(&wish)?
        }
        self.paced.limit(step)?;
        self.paced.is_at(&format!("{step} {}", if connected { "connected" } else { "alone" })).await
    }

    /// Attempt and first step of each time that it began.
    fn runs(&self) -> Vec<String> {
        self.paced.lines("runs")
    }

    fn undisturbed(&self) -> Result<String> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("limit"), STEPS.to_string())?;
        let mut run = Command::new("python3");
        run.arg(program_here(PROGRAM))
            .arg(folder.path())
            .arg(STEPS.to_string())
            .arg(&self.socket)
            .current_dir(folder.path());
        comes_to(&mut run)
    }
}

async fn pool() -> Result<Pool> {
    let nodes = vec![vec![("gpu", 8)]; 2];
    pool_that_dumps(Options { members: 1, nodes, ..Options::default() }).await
}

fn newest(job: &Job) -> Option<(u32, CheckpointMode)> {
    job.checkpoints.first().map(|newest| (newest.attempt, newest.mode()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_dumped_goes_on_from_what_it_wrote() -> Result<()> {
    let pool = pool().await?;
    let client = pool.client();
    let program = Program::new(&pool)?;
    let job = submit(&client, program.spec()).await?;

    // It cannot be dumped, and writes.
    program.is_at(50, true).await?;
    let suspended = suspend(&client, job).await?;
    let why = &suspended.history[0].not_saved;
    assert!(why.starts_with("its processes cannot be dumped: "), "{why}");
    assert_eq!(newest(&suspended), Some((1, CheckpointMode::Cooperative)));
    assert!(suspended.history[0].lost_seconds < 5.0, "it was saved: {:?}", suspended.history[0]);
    let listed = pool.cli_ok(&["job", "checkpoints", &job.to_string()]).await?;
    assert!(listed.contains("1.last") && listed.contains("cooperative"), "{listed}");
    resume(&client, job).await?;

    // On another node too; there it can be dumped, and knows nothing of that.
    program.is_at(120, true).await?;
    let before = get(&client, job).await?.history[1].nodes.clone();
    client.move_job(MoveJobRequest { job_id: job, ..Default::default() }).await?;
    until("the job to run elsewhere", async || {
        let seen = get(&client, job).await.ok()?;
        (seen.state() == JobState::Running && seen.history.len() == 3 && seen.history[2].nodes != before).then_some(())
    })
    .await?;
    program.is_at(200, false).await?;
    assert_eq!(newest(&suspend(&client, job).await?), Some((3, CheckpointMode::Transparent)));
    resume(&client, job).await?;

    // It cannot be dumped, and writes nothing: what it wrote before it was dumped is not taken for news.
    program.is_at(250, true).await?;
    fs::write(program.paced.folder().join("silent"), "")?;
    assert_eq!(newest(&suspend(&client, job).await?), Some((3, CheckpointMode::Transparent)));
    fs::remove_file(program.paced.folder().join("silent"))?;
    resume(&client, job).await?;
    program.is_at(300, false).await?;

    program.paced.limit(STEPS)?;
    wait_for(&client, job, JobState::Completed).await?;
    assert_eq!(output(&client, job, 0).await?, program.undisturbed()?);
    assert_eq!(program.runs(), ["1 0", "2 50", "3 120"], "the other times it was restored");
    Ok(())
}

/// Without the word it begins again, as it always did.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_job_asks_for_is_not_saved() -> Result<()> {
    let pool = pool().await?;
    let client = pool.client();
    let program = Program::new(&pool)?;
    let mut spec = program.spec();
    spec.checkpoint = spec.checkpoint.map(|policy| CheckpointPolicy { fallback: 0, ..policy });
    let job = submit(&client, spec).await?;
    program.is_at(50, true).await?;
    assert_eq!(newest(&suspend(&client, job).await?), None);
    Ok(())
}
