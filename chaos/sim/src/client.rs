//! Clients: engineers who submit, look, change their mind, and try again when nobody answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_api::v1::{self, Consistency};
use tessera_client::{Address, Client, ClientError};
use tokio::time::sleep;

use crate::history::{Answer, History, Read};
use crate::machine::now;
use crate::network::Plug;
use crate::story::Story;
use crate::workload::Taste;

/// The configuration and the connections of a client.
pub struct Desk {
    pub name: String,
    /// Its door to the network.
    pub plug: Plug,
    pub members: Arc<[Address]>,
    /// Seed of everything that it does.
    pub seed: u64,
    /// Properties of its jobs.
    pub taste: Taste,
    /// Longest time between two things that it does, in milliseconds.
    pub longest_pause_ms: u64,
    pub nodes: usize,
    /// True if it moves jobs above all.
    pub moves: bool,
    /// Record of its requests and of their answers.
    pub history: History,
    pub story: Story,
    /// The day is over: nothing new is begun.
    pub closing: Arc<AtomicBool>,
}

/// Works until the day is over.
pub async fn run(desk: Desk) -> String {
    let client = match Client::new(&desk.members, desk.plug.client_settings(desk.seed)) {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    let mut random = SmallRng::seed_from_u64(desk.seed);
    let (mut own, mut sent) = (Vec::new(), Vec::new());
    while !desk.closing.load(Ordering::Relaxed) {
        let pause = random.random_range(20..desk.longest_pause_ms);
        sleep(Duration::from_millis(pause)).await;
        match random.random_range(0..100) {
            0..6 => desk.submit_again(&client, &mut random, &mut sent).await,
            6..12 => desk.submit_twice(&client, &mut random).await,
            12..50 => desk.submit(&client, &mut random, &mut own, &mut sent).await,
            50..65 => desk.look(&client, &mut random, &own).await,
            65..80 => desk.change(&client, &mut random, &own).await,
            80..90 if !desk.moves => desk.change(&client, &mut random, &own).await,
            _ => desk.move_elsewhere(&client, &mut random).await,
        }
    }
    "the day is over".to_owned()
}

impl Desk {
    /// A client that does not remember whether it was answered sends a request again, long after: it must get the same
    /// answer.
    async fn submit_again(&self, client: &Client, random: &mut SmallRng, sent: &mut [v1::SubmitJobRequest]) {
        let Some(asked) = (!sent.is_empty()).then(|| sent[random.random_range(0..sent.len())].clone()) else { return };
        let place = self.history.submit(&asked.request_id);
        if let Ok(answer) = client.submit_job(asked).await {
            self.history.answer(place, Answer::Accepted { job: answer.job_id, revision: answer.revision });
            self.story
                .tell(&self.name, format!("job {} accepted again at revision {}", answer.job_id, answer.revision));
        } else {
            self.history.answer(place, Answer::Unknown);
        }
    }

    /// A request that is delivered twice at once, by two members: it makes one job.
    async fn submit_twice(&self, client: &Client, random: &mut SmallRng) {
        let request_id = client.new_request_id();
        let spec = self.taste.job(random);
        let asked = v1::SubmitJobRequest { request_id: request_id.clone(), spec: Some(spec) };
        let one_by = |member: usize| {
            let (place, asked) = (self.history.submit(&request_id), asked.clone());
            let client = client.only(&self.members[member % self.members.len()]);
            async move {
                let answer = client?.submit_job(asked).await;
                let told = answer.as_ref().map_or(Answer::Unknown, |answer| Answer::Accepted {
                    job: answer.job_id,
                    revision: answer.revision,
                });
                self.history.answer(place, told);
                answer
            }
        };
        let first = random.random_range(0..self.members.len());
        let answers = futures::future::join(one_by(first), one_by(first + 1)).await;
        if let (Ok(one), Ok(other)) = &answers {
            self.story.tell(&self.name, format!("asked twice at once for job {}: {}", one.job_id, other.job_id));
        }
    }

    async fn submit(
        &self,
        client: &Client,
        random: &mut SmallRng,
        own: &mut Vec<u64>,
        sent: &mut Vec<v1::SubmitJobRequest>,
    ) {
        let request_id = client.new_request_id();
        let place = self.history.submit(&request_id);
        let spec = self.taste.job(random);
        let asked = v1::SubmitJobRequest { request_id: request_id.clone(), spec: Some(spec) };
        // A person tries again with the same request id as long as it is not known what became of it.
        for _ in 0..5 {
            match client.submit_job(asked.clone()).await {
                Ok(answer) => {
                    self.history.answer(place, Answer::Accepted { job: answer.job_id, revision: answer.revision });
                    self.story
                        .tell(&self.name, format!("job {} accepted at revision {}", answer.job_id, answer.revision));
                    own.push(answer.job_id);
                    sent.push(asked);
                    return;
                }
                Err(ClientError::Refused(why)) => {
                    self.history.answer(place, Answer::Refused);
                    self.history.refuse(&request_id, why.reason_name());
                    self.story.tell(&self.name, format!("submission refused: {}", why.reason_name()));
                    return;
                }
                Err(error) => self.story.tell(&self.name, format!("submission {request_id}: {error}")),
            }
        }
        self.history.answer(place, Answer::Unknown);
        sent.push(asked);
    }

    async fn look(&self, client: &Client, random: &mut SmallRng, own: &[u64]) {
        let Some(job) = pick(random, own) else { return };
        let stale = random.random_bool(0.3);
        let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
        let asked = now();
        let answer = client.get_job(v1::GetJobRequest { job_id: job, consistency: consistency.into() }).await;
        let found = match answer {
            Ok(answer) => (answer.read.map_or(0, |read| read.revision), answer.job.is_some()),
            Err(ClientError::Refused(why)) if why.reason == Some(v1::ErrorReason::JobUnknown) => (0, false),
            Err(_) => return,
        };
        if !stale {
            self.history.read(Read { job, asked, answered: now(), found });
        }
    }

    async fn change(&self, client: &Client, random: &mut SmallRng, own: &[u64]) {
        let Some(job_id) = pick(random, own) else { return };
        let request_id = client.new_request_id();
        let id = request_id.clone();
        let (what, error) = match random.random_range(0..5) {
            0 => ("cancel", client.cancel_job(v1::CancelJobRequest { request_id, job_id }).await.err()),
            1 => ("suspend", client.suspend_job(v1::SuspendJobRequest { request_id, job_id }).await.err()),
            2 => ("resume", client.resume_job(v1::ResumeJobRequest { request_id, job_id }).await.err()),
            3 => ("hold", client.hold_job(v1::HoldJobRequest { request_id, job_id }).await.err()),
            _ => ("release", client.release_job(v1::ReleaseJobRequest { request_id, job_id }).await.err()),
        };
        match error {
            None => self.story.tell(&self.name, format!("{what} of job {job_id} done")),
            Some(error) => self.note_refusal(&id, &error),
        }
    }

    /// Records a request that was refused, and not merely left unanswered: it must never be carried out.
    fn note_refusal(&self, request: &str, error: &ClientError) {
        if let ClientError::Refused(why) = error {
            self.history.refuse(request, why.reason_name());
        }
    }
}

impl Desk {
    /// Moves some job that runs, to some node or to wherever it fits best, or only asks where that would be.
    async fn move_elsewhere(&self, client: &Client, random: &mut SmallRng) {
        let running = v1::JobFilter { states: vec![v1::JobState::Running.into()], ..v1::JobFilter::default() };
        let asked = v1::ListJobsRequest { filter: Some(running), page_size: 100, ..v1::ListJobsRequest::default() };
        let Ok(listed) = client.list_jobs(asked).await else { return };
        let ids: Vec<u64> = listed.jobs.iter().map(|job| job.id).collect();
        let Some(job_id) = pick(random, &ids) else { return };
        let node = random.random_bool(0.6).then(|| format!("a{}", random.random_range(1..=self.nodes)));
        let plan_only = random.random_bool(0.1);
        let request_id = client.new_request_id();
        let asked = v1::MoveJobRequest {
            request_id: request_id.clone(),
            job_id,
            node: node.map(|name| v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name(name)) }),
            plan_only,
        };
        match client.move_job(asked).await {
            Ok(_) if plan_only => {}
            Ok(_) => self.story.tell(&self.name, format!("move of job {job_id} ordered")),
            Err(error) => {
                self.note_refusal(&request_id, &error);
                self.story.tell(&self.name, format!("move of job {job_id}: {error}"));
            }
        }
    }
}

fn pick(random: &mut SmallRng, own: &[u64]) -> Option<u64> {
    // The newest jobs are those that still move.
    let from = own.len().saturating_sub(12);
    (!own.is_empty()).then(|| own[random.random_range(from..own.len())])
}
