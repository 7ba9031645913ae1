//! Many submissions on one call.
//!
//! The stream of answers drives everything: it reads messages, has their jobs made, and hands out what became of them.
//! Nothing of a stream runs beside it, so that a reader who stops reading stops all of it: no message is read, and what
//! is unanswered stays within bounds.

use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt};
use prost::Message;
use tessera_api::error::{Refusal, reason_of};
use tessera_api::reasons::reason_for;
use tessera_api::v1::submit_jobs_result::Outcome;
use tessera_api::{limits, v1};
use tessera_connection::arriving::PREFIX;
use tessera_ledger::wire::FieldError;
use tessera_otlp::Span;
use tessera_otlp::span::within;
use tokio::time::Instant;
use tonic::{Request, Status, Streaming};

use super::submit;
use crate::grpc::admit::Received;
use crate::grpc::deadline::DEFAULT_PATIENCE;
use crate::services::caller::{Caller, context_of};
use crate::services::{Answers, Desk, refusal};
use tessera_controller::trace;

/// Answers a stream of submissions.
pub(super) fn open(
    desk: Desk,
    request: Request<Streaming<v1::SubmitJobsRequest>>,
) -> Result<Answers<v1::SubmitJobsResponse>, Status> {
    let intake = Intake {
        actor: Caller::of(&request)?.actor,
        context: context_of(&request),
        received: request.extensions().get().cloned(),
        incoming: request.into_inner(),
        desk,
        under_way: FuturesUnordered::new(),
        jobs: 0,
        bytes: 0,
        taken: 0,
        ended: false,
    };
    Ok(Box::pin(stream::unfold(Some(Box::new(intake)), |intake| async {
        let mut intake = intake?;
        let answer = intake.next().await?;
        let goes_on = answer.is_ok();
        Some((answer, goes_on.then_some(intake)))
    })))
}

/// One stream of submissions.
struct Intake {
    desk: Desk,
    actor: String,
    /// Trace context of the call.
    context: String,
    received: Option<Received>,
    incoming: Streaming<v1::SubmitJobsRequest>,
    under_way: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Unanswered.
    jobs: usize,
    /// Unanswered, as they came.
    bytes: usize,
    /// Jobs that have come.
    taken: u64,
    ended: bool,
}

/// The result of a message.
struct Answered {
    jobs: usize,
    bytes: usize,
    answer: Result<v1::SubmitJobsResponse, Status>,
}

impl Intake {
    /// The next answers; `None` when the sender has ended the stream and all is answered. Nothing follows an error.
    async fn next(&mut self) -> Option<Result<v1::SubmitJobsResponse, Status>> {
        while !self.ended || !self.under_way.is_empty() {
            let reads = !self.ended && self.jobs < limits::UNANSWERED && self.bytes < limits::UNANSWERED_BYTES;
            tokio::select! {
                biased;
                Some(answered) = self.under_way.next() => return Some(self.hand_out(answered)),
                () = self.desk.end.cancelled() => return Some(Err(refusal::member_stopping().into())),
                message = self.incoming.message(), if reads => match message {
                    Ok(Some(message)) => {
                        if let Err(refused) = self.take(message) {
                            return Some(Err(refused));
                        }
                        // A message is work for a while, and the next may be here already: others have their turn.
                        tokio::task::yield_now().await;
                    }
                    Ok(None) => self.ended = true,
                    Err(status) => return Some(Err(with_reason(status))),
                },
            }
        }
        None
    }

    fn hand_out(&mut self, answered: Answered) -> Result<v1::SubmitJobsResponse, Status> {
        self.jobs -= answered.jobs;
        self.bytes -= answered.bytes;
        if let Some(received) = &self.received {
            received.give_back(answered.bytes);
        }
        answered.answer
    }

    /// Begins to have the jobs of a message made.
    fn take(&mut self, message: v1::SubmitJobsRequest) -> Result<(), Status> {
        let (jobs, bytes) = (message.jobs.len(), PREFIX + message.encoded_len());
        if jobs > limits::SUBMISSIONS {
            let problem = format!("must be at most {} in a message, are {jobs}", limits::SUBMISSIONS);
            return Err(Refusal::from(FieldError::invalid("jobs", problem)).into());
        }
        let first = self.taken;
        self.jobs += jobs;
        self.bytes += bytes;
        self.taken += jobs as u64;
        let caller = Caller { actor: self.actor.clone(), deadline: Instant::now() + DEFAULT_PATIENCE };
        let (desk, context) = (self.desk.clone(), self.context.clone());
        self.under_way.push(Box::pin(async move {
            let answer = answer(&desk, &caller, &context, first, message.jobs).await;
            Answered { jobs, bytes, answer }
        }));
        Ok(())
    }
}

/// Has the jobs of a message made; they belong to a span of their own within the call's.
async fn answer(
    desk: &Desk,
    caller: &Caller,
    context: &str,
    first: u64,
    jobs: Vec<v1::SubmitJobRequest>,
) -> Result<v1::SubmitJobsResponse, Status> {
    let span = Span::following("submit", context);
    let own = span.as_ref().map(Span::traceparent);
    let made = within(span.as_ref(), submit::many(desk, caller, jobs, own.as_deref().unwrap_or(context))).await;
    let answer = made.map(|made| {
        let results = (first..).zip(made).map(|(index, made)| {
            let outcome = Some(made.map_or_else(|refused| Outcome::Refused(error(&refused)), Outcome::Submitted));
            v1::SubmitJobsResult { index, outcome }
        });
        v1::SubmitJobsResponse { results: results.collect() }
    });
    trace::submitted_some(span, &answer);
    answer
}

/// A refusal as a part of a message.
fn error(status: &Status) -> v1::RefusedSubmission {
    let message = status.message().to_owned();
    v1::RefusedSubmission { code: status.code().into(), message, details: status.details().to_vec().into() }
}

/// Converts the failure to read a message into a refusal in the API's words.
fn with_reason(status: Status) -> Status {
    if reason_of(&status).is_some() {
        return status;
    }
    reason_for(&status).map_or_else(|| refusal::broken_request(&status), Status::from)
}
