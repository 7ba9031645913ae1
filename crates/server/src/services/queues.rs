//! The service of queues.

use std::sync::Arc;

use tessera_api::fields::line;
use tessera_api::page::Page;
use tessera_api::v1::queue_service_server::QueueService;
use tessera_api::{Refusal, queue_view, v1};
use tessera_ledger::{Command, Queue, Rejection};
use tonic::{Request, Response, Status};

use super::caller::deadline_of;
use super::{Desk, scan};

/// Answers `tessera.v1.QueueService`.
#[derive(Clone, Debug)]
pub struct QueueApi {
    desk: Desk,
}

impl QueueApi {
    #[must_use]
    pub const fn new(desk: Desk) -> Self {
        Self { desk }
    }
}

#[tonic::async_trait]
impl QueueService for QueueApi {
    async fn get_queue(&self, request: Request<v1::GetQueueRequest>) -> Result<Response<v1::GetQueueResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        line("name", &request.name).map_err(Refusal::from)?;
        let reading = self.desk.read(request.consistency, deadline).await?;
        let queue = reading.state.queue(&request.name);
        let queue = queue.ok_or_else(|| reading.refuse(Rejection::UnknownQueue(request.name)))?;
        let queue = Some(queue_view::queue(&reading.state, queue));
        Ok(Response::new(v1::GetQueueResponse { queue, read: reading.read_state() }))
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        let deadline = deadline_of(&request);
        let request = request.into_inner();
        let page = Page::<String>::of(&request)?;
        let reading = self.desk.read(request.consistency, deadline).await?;
        let name = |queue: &&Arc<Queue>| queue.settings.name.clone();
        let rest = reading
            .state
            .queues()
            .skip_while(|queue| page.after.as_ref().is_some_and(|after| queue.settings.name <= *after));
        let (queues, next_page_token) =
            scan::page(&page, rest, name, |queue| Some(queue_view::queue(&reading.state, queue)));
        Ok(Response::new(v1::ListQueuesResponse { queues, next_page_token, read: reading.read_state() }))
    }

    async fn set_queue(&self, request: Request<v1::SetQueueRequest>) -> Result<Response<v1::SetQueueResponse>, Status> {
        let queue = queue_view::settings_of_request(request.get_ref().queue.clone())?;
        let made = self.desk.make(request, Command::SetQueue { queue }).await?;
        Ok(Response::new(v1::SetQueueResponse { revision: made.revision.0 }))
    }

    async fn remove_queue(
        &self,
        request: Request<v1::RemoveQueueRequest>,
    ) -> Result<Response<v1::RemoveQueueResponse>, Status> {
        let name = request.get_ref().name.clone();
        line("name", &name).map_err(Refusal::from)?;
        let made = self.desk.make(request, Command::RemoveQueue { name }).await?;
        Ok(Response::new(v1::RemoveQueueResponse { revision: made.revision.0 }))
    }
}
