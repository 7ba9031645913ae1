//! A process that agents take for the leader when they are led to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tessera_api::v1::session_request::Message as Said;
use tessera_api::v1::session_response::Message as Told;
use tessera_api::v1::{Orders, SessionRequest, SessionResponse, Welcome};
use tessera_connection::Inbound;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::{FAR, Notes};
use crate::network::Accepting;
use crate::oracle::sights::{ORDERS_REFUSED, WELCOME_REFUSED};

/// Answers agents until it is killed.
pub async fn run(accepting: Accepting, notes: Notes) -> String {
    let pretender = AgentServiceServer::new(Pretender { notes, sessions: AtomicU64::new(0) });
    let incoming = Inbound::new(Arc::new(accepting)).incoming();
    match Server::builder().add_service(pretender).serve_with_incoming(incoming).await {
        Ok(()) => "nobody comes any more".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Says a far too large term: in turn in its welcome, and, after one that may be, in its orders.
struct Pretender {
    notes: Notes,
    sessions: AtomicU64,
}

#[tonic::async_trait]
impl AgentService for Pretender {
    type SessionStream = BoxStream<'static, Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut incoming = request.into_inner();
        let Some(Said::Hello(hello)) = incoming.message().await?.and_then(|request| request.message) else {
            return Err(Status::invalid_argument("a session begins with a hello"));
        };
        self.notes.with(|noted| noted.hello = Some(hello.clone()));
        let welcome = |term| {
            Told::Welcome(Welcome { node_id: 1, term, cluster_id: hello.cluster_id.clone(), ..Welcome::default() })
        };
        let (told, sight) = match self.sessions.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => (vec![welcome(FAR)], WELCOME_REFUSED),
            _ => {
                let orders = Told::Orders(Orders { term: FAR, ..Orders::default() });
                (vec![welcome(hello.highest_term), orders], ORDERS_REFUSED)
            }
        };
        let notes = self.notes.clone();
        tokio::spawn(async move {
            // Whoever believes it stays, and sends heartbeats.
            while let Ok(Some(_)) = incoming.message().await {}
            notes.see(sight);
        });
        let told = told.into_iter().map(|message| Ok(SessionResponse { message: Some(message) }));
        Ok(Response::new(futures::stream::iter(told).chain(futures::stream::pending()).boxed()))
    }
}
