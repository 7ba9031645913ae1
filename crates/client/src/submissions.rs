//! Many submissions on one stream, each made once (law L3): what a stream that breaks leaves unanswered is sent again
//! under the same request ids, to whoever leads then.

mod window;

use std::collections::VecDeque;

use bytes::Bytes;
use futures::stream::{BoxStream, Fuse, Stream};
use futures::{FutureExt, StreamExt};
use http::uri::PathAndQuery;
use tessera_api::error::Refusal;
use tessera_api::limits;
use tessera_api::v1::submit_jobs_result::Outcome;
use tessera_api::v1::{ErrorReason, SubmitJobRequest, SubmitJobResponse, SubmitJobsResponse, SubmitJobsResult};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::address::Address;
use crate::client::Client;
use crate::error::{ApiError, ClientError, Incomplete};
use crate::retry::{Next, Tries, turn};
use window::{Parcel, Pending, Window, parcels};

const SUBMIT_JOBS: &str = "/tessera.v1.JobService/SubmitJobs";
/// Jobs that are unanswered at once, when the caller does not say.
const UNANSWERED: usize = 4_096;
/// Largest submission that fits into a message, which costs a few bytes itself.
const LARGEST: usize = limits::REQUEST - 64;

/// The outcome of a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub request_id: String,
    /// The job's number, or why it was refused for good.
    pub outcome: Result<SubmitJobResponse, ApiError>,
}

/// Jobs being submitted. Nothing is sent or read but by [`Submissions::next`]. Dropping it leaves what is unanswered
/// unknown.
pub struct Submissions {
    client: Client,
    source: Fuse<BoxStream<'static, SubmitJobRequest>>,
    /// The source has no more.
    ended: bool,
    most: usize,
    window: Window,
    wire: Option<Wire>,
    answered: VecDeque<Submission>,
}

/// An open stream.
struct Wire {
    member: Address,
    /// `None` once everything has been sent.
    outgoing: Option<mpsc::Sender<Parcel>>,
    incoming: Streaming<SubmitJobsResponse>,
    /// Since when an answer is waited for.
    waits_since: Instant,
}

/// A stream that broke, and where.
type Broken = (Address, Status);

impl Client {
    /// Submits jobs, as they come, on one stream: the quick way for many. Jobs without a request id get one.
    #[must_use]
    pub fn submit_jobs(&self, jobs: impl Stream<Item = SubmitJobRequest> + Send + 'static) -> Submissions {
        Submissions {
            client: self.clone(),
            source: jobs.boxed().fuse(),
            ended: false,
            most: UNANSWERED,
            window: Window::default(),
            wire: None,
            answered: VecDeque::new(),
        }
    }
}

impl Submissions {
    /// The same with at most so many jobs unanswered at once: more of them share what an answer costs, fewer are
    /// answered sooner. 1 at least; 8,192 at most, which is what a member takes.
    #[must_use]
    pub fn with_unanswered(mut self, most: usize) -> Self {
        self.most = most.clamp(1, limits::UNANSWERED);
        self
    }

    /// Returns the outcome of the next submission, in no particular order; `None` when the source has ended and all
    /// jobs are answered.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`] when no member took any for the client's deadline, [`ClientError::Refused`] when
    /// the stream itself is refused: call again to go on, nothing is lost or made twice.
    pub async fn next(&mut self) -> Result<Option<Submission>, ClientError> {
        let mut tries: Option<Tries> = None;
        loop {
            if let Some(submission) = self.answered.pop_front() {
                return Ok(Some(submission));
            }
            let (from, status) = match self.advance(tries.as_ref()).await {
                Ok(true) => continue,
                Ok(false) => return Ok(None),
                Err(broken) => broken,
            };
            self.wire = None;
            let Some(request_id) = self.window.rewind().map(str::to_owned) else {
                // Nobody waits for anything: the next job opens another stream, elsewhere.
                self.client.routes().failed(&from, Instant::now());
                continue;
            };
            let patience = self.client.settings().deadline;
            let tries = tries.get_or_insert_with(|| Tries::new(&self.client, patience, Some(request_id)));
            match tries.failed(&self.client, &from, &status) {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::GiveUp(error) => return Err(error),
            }
        }
    }

    /// One step: opens the stream, takes answers from it, or jobs from the source; false when all is done.
    async fn advance(&mut self, tries: Option<&Tries>) -> Result<bool, Broken> {
        if self.window.is_empty() && self.ended {
            if let Some(mut wire) = self.wire.take() {
                // The member ends its half now: let go of before, the call would count as cancelled there. Nothing
                // depends on it.
                let _ = timeout(self.client.settings().silence(), wire.incoming.message()).await;
            }
            return Ok(false);
        }
        if !self.window.is_empty() && self.wire.is_none() {
            self.wire = Some(open(&self.client, self.most, tries).await?);
            self.send(self.window.unanswered());
            return Ok(true);
        }
        let takes = !self.ended && self.window.len() < self.most;
        let waits = !self.window.is_empty();
        let silence = self.client.settings().silence();
        let silent_at = self.wire.as_ref().map_or_else(Instant::now, |wire| wire.waits_since) + silence;
        tokio::select! {
            biased;
            answers = answers(self.wire.as_mut()) => self.note(answers?)?,
            job = self.source.next(), if takes => match job {
                Some(job) => self.take(job),
                None => self.end(),
            },
            () = sleep_until(silent_at), if waits => {
                return Err(self.broken(Status::unavailable("no answer came on the stream for too long")));
            }
        }
        Ok(true)
    }

    fn note(&mut self, answers: SubmitJobsResponse) -> Result<(), Broken> {
        for SubmitJobsResult { index, outcome } in answers.results {
            let Some(outcome) = outcome else { return Err(self.incomplete("a job is answered with nothing")) };
            let Some(request_id) = self.window.answered(index) else {
                return Err(self.incomplete("a job is answered that nobody waits for"));
            };
            let outcome = match outcome {
                Outcome::Submitted(submitted) => Ok(submitted),
                Outcome::Refused(refused) => {
                    let status = Status::with_details(Code::from(refused.code), refused.message, refused.details);
                    Err(ApiError::from(&status))
                }
            };
            self.answered.push_back(Submission { request_id, outcome });
        }
        if let Some(wire) = &mut self.wire {
            wire.waits_since = Instant::now();
            self.client.routes().heard(&wire.member, wire.waits_since);
        }
        Ok(())
    }

    /// Takes a job, and those behind it that are there already, and sends them.
    fn take(&mut self, first: SubmitJobRequest) {
        if let Some(wire) = self.wire.as_mut().filter(|_| self.window.is_empty()) {
            wire.waits_since = Instant::now();
        }
        let mut jobs = Vec::new();
        let mut next = Some(first);
        while let Some(mut job) = next.take() {
            if job.request_id.is_empty() {
                job.request_id = self.client.new_request_id();
            }
            let pending = Pending::of(job);
            if pending.encoded.len() > LARGEST {
                self.answered.push_back(too_large(pending));
            } else {
                jobs.push(pending.encoded.clone());
                self.window.push(pending);
            }
            if self.window.len() < self.most && jobs.len() < window::JOBS {
                next = match self.source.next().now_or_never() {
                    Some(None) => {
                        self.ended = true;
                        None
                    }
                    job => job.flatten(),
                };
            }
        }
        self.send(jobs);
    }

    /// Hands jobs to the stream, if one is open; and ends its sending half when they were the last.
    fn send(&mut self, jobs: Vec<Bytes>) {
        let Some(wire) = &mut self.wire else { return };
        if let Some(outgoing) = &wire.outgoing {
            for parcel in parcels(jobs) {
                // There is room for as many as there are unanswered jobs. Of a stream that broke, the other half says
                // why.
                let _ = outgoing.try_send(parcel);
            }
        }
        if self.ended {
            wire.outgoing = None;
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.send(Vec::new());
    }

    fn incomplete(&self, what: &'static str) -> Broken {
        self.broken(Incomplete(what).into())
    }

    fn broken(&self, status: Status) -> Broken {
        let member = self.wire.as_ref().map(|wire| wire.member.clone());
        (member.unwrap_or_else(|| self.client.current_member()), status)
    }
}

/// Opens a stream on which so many jobs are unanswered at most.
async fn open(client: &Client, most: usize, tries: Option<&Tries>) -> Result<Wire, Broken> {
    let target = client.routes().current();
    let settings = client.settings();
    let patience = turn(tries, settings.deadline);
    let (outgoing, outbox) = mpsc::channel(most);
    let mut request = Request::new(ReceiverStream::new(outbox));
    request.set_timeout(patience);
    settings.headers.add_to(request.metadata_mut());
    let opening = async {
        let mut grpc = Grpc::new(target.channel).max_decoding_message_size(settings.max_message_bytes);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Parcel, SubmitJobsResponse>::default();
        grpc.streaming(request, PathAndQuery::from_static(SUBMIT_JOBS), codec).await
    };
    match timeout(patience, opening).await {
        Ok(Ok(response)) => {
            let now = Instant::now();
            client.routes().answered(&target.address, now);
            let incoming = response.into_inner();
            Ok(Wire { member: target.address, outgoing: Some(outgoing), incoming, waits_since: now })
        }
        Ok(Err(status)) => Err((target.address, status)),
        Err(_elapsed) => Err((target.address, Status::unavailable("the stream could not be opened in time"))),
    }
}

/// The next answers of an open stream; without one, none come.
async fn answers(wire: Option<&mut Wire>) -> Result<SubmitJobsResponse, Broken> {
    let Some(wire) = wire else { return std::future::pending().await };
    match wire.incoming.message().await {
        Ok(Some(answers)) => Ok(answers),
        Ok(None) => Err((wire.member.clone(), Status::unavailable("the member ended the stream"))),
        Err(status) => Err((wire.member.clone(), status)),
    }
}

fn too_large(job: Pending) -> Submission {
    let sentence = format!(
        "the submission has {} bytes and a request at most {}; put long input into files of the node",
        job.encoded.len(),
        limits::REQUEST
    );
    let status = Status::from(Refusal::new(ErrorReason::RequestTooLarge, sentence));
    Submission { request_id: job.request_id, outcome: Err(ApiError::from(&status)) }
}
