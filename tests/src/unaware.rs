//! A program that knows nothing of checkpoints, for tests in which it is dumped: what it comes to is compared bit for
//! bit with what it comes to undisturbed.

use std::path::Path;

use anyhow::Result;
use tessera_api::v1::{CheckpointMode, CheckpointPolicy, Job, JobSpec, JobState, Span};
use tessera_client::Client;

use crate::jobs::{on, output, shell, wait_for};
use crate::paced::{PYTHON, Paced, comes_to, python};
use crate::pool::{Pool, program_here};

const PROGRAM: &str = "unaware.py";
pub const STEPS: u64 = 400;

/// A program that computes as far as it is let, and what it leaves behind.
pub struct Unaware {
    paced: Paced,
    program: String,
    words: String,
}

impl Unaware {
    /// A program whose files lie in a folder that all nodes see.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(pool: &Pool, words: &str) -> Result<Self> {
        let paced = Paced::new(pool.shared_folder("program")?);
        let program = Self { paced, program: pool.program(PROGRAM), words: words.to_owned() };
        program.limit(50)?;
        Ok(program)
    }

    /// The job, on so many TFLOPS of one card.
    #[must_use]
    pub fn spec(&self, tflops: u64) -> JobSpec {
        let line = format!("exec {PYTHON} {} {} {STEPS} {}", self.program, self.paced.folder().display(), self.words);
        let mut spec = on(shell(&line), tflops, Span::Card);
        let grace = Some(prost_types::Duration { seconds: 50, nanos: 0 });
        let mode = CheckpointMode::Transparent.into();
        spec.checkpoint = Some(CheckpointPolicy { mode, grace, ..CheckpointPolicy::default() });
        spec
    }

    /// Lets it go on to this step and no further.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn limit(&self, step: u64) -> Result<()> {
        self.paced.limit(step)
    }

    /// Attempt and node of each time that it began.
    #[must_use]
    pub fn runs(&self) -> Vec<String> {
        self.paced.lines("runs")
    }

    /// Waits until it is at this step.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn is_at(&self, step: u64) -> Result<()> {
        self.paced.is_at(&step.to_string()).await
    }

    /// Lets it go on to this step and waits until it is there.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn goes_on_to(&self, step: u64) -> Result<()> {
        self.limit(step)?;
        self.is_at(step).await
    }

    /// The folder of its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.paced.folder()
    }

    /// The result of the program when nobody disturbs it.
    fn undisturbed(&self) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let words = self.words.split_whitespace();
        let mut run = python(&program_here(PROGRAM));
        run.arg(folder.path()).arg(STEPS.to_string()).args(words).current_dir(folder.path());
        comes_to(&mut run)
    }

    /// It ends well, and came to what it comes to undisturbed.
    ///
    /// # Errors
    /// It does not end well.
    ///
    /// # Panics
    /// It came to something else.
    pub async fn comes_to_the_same(&self, client: &Client, job: u64) -> Result<Job> {
        self.limit(STEPS)?;
        let done = wait_for(client, job, JobState::Completed).await?;
        assert_eq!(output(client, job, 0).await?, self.undisturbed()?);
        Ok(done)
    }
}
