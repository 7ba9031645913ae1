//! Jobs of a test: short ways to say what is wanted and to wait for what becomes of it.

use anyhow::{Context, Result};
use tessera_api::v1::{
    GetJobRequest, Job, JobSpec, JobState, ResumeJobRequest, Span, StreamLogsRequest, SubmitJobRequest,
    SuspendJobRequest, VirtualCardRequest,
};
use tessera_client::Client;

use crate::wait::until;

/// A job that runs a line of shell on one TFLOPS of one card.
#[must_use]
pub fn shell(line: &str) -> JobSpec {
    JobSpec {
        name: "e2e".to_owned(),
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()],
        virtual_card: Some(VirtualCardRequest { milli_tflops: 1_000, memory_mib: 64, ..Default::default() }),
        ..Default::default()
    }
}

/// The same job on so many TFLOPS, spread so far.
#[must_use]
pub fn on(mut spec: JobSpec, tflops: u64, span: Span) -> JobSpec {
    let card = spec.virtual_card.get_or_insert_default();
    card.milli_tflops = tflops * 1_000;
    card.span = span.into();
    spec
}

/// Submits a job.
///
/// # Errors
/// When it is refused or nobody answers.
pub async fn submit(client: &Client, spec: JobSpec) -> Result<u64> {
    let request = SubmitJobRequest { spec: Some(spec), ..Default::default() };
    Ok(client.submit_job(request).await?.job_id)
}

/// Suspends a job and waits until it is.
///
/// # Errors
/// When it is refused or nobody answers.
pub async fn suspend(client: &Client, job: u64) -> Result<Job> {
    client.suspend_job(SuspendJobRequest { job_id: job, ..Default::default() }).await?;
    wait_for(client, job, JobState::Suspended).await
}

/// Resumes a job and waits until it runs.
///
/// # Errors
/// When it is refused or nobody answers.
pub async fn resume(client: &Client, job: u64) -> Result<Job> {
    client.resume_job(ResumeJobRequest { job_id: job, ..Default::default() }).await?;
    wait_for(client, job, JobState::Running).await
}

/// The job as the ledger has it.
///
/// # Errors
/// When it is not known or nobody answers.
pub async fn get(client: &Client, job: u64) -> Result<Job> {
    let answer = client.get_job(GetJobRequest { job_id: job, ..Default::default() }).await?;
    answer.job.context("an answer without a job")
}

#[must_use]
pub fn is_end(state: JobState) -> bool {
    matches!(state, JobState::Completed | JobState::Failed | JobState::Cancelled | JobState::Timeout)
}

/// Waits until the job is in a state.
///
/// # Errors
/// When nobody answers.
///
/// # Panics
/// When it ends in another one, or the state does not come.
pub async fn wait_for(client: &Client, job: u64, state: JobState) -> Result<Job> {
    let reached = until(&format!("job {job} to be {state:?}"), async || {
        let job = get(client, job).await.ok()?;
        (job.state() == state || is_end(job.state())).then_some(job)
    })
    .await?;
    assert_eq!(reached.state(), state, "job {job}: {:?}", reached.reason);
    Ok(reached)
}

/// Everything a worker of the job has written to standard output.
///
/// # Errors
/// When its node cannot be reached or has no such output.
pub async fn output(client: &Client, job: u64, rank: u32) -> Result<String> {
    let mut reader = client.stream_logs(StreamLogsRequest { job_id: job, rank, ..Default::default() });
    let mut text = Vec::new();
    while let Some(chunk) = reader.next().await? {
        text.extend_from_slice(&chunk.data);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The revision of the pool now.
///
/// # Errors
/// When nobody answers.
pub async fn revision(client: &Client) -> Result<u64> {
    let answer = client.get_pool(Default::default()).await?;
    Ok(answer.read.context("an answer says how current it is")?.revision)
}
