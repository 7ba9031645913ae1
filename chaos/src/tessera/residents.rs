//! Long-running workers that must not notice what is done to the control plane.

use anyhow::{Context, Result, ensure};
use tessera_api::v1::{CancelJobRequest, GetJobRequest, JobState};
use tessera_client::Client;
use tokio::time::Duration;

use super::jobs::{Job, Submitter};
use crate::poll;
use crate::witness::{Stand, Testimony};

/// Longest wait for each of them to start, and for all of them to be gone.
const STARTED: Duration = Duration::from_secs(60);
const GONE: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// One job with one worker that stays.
#[derive(Clone, Copy, Debug)]
struct Resident {
    job: u64,
    said: Testimony,
}

/// Workers that stay until their jobs are cancelled.
#[derive(Debug)]
pub struct Residents {
    client: Client,
    stand: Stand,
    all: Vec<Resident>,
}

impl Residents {
    /// Submits `count` jobs of one worker on `blocks` blocks each and waits until all run.
    ///
    /// # Errors
    /// One is refused or does not start.
    pub async fn start(client: &Client, stand: &Stand, count: u32, blocks: u32) -> Result<Self> {
        let job = Job::long("resident", stand.folder())?.on_blocks(blocks);
        let submitter = Submitter::new(client.clone(), job);
        let mut jobs = Vec::new();
        for _ in 0..count {
            jobs.push(submitter.submit().await?.id);
        }
        let mut all = Vec::new();
        for job in jobs {
            // The pool knows that the process is there a little before the process says so.
            let said = poll::until("a long worker to run", STARTED, ASK_EVERY, || async {
                running(client, job).await?;
                stand.only_start(job, 0)
            });
            all.push(Resident { job, said: said.await? });
        }
        Ok(Self { client: client.clone(), stand: stand.clone(), all })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The numbers of their jobs.
    pub fn jobs(&self) -> impl Iterator<Item = u64> {
        self.all.iter().map(|one| one.job)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Counts the workers that were disturbed: their process is another one or gone, they were started again, or the
    /// pool believes that they do not run in their first attempt.
    ///
    /// # Errors
    /// The pool does not answer.
    pub async fn disturbed(&self) -> Result<usize> {
        let mut disturbed = 0;
        for one in &self.all {
            let runs_on = self.stand.undisturbed(one.job, 0, &one.said)?;
            disturbed += usize::from(!runs_on || running(&self.client, one.job).await.is_err());
        }
        Ok(disturbed)
    }

    /// Cancels their jobs and waits until their processes are gone.
    ///
    /// # Errors
    /// One is still there.
    pub async fn end(self) -> Result<()> {
        for one in &self.all {
            self.client.cancel_job(CancelJobRequest { job_id: one.job, ..CancelJobRequest::default() }).await?;
        }
        poll::until("long workers to be gone", GONE, ASK_EVERY, || async {
            let left = self.all.iter().filter(|one| one.said.still_runs()).count();
            ensure!(left == 0, "{left} still run");
            Ok(())
        })
        .await
    }
}

/// Fails unless the job runs in its first attempt.
async fn running(client: &Client, job_id: u64) -> Result<()> {
    let answer = client.get_job(GetJobRequest { job_id, ..GetJobRequest::default() }).await?;
    let job = answer.job.context("an answer without a job")?;
    let why = job.reason.as_ref().map_or("", |reason| reason.sentence.as_str());
    ensure!(job.state() == JobState::Running, "job {job_id} is {}: {why}", job.state().as_str_name());
    ensure!(job.attempts == 1, "job {job_id} is in attempt {}", job.attempts);
    Ok(())
}
