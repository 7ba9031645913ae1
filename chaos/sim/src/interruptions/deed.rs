//! Operations on jobs that are made on purpose, through the API.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_api::v1::{self, CheckpointMode, Span};
use tessera_client::{Client, ClientError};
use tessera_ledger::JobId;

/// Blocks of the one card of each node in a pool of scenes: a worker fills one.
pub const CARD: u64 = 16;
/// Nodes of such a pool.
pub const NODES: usize = 4;

/// An operation that is asked of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Submit a job of a kind, by a name.
    Submit(Kind, String),
    Move(JobId, String),
    Suspend(JobId),
    Resume(JobId),
    /// Drain a node, with so much time.
    DrainWithin(String, Duration),
}

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One worker.
    Lone,
    /// Two workers.
    Gang,
    /// Two workers, or one for a while.
    Growing,
    /// Wants everything there is, and comes first.
    Rival,
}

impl Kind {
    fn runs_for(self) -> Duration {
        match self {
            Self::Rival => Duration::from_millis(300),
            // Longer than a lease, from when it is hit.
            Self::Lone | Self::Gang => Duration::from_millis(7_500),
            // Leaders look for room every five seconds.
            Self::Growing => Duration::from_secs(9),
        }
    }

    fn job(self, name: &str) -> v1::JobSpec {
        let everywhere = u32::try_from(NODES).unwrap_or(1);
        let (gang, priority) = match self {
            Self::Lone => (1, 10),
            Self::Gang | Self::Growing => (2, 10),
            Self::Rival => (everywhere, 90),
        };
        let grows = self == Self::Growing;
        let behaviour = [("RUN_MS", self.runs_for()), ("STOP_MS", Duration::from_millis(250))];
        let text = |(name, value): (&str, Duration)| (name.to_owned(), value.as_millis().to_string());
        v1::JobSpec {
            name: name.to_owned(),
            command: vec!["compute".to_owned()],
            environment: BTreeMap::from(behaviour.map(text)),
            gang,
            gang_min: grows.then_some(1),
            grow_after: if grows { duration(Duration::from_secs(1)) } else { None },
            virtual_card: Some(v1::VirtualCardRequest {
                milli_tflops: CARD * 1_000,
                span: Span::Card.into(),
                ..v1::VirtualCardRequest::default()
            }),
            priority: Some(priority),
            preemptible: Some(true),
            checkpoint: Some(v1::CheckpointPolicy {
                mode: CheckpointMode::Cooperative.into(),
                grace: duration(Duration::from_secs(2)),
                every: duration(Duration::from_secs(1)),
                ..v1::CheckpointPolicy::default()
            }),
            retry: Some(v1::RetryPolicy {
                max_retries: 10,
                backoff: duration(Duration::from_millis(200)),
                max_backoff: duration(Duration::from_millis(400)),
            }),
            ..v1::JobSpec::default()
        }
    }
}

fn duration(time: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(time).ok()
}

fn named(node: &str) -> Option<v1::NodeRef> {
    Some(v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name(node.to_owned())) })
}

impl Deed {
    /// Does it.
    ///
    /// # Errors
    /// When it is refused, or it is not known what became of it.
    pub async fn carry_out(&self, client: &Client) -> Result<(), ClientError> {
        match self {
            Self::Submit(kind, name) => {
                let spec = Some(kind.job(name));
                client.submit_job(v1::SubmitJobRequest { spec, ..v1::SubmitJobRequest::default() }).await.map(drop)
            }
            Self::Move(job, node) => {
                let (job_id, node) = (job.0, named(node));
                client.move_job(v1::MoveJobRequest { job_id, node, ..v1::MoveJobRequest::default() }).await.map(drop)
            }
            Self::Suspend(job) => {
                let job_id = job.0;
                client.suspend_job(v1::SuspendJobRequest { job_id, ..v1::SuspendJobRequest::default() }).await.map(drop)
            }
            Self::Resume(job) => {
                let job_id = job.0;
                client.resume_job(v1::ResumeJobRequest { job_id, ..v1::ResumeJobRequest::default() }).await.map(drop)
            }
            Self::DrainWithin(node, within) => {
                let (node, deadline) = (named(node), duration(*within));
                let reason = "service soon".to_owned();
                let asked = v1::DrainNodeRequest { node, reason, deadline, ..v1::DrainNodeRequest::default() };
                client.drain_node(asked).await.map(drop)
            }
        }
    }
}
