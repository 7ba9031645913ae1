//! A member that answers as a test says, and remembers what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use futures::{FutureExt, future::BoxFuture};
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tessera_api::v1::job_service_server::{JobService, JobServiceServer};
use tessera_api::v1::*;
use tessera_client::Address;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::network::Network;

type Answer<A> = Result<A, Status>;
type Script<Q, A> = Arc<dyn Fn(Q) -> BoxFuture<'static, A> + Send + Sync>;
type Messages<M> = Vec<Answer<M>>;

/// The behaviour of a scripted stream after its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    End,
    Hang,
}

/// A member with its scripts. What has no script answers UNIMPLEMENTED.
#[derive(Clone)]
pub struct Member {
    submit: Script<SubmitJobRequest, Answer<u64>>,
    watch: Script<WatchJobsRequest, (Messages<WatchJobsResponse>, Then)>,
    logs: Script<StreamLogsRequest, (Messages<StreamLogsResponse>, Then)>,
    session: Script<SessionRequest, Messages<SessionResponse>>,
    submissions: Script<SubmitJobsRequest, Messages<SubmitJobsResponse>>,
    pub seen: Arc<Seen>,
}

/// The requests that a member received.
#[derive(Default)]
pub struct Seen {
    pub submissions: Mutex<Vec<SubmitJobRequest>>,
    pub headers: Mutex<Vec<MetadataMap>>,
    pub watches: Mutex<Vec<WatchJobsRequest>>,
    pub logs: Mutex<Vec<StreamLogsRequest>>,
    /// The messages of all streams of submissions.
    pub streamed: Mutex<Vec<SubmitJobsRequest>>,
}

impl Seen {
    pub fn request_ids(&self) -> Vec<String> {
        let submissions = self.submissions.lock().expect("no holder panics");
        submissions.iter().map(|submission| submission.request_id.clone()).collect()
    }
}

impl Default for Member {
    fn default() -> Self {
        let unknown = || Status::unimplemented("no script");
        Self {
            submit: Arc::new(move |_| futures::future::ready(Err(unknown())).boxed()),
            watch: Arc::new(move |_| futures::future::ready((vec![Err(unknown())], Then::End)).boxed()),
            logs: Arc::new(move |_| futures::future::ready((vec![Err(unknown())], Then::End)).boxed()),
            session: Arc::new(move |_| futures::future::ready(vec![Err(unknown())]).boxed()),
            submissions: Arc::new(move |_| futures::future::ready(vec![Err(unknown())]).boxed()),
            seen: Arc::default(),
        }
    }
}

impl Member {
    /// Answers submissions at once.
    pub fn submits(answer: impl Fn(SubmitJobRequest) -> Answer<u64> + Send + Sync + 'static) -> Self {
        let submit: Script<_, _> = Arc::new(move |request| futures::future::ready(answer(request)).boxed());
        Self { submit, ..Self::default() }
    }

    /// Answers submissions after a while.
    pub fn submits_after(wait: Duration, job: u64) -> Self {
        let submit: Script<_, _> = Arc::new(move |_| {
            async move {
                tokio::time::sleep(wait).await;
                Ok(job)
            }
            .boxed()
        });
        Self { submit, ..Self::default() }
    }

    pub fn watches(
        answer: impl Fn(WatchJobsRequest) -> (Messages<WatchJobsResponse>, Then) + Send + Sync + 'static,
    ) -> Self {
        let watch: Script<_, _> = Arc::new(move |request| futures::future::ready(answer(request)).boxed());
        Self { watch, ..Self::default() }
    }

    pub fn logs(
        answer: impl Fn(StreamLogsRequest) -> (Messages<StreamLogsResponse>, Then) + Send + Sync + 'static,
    ) -> Self {
        let logs: Script<_, _> = Arc::new(move |request| futures::future::ready(answer(request)).boxed());
        Self { logs, ..Self::default() }
    }

    /// Answers each message of a stream of submissions; an error ends the stream.
    pub fn takes(answer: impl Fn(SubmitJobsRequest) -> Messages<SubmitJobsResponse> + Send + Sync + 'static) -> Self {
        let submissions: Script<_, _> = Arc::new(move |request| futures::future::ready(answer(request)).boxed());
        Self { submissions, ..Self::default() }
    }

    pub fn sessions(answer: impl Fn(SessionRequest) -> Messages<SessionResponse> + Send + Sync + 'static) -> Self {
        let session: Script<_, _> = Arc::new(move |request| futures::future::ready(answer(request)).boxed());
        Self { session, ..Self::default() }
    }

    /// Starts serving on `network` under `address`.
    pub fn serve(self, network: &Network, address: &Address) -> Arc<Seen> {
        let connections = ReceiverStream::new(network.listen(address)).map(Ok::<_, std::io::Error>);
        let seen = self.seen.clone();
        let server = Server::builder()
            .add_service(JobServiceServer::new(self.clone()))
            .add_service(AgentServiceServer::new(self))
            .serve_with_incoming(connections);
        tokio::spawn(server);
        seen
    }
}

fn stream<M: Send + 'static>(messages: Messages<M>, then: Then) -> BoxStream<'static, Answer<M>> {
    let messages = futures::stream::iter(messages);
    match then {
        Then::End => messages.boxed(),
        Then::Hang => messages.chain(futures::stream::pending()).boxed(),
    }
}

#[tonic::async_trait]
impl JobService for Member {
    async fn submit_job(&self, request: Request<SubmitJobRequest>) -> Answer<Response<SubmitJobResponse>> {
        self.seen.headers.lock().expect("no holder panics").push(request.metadata().clone());
        let request = request.into_inner();
        self.seen.submissions.lock().expect("no holder panics").push(request.clone());
        let job_id = (self.submit)(request).await?;
        Ok(Response::new(SubmitJobResponse { job_id, revision: 1 }))
    }

    type SubmitJobsStream = BoxStream<'static, Answer<SubmitJobsResponse>>;

    async fn submit_jobs(
        &self,
        request: Request<Streaming<SubmitJobsRequest>>,
    ) -> Answer<Response<Self::SubmitJobsStream>> {
        let (script, seen) = (self.submissions.clone(), self.seen.clone());
        let answers = request.into_inner().then(move |message| {
            let (script, seen) = (script.clone(), seen.clone());
            async move {
                let message = message?;
                seen.streamed.lock().expect("no holder panics").push(message.clone());
                Ok::<_, Status>(futures::stream::iter(script(message).await))
            }
        });
        Ok(Response::new(answers.try_flatten().boxed()))
    }

    type WatchJobsStream = BoxStream<'static, Answer<WatchJobsResponse>>;

    async fn watch_jobs(&self, request: Request<WatchJobsRequest>) -> Answer<Response<Self::WatchJobsStream>> {
        let request = request.into_inner();
        self.seen.watches.lock().expect("no holder panics").push(request.clone());
        let (messages, then) = (self.watch)(request).await;
        Ok(Response::new(stream(messages, then)))
    }

    type StreamLogsStream = BoxStream<'static, Answer<StreamLogsResponse>>;

    async fn stream_logs(&self, request: Request<StreamLogsRequest>) -> Answer<Response<Self::StreamLogsStream>> {
        let request = request.into_inner();
        self.seen.logs.lock().expect("no holder panics").push(request);
        let (messages, then) = (self.logs)(request).await;
        Ok(Response::new(stream(messages, then)))
    }

    async fn get_job(&self, _: Request<GetJobRequest>) -> Answer<Response<GetJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Answer<Response<ListJobsResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn cancel_job(&self, _: Request<CancelJobRequest>) -> Answer<Response<CancelJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn get_job_device(&self, _: Request<GetJobDeviceRequest>) -> Answer<Response<GetJobDeviceResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn hold_job(&self, _: Request<HoldJobRequest>) -> Answer<Response<HoldJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn release_job(&self, _: Request<ReleaseJobRequest>) -> Answer<Response<ReleaseJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn suspend_job(&self, _: Request<SuspendJobRequest>) -> Answer<Response<SuspendJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn resume_job(&self, _: Request<ResumeJobRequest>) -> Answer<Response<ResumeJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn move_job(&self, _: Request<MoveJobRequest>) -> Answer<Response<MoveJobResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn why(&self, _: Request<WhyRequest>) -> Answer<Response<WhyResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn list_waits(&self, _: Request<ListWaitsRequest>) -> Answer<Response<ListWaitsResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn list_use(&self, _: Request<ListUseRequest>) -> Answer<Response<ListUseResponse>> {
        Err(Status::unimplemented("no script"))
    }

    async fn plan_job(&self, _: Request<PlanJobRequest>) -> Answer<Response<PlanJobResponse>> {
        Err(Status::unimplemented("no script"))
    }
}

#[tonic::async_trait]
impl AgentService for Member {
    type SessionStream = BoxStream<'static, Answer<SessionResponse>>;

    async fn session(&self, request: Request<Streaming<SessionRequest>>) -> Answer<Response<Self::SessionStream>> {
        let mut incoming = request.into_inner();
        let hello = incoming.message().await?.ok_or_else(|| Status::invalid_argument("no hello"))?;
        let mut messages = (self.session)(hello).await;
        if let Some(Err(_)) = messages.first() {
            messages.remove(0)?;
        }
        Ok(Response::new(stream(messages, Then::Hang)))
    }
}
