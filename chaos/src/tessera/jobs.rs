//! The jobs that are submitted, submitting them, and reading them back.

use std::path::Path;

use anyhow::{Context, Result};
use prost::Message;
use tessera_api::v1::{
    CheckpointMode, CheckpointPolicy, JobSpec, ListJobsRequest, SubmitJobRequest, VirtualCardRequest,
};
use tessera_client::Client;

use crate::bench::saver::Saves;
use crate::readback::Written;
use crate::writer::Writer;

/// Jobs in one answer.
const PAGE: u32 = 1_000;
/// Letters of a UUID.
const REQUEST_ID: usize = 36;

/// A job of the benchmarks.
#[derive(Clone, Debug)]
pub struct Job(JobSpec);

impl Job {
    /// A job whose worker says in `stand` that it has started, and ends.
    ///
    /// # Errors
    /// This binary cannot be found.
    pub fn short(name: &str, stand: &Path) -> Result<Self> {
        Self::new(name, stand, false)
    }

    /// A job whose worker says in `stand` that it has started, and stays.
    ///
    /// # Errors
    /// This binary cannot be found.
    pub fn long(name: &str, stand: &Path) -> Result<Self> {
        Self::new(name, stand, true)
    }

    /// A job whose worker keeps a state of so many bytes, which outlives an interruption in this way.
    ///
    /// # Errors
    /// This binary cannot be found.
    pub fn saving(name: &str, stand: &Path, bytes: u64, saves: Saves) -> Result<Self> {
        let Self(job) = Self::new(name, stand, false)?;
        let mut command = job.command;
        "saver".clone_into(&mut command[1]);
        command.extend(["--bytes".to_owned(), bytes.to_string(), "--saves".to_owned(), saves.to_string()]);
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let (mode, every) = match saves {
            Saves::Whole => (CheckpointMode::Cooperative, None),
            Saves::Little => (CheckpointMode::Cooperative, seconds(5)),
            Saves::Never => (CheckpointMode::Transparent, None),
        };
        let checkpoint =
            Some(CheckpointPolicy { mode: mode.into(), grace: seconds(60), every, ..CheckpointPolicy::default() });
        Ok(Self(JobSpec { command, checkpoint, ..job }))
    }

    /// A job that computes until it is cancelled, and counts in the file of its name below `stand` how much.
    ///
    /// # Errors
    /// This very binary cannot be found.
    pub fn computing(name: &str, stand: &Path, elastic: bool) -> Result<Self> {
        let Self(mut job) = Self::new(name, stand, false)?;
        "computer".clone_into(&mut job.command[1]);
        job.command.extend(["--name".to_owned(), name.to_owned()]);
        job.virtual_card.get_or_insert_default().elastic = elastic;
        Ok(Self(job))
    }

    fn new(name: &str, stand: &Path, stays: bool) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this binary")?;
        let path = |path: &Path| path.to_str().map(str::to_owned).context("a path is no UTF-8");
        let mut command = vec![path(&own)?, "worker".to_owned(), "--stand".to_owned(), path(stand)?];
        command.extend(stays.then(|| "--stay".to_owned()));
        Ok(Self(JobSpec { name: name.to_owned(), command, virtual_card: Some(virtual_card()), ..JobSpec::default() }))
    }

    /// A job that is only there to be written down, as long as submissions commonly are: a program with some options
    /// and variables. It would run `true`.
    #[must_use]
    pub fn idle(name: &str) -> Self {
        let options = ["--epochs=30", "--batch-size=256", "--learning-rate=0.001", "--data=/data/images/train"];
        let command = ["/bin/true"].into_iter().chain(options).map(str::to_owned).collect();
        let variables = [("OMP_NUM_THREADS", "4"), ("RUN_OWNER", "vision-team"), ("RUN_NAME", "resnet50-baseline-07")];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self(JobSpec {
            name: name.to_owned(),
            command,
            environment,
            virtual_card: Some(virtual_card()),
            ..JobSpec::default()
        })
    }

    /// The same on so many blocks of one card.
    #[must_use]
    pub fn on_blocks(mut self, blocks: u32) -> Self {
        if let Some(card) = &mut self.0.virtual_card {
            card.milli_tflops = u64::from(blocks) * 1_000;
        }
        self
    }

    /// The same with a priority.
    #[must_use]
    pub fn urgent(mut self, priority: u32) -> Self {
        self.0.priority = Some(priority);
        self
    }

    /// The same on hold, or not.
    #[must_use]
    pub fn held(mut self, held: bool) -> Self {
        self.0.held = held;
        self
    }

    #[must_use]
    pub fn request(&self, client: &Client) -> SubmitJobRequest {
        SubmitJobRequest { request_id: client.new_request_id(), spec: Some(self.0.clone()) }
    }

    /// Bytes of that request on the wire.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        SubmitJobRequest { request_id: "x".repeat(REQUEST_ID), spec: Some(self.0.clone()) }.encoded_len()
    }
}

/// One block and a little memory of one card.
fn virtual_card() -> VirtualCardRequest {
    VirtualCardRequest { milli_tflops: 1_000, memory_mib: 64, ..VirtualCardRequest::default() }
}

/// Submits the same job again and again.
#[derive(Clone, Debug)]
pub struct Submitter {
    client: Client,
    job: Job,
}

impl Submitter {
    /// Submits `job` through `client`.
    #[must_use]
    pub fn new(client: Client, job: Job) -> Self {
        Self { client, job }
    }

    /// The job, and through whom it is submitted.
    pub(super) fn parts(&self) -> (&Client, &Job) {
        (&self.client, &self.job)
    }

    /// Submits once.
    ///
    /// # Errors
    /// It is refused, or nobody answers.
    pub async fn submit(&self) -> Result<Written> {
        let request = self.job.request(&self.client);
        let name = request.request_id.clone();
        let answer = self.client.submit_job(request).await?;
        Ok(Written { name, id: answer.job_id })
    }
}

impl Writer for Submitter {
    type Ack = Written;

    async fn write(&self, _: u64) -> Result<Written> {
        self.submit().await
    }
}

/// All jobs of the name `name` that the pool has, with the requests that submitted them.
///
/// # Errors
/// Nobody answers.
pub async fn read_back(client: &Client, name: &str) -> Result<Vec<Written>> {
    let mut there = Vec::new();
    let mut request = ListJobsRequest { page_size: PAGE, ..ListJobsRequest::default() };
    loop {
        let page = client.list_jobs(request.clone()).await.context("the jobs cannot be read back")?;
        let named = page.jobs.into_iter().filter(|job| job.spec.as_ref().is_some_and(|spec| spec.name == name));
        there.extend(named.map(|job| Written { name: job.request_id, id: job.id }));
        if page.next_page_token.is_empty() {
            return Ok(there);
        }
        request.page_token = page.next_page_token;
    }
}

#[cfg(test)]
mod tests {
    use tessera_client::Settings;

    use super::*;

    #[tokio::test]
    async fn each_submission_is_a_request_of_its_own() {
        let client = Client::new(&["127.0.0.1:1".parse().expect("an address")], Settings::default()).expect("a member");
        let job = Job::long("stream", Path::new("/tmp/stand")).expect("found").on_blocks(3).held(true);
        let [first, second] = [job.request(&client), job.request(&client)];
        assert_ne!(first.request_id, second.request_id);
        assert_eq!(first.encoded_len(), job.request_bytes());
        let spec = first.spec.expect("set");
        assert_eq!(spec.virtual_card.map(|card| card.milli_tflops), Some(3_000));
        assert!(spec.held && spec.command.last().is_some_and(|word| word == "--stay"));
    }
}
