//! A program that computes as far as it is let, for tests of work that is interrupted: what it comes to is compared bit
//! for bit with what it comes to undisturbed.

use anyhow::Result;
use tessera_api::v1::{CheckpointMode, CheckpointPolicy, Job, JobSpec, JobState, Span};
use tessera_client::Client;

use crate::jobs::{get, on, output, shell, wait_for};
use crate::paced::{PYTHON, Paced, comes_to, python};
use crate::pool::{Pool, helper_here, program_here};
use crate::wait::until;

const TRAINER: &str = "trainer.py";
const STEPS: u64 = 400;

/// A program that computes as far as it is let, and what it leaves behind.
pub struct Trainer {
    paced: Paced,
    program: String,
    helper: String,
}

impl Trainer {
    /// A trainer whose files lie in a folder of this name that all nodes see.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(pool: &Pool, name: &str) -> Result<Self> {
        let paced = Paced::new(pool.shared_folder(name)?);
        Ok(Self { paced, program: pool.program(TRAINER), helper: pool.helper() })
    }

    /// The job, on so many TFLOPS of one card; asked to save every so many seconds, if at all.
    #[must_use]
    pub fn spec(&self, tflops: u64, every: Option<i64>) -> JobSpec {
        let line = format!("exec {PYTHON} {} {} {STEPS}", self.program, self.paced.folder().display());
        let mut spec = on(shell(&line), tflops, Span::Card);
        spec.environment.insert("PYTHONPATH".to_owned(), self.helper.clone());
        spec.environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
        let seconds = |seconds| prost_types::Duration { seconds, nanos: 0 };
        spec.checkpoint = Some(CheckpointPolicy {
            mode: CheckpointMode::Cooperative.into(),
            signal: "SIGTERM".to_owned(),
            grace: Some(seconds(50)),
            every: every.map(seconds),
            ..CheckpointPolicy::default()
        });
        spec
    }

    /// Lets it go on to this step and no further.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn limit(&self, step: u64) -> Result<()> {
        self.paced.limit(step)
    }

    /// Makes it slow to stop: it saves itself when the gate is gone.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn shut_gate(&self) -> Result<()> {
        self.paced.write("gate", "")
    }

    /// Lets it save itself.
    ///
    /// # Errors
    /// The gate was not shut.
    pub fn open_gate(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.paced.folder().join("gate"))?)
    }

    /// Waits until the attempt has been told to stop, and waits for its gate.
    ///
    /// # Errors
    /// It is not told.
    pub async fn is_stopping(&self, attempt: u32) -> Result<()> {
        until(&format!("attempt {attempt} to be told to stop"), async || {
            self.lines("stopping-0").contains(&attempt.to_string()).then_some(())
        })
        .await
    }

    /// The lines of one of its files; none when it is not there.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<String> {
        self.paced.lines(name)
    }

    /// Attempt, node and first step of each run of a worker.
    #[must_use]
    pub fn runs(&self, rank: u32) -> Vec<(u32, String, u64)> {
        let run = |line: &String| {
            let mut words = line.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        self.lines(&format!("runs-{rank}")).iter().filter_map(run).collect()
    }

    /// Waits until the attempt of a worker has come to this step.
    ///
    /// # Errors
    /// It does not.
    pub async fn is_at(&self, rank: u32, attempt: u32, step: u64) -> Result<()> {
        until(&format!("attempt {attempt} of rank {rank} to be at step {step}"), async || {
            self.is_now_at(rank, attempt, step).then_some(())
        })
        .await
    }

    /// Returns whether this attempt of a worker has come to this step, and is the newest.
    #[must_use]
    pub fn is_now_at(&self, rank: u32, attempt: u32, step: u64) -> bool {
        let here = self.runs(rank).last().is_some_and(|(number, ..)| *number == attempt);
        let at = std::fs::read_to_string(self.paced.folder().join(format!("at-{rank}")));
        here && at.is_ok_and(|at| at == step.to_string())
    }
}

/// The result of the program when nobody disturbs it.
///
/// # Errors
/// It does not run here.
pub fn undisturbed() -> Result<String> {
    let folder = tempfile::tempdir()?;
    let mut run = python(&program_here(TRAINER));
    run.args([&folder.path().display().to_string(), &STEPS.to_string()])
        .env("PYTHONPATH", helper_here())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TESSERA_CHECKPOINT_DIR", folder.path());
    comes_to(&mut run)
}

/// Waits until the newest checkpoint of a job is at this step and lies on so many nodes.
///
/// # Errors
/// It does not come to.
pub async fn is_saved(client: &Client, job: u64, step: u64, nodes: usize) -> Result<Job> {
    until(&format!("step {step} to be kept by {nodes} nodes"), async || {
        let seen = get(client, job).await.ok()?;
        let newest = seen.checkpoints.first()?;
        let kept = newest.parts.iter().all(|part| part.nodes.len() >= nodes);
        (newest.progress == step && kept).then_some(seen)
    })
    .await
}

/// It ends well, each attempt went on at the step where the one before had been saved, and it came to what it comes to
/// undisturbed.
///
/// # Errors
/// It does not end well.
///
/// # Panics
/// It began elsewhere or came to something else.
pub async fn comes_to_the_same(client: &Client, trainer: &Trainer, job: u64, began_at: &[u64]) -> Result<Job> {
    let done = ends_as_undisturbed(client, trainer, job).await?;
    let steps: Vec<u64> = trainer.runs(0).into_iter().map(|(.., step)| step).collect();
    assert_eq!(steps, began_at, "where each attempt began");
    assert_eq!(done.retries, 0);
    Ok(done)
}

/// It ends well, came to what it comes to undisturbed, and never ran twice at once.
///
/// # Errors
/// It does not end well.
///
/// # Panics
/// It came to something else.
pub async fn ends_as_undisturbed(client: &Client, trainer: &Trainer, job: u64) -> Result<Job> {
    trainer.limit(STEPS)?;
    let done = wait_for(client, job, JobState::Completed).await?;
    assert_eq!(output(client, job, 0).await?, undisturbed()?);
    assert_eq!(trainer.lines("overlaps"), Vec::<String>::new(), "two ran at once");
    Ok(done)
}
