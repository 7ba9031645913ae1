//! The service of jobs.

mod device;
mod list;
pub(super) mod moving;
mod plan;
mod stream;
mod submit;
mod used;
mod when;
pub(super) mod why;

use tessera_api::request_id::Mutation;
use tessera_api::v1::job_service_server::JobService;
use tessera_api::{job_view, v1};
use tessera_ledger::{Command, JobId, Rejection};
use tonic::{Request, Response, Status, Streaming};

use super::caller::deadline_of;
use super::watch::{JobTopic, WatchStream};
use super::{Answers, Desk, logs};

/// Answers `tessera.v1.JobService`.
#[derive(Clone, Debug)]
pub struct JobApi {
    desk: Desk,
}

impl JobApi {
    #[must_use]
    pub const fn new(desk: Desk) -> Self {
        Self { desk }
    }

    /// Does to a job what a command says; answers the revision.
    async fn steer<M: Mutation>(
        &self,
        request: Request<M>,
        command: impl FnOnce(&M) -> Command,
    ) -> Result<u64, Status> {
        let command = command(request.get_ref());
        Ok(self.desk.make(request, command).await?.revision.0)
    }
}

#[tonic::async_trait]
impl JobService for JobApi {
    type WatchJobsStream = WatchStream<v1::WatchJobsResponse>;
    type StreamLogsStream = Answers<v1::StreamLogsResponse>;
    type SubmitJobsStream = Answers<v1::SubmitJobsResponse>;

    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobResponse>, Status> {
        submit::one(&self.desk, request).await.map(Response::new)
    }

    async fn submit_jobs(
        &self,
        request: Request<Streaming<v1::SubmitJobsRequest>>,
    ) -> Result<Response<Self::SubmitJobsStream>, Status> {
        Ok(Response::new(stream::open(self.desk.clone(), request)?))
    }

    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Result<Response<v1::GetJobResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let reading = self.desk.read(request.consistency, deadline).await?;
        let id = JobId(request.job_id);
        let job = reading.state.job(id).ok_or_else(|| reading.refuse(Rejection::UnknownJob(id)))?;
        let job = Some(job_view::job(&reading.state, job));
        Ok(Response::new(v1::GetJobResponse { job, read: reading.read_state() }))
    }

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Result<Response<v1::ListJobsResponse>, Status> {
        list::jobs(&self.desk, deadline_of(&request), &request.into_inner()).await.map(Response::new)
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        let revision = self.steer(request, |asked| Command::CancelJob { job: JobId(asked.job_id) }).await?;
        Ok(Response::new(v1::CancelJobResponse { revision }))
    }

    async fn hold_job(&self, request: Request<v1::HoldJobRequest>) -> Result<Response<v1::HoldJobResponse>, Status> {
        let revision = self.steer(request, |asked| Command::HoldJob { job: JobId(asked.job_id) }).await?;
        Ok(Response::new(v1::HoldJobResponse { revision }))
    }

    async fn release_job(
        &self,
        request: Request<v1::ReleaseJobRequest>,
    ) -> Result<Response<v1::ReleaseJobResponse>, Status> {
        let revision = self.steer(request, |asked| Command::ReleaseJob { job: JobId(asked.job_id) }).await?;
        Ok(Response::new(v1::ReleaseJobResponse { revision }))
    }

    async fn suspend_job(
        &self,
        request: Request<v1::SuspendJobRequest>,
    ) -> Result<Response<v1::SuspendJobResponse>, Status> {
        let revision = self.steer(request, |asked| Command::SuspendJob { job: JobId(asked.job_id) }).await?;
        Ok(Response::new(v1::SuspendJobResponse { revision }))
    }

    async fn resume_job(
        &self,
        request: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobResponse>, Status> {
        let revision = self.steer(request, |asked| Command::ResumeJob { job: JobId(asked.job_id) }).await?;
        Ok(Response::new(v1::ResumeJobResponse { revision }))
    }

    async fn watch_jobs(
        &self,
        request: Request<v1::WatchJobsRequest>,
    ) -> Result<Response<Self::WatchJobsStream>, Status> {
        let deadline = deadline_of(&request);
        let (topic, start) = JobTopic::of(request.get_ref())?;
        let permit = self.desk.watch_permit()?;
        let begin = start.begin(&self.desk.pool, deadline).await?;
        Ok(Response::new(self.desk.watch.start(topic, begin, permit)))
    }

    async fn stream_logs(
        &self,
        request: Request<v1::StreamLogsRequest>,
    ) -> Result<Response<Self::StreamLogsStream>, Status> {
        let deadline = deadline_of(&request);
        let stream = logs::open(&self.desk, deadline, request.into_inner()).await?;
        Ok(Response::new(stream))
    }

    async fn get_job_device(
        &self,
        request: Request<v1::GetJobDeviceRequest>,
    ) -> Result<Response<v1::GetJobDeviceResponse>, Status> {
        device::answer(&self.desk, deadline_of(&request), request.get_ref()).await.map(Response::new)
    }

    async fn why(&self, request: Request<v1::WhyRequest>) -> Result<Response<v1::WhyResponse>, Status> {
        why::answer(&self.desk, deadline_of(&request), &request.into_inner()).await.map(Response::new)
    }

    async fn list_waits(
        &self,
        request: Request<v1::ListWaitsRequest>,
    ) -> Result<Response<v1::ListWaitsResponse>, Status> {
        why::waits(&self.desk, deadline_of(&request), &request.into_inner()).await.map(Response::new)
    }

    async fn list_use(&self, request: Request<v1::ListUseRequest>) -> Result<Response<v1::ListUseResponse>, Status> {
        used::answer(&self.desk, request.get_ref()).map(Response::new)
    }

    async fn plan_job(&self, request: Request<v1::PlanJobRequest>) -> Result<Response<v1::PlanJobResponse>, Status> {
        plan::answer(&self.desk, deadline_of(&request), request.into_inner()).await.map(Response::new)
    }

    async fn move_job(&self, request: Request<v1::MoveJobRequest>) -> Result<Response<v1::MoveJobResponse>, Status> {
        moving::answer(&self.desk, request).await.map(Response::new)
    }
}
