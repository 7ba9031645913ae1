//! Sessions with agents: the service that agents call, answered by the leader, and one actor per connected agent.
//!
//! An agent says hello with its cards and with **what it really runs**; the leader answers with **what should run**,
//! and goes on to say so whenever the ledger changes. Reconciliation is two-way: what nobody granted is stopped and
//! reported, what is granted and has no process is started or reported. What agents report is proposed to the log and
//! acknowledged when it is there. Heartbeats are answered by leases, but only after a quorum confirmed this leader
//! after the heartbeat had arrived (`lifecycle/leases.rs`).
//!
//! * `messages`: what agents say, checked.
//! * `orders`: what should run on a node, from the ledger alone.
//! * `news`: what agents say that the ledger does not know.
//! * `book`: what was ordered, against what should run.
//! * `kept`: checkpoints on nodes' disks, against what the ledger knows and wants.
//! * `state`: the actor: plain state and `on`.
//! * `shell`: the task around it.
//! * `directory`: who is connected, and whom a change of the ledger concerns.

mod book;
pub(crate) mod concern;
pub(crate) mod directory;
mod events;
pub(crate) mod kept;
pub(crate) mod messages;
mod news;
mod node_clock;
pub(crate) mod orders;
pub(crate) mod said;
mod shell;
mod state;
mod step;

use std::sync::Arc;
use std::time::Duration;

use tessera_api::Refusal;
use tessera_api::v1::agent_service_server::{AgentService, AgentServiceServer};
use tessera_api::v1::{SessionRequest, SessionResponse};
use tessera_connection::seated::Arrival;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::leader::Reign;
use crate::pool::PoolHandle;

/// The longest time that an agent waits for a leader that has just won and is not ready yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// Largest message of an agent in bytes: a thousand cards and tens of thousands of workers fit.
const MESSAGE_BYTES: usize = 16 << 20;

/// The service that agents call, on every member: members that do not lead refuse with NOT_LEADER and say who does.
#[derive(Clone, Debug)]
pub struct NodeSessions {
    pool: PoolHandle,
    reign: watch::Receiver<Option<Arc<Reign>>>,
}

impl NodeSessions {
    pub(crate) const fn new(pool: PoolHandle, reign: watch::Receiver<Option<Arc<Reign>>>) -> Self {
        Self { pool, reign }
    }

    /// The service, to be mounted in this member's server.
    #[must_use]
    pub fn into_server(self) -> AgentServiceServer<Self> {
        AgentServiceServer::new(self).max_decoding_message_size(MESSAGE_BYTES).max_encoding_message_size(MESSAGE_BYTES)
    }

    /// The present reign of this member; waits a little when it has won and is about to begin.
    async fn reign(&self) -> Result<Arc<Reign>, Refusal> {
        let mut reign = self.reign.clone();
        let leads = matches!(*self.pool.leadership().borrow(), tessera_consensus::Leadership::Leading { .. });
        let patience = if leads { PATIENCE } else { Duration::ZERO };
        let found = timeout(patience, reign.wait_for(Option::is_some)).await;
        let found = found.ok().and_then(Result::ok).and_then(|reign| reign.clone());
        found.ok_or_else(|| not_leader(&self.pool))
    }
}

/// The refusal of a member that does not lead, with whom to ask.
pub(crate) fn not_leader(pool: &PoolHandle) -> Refusal {
    let status = pool.status();
    let status = status.borrow();
    let other = status.leader.as_ref().filter(|leader| leader.id != status.id);
    Refusal::not_leader(other.map(|leader| (leader.address.as_str(), status.term.0)))
}

#[tonic::async_trait]
impl AgentService for NodeSessions {
    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let reign = self.reign().await?;
        let (outbox, responses) = mpsc::channel(self.pool.config().session_outbox);
        let from = request.extensions().get::<Arrival>().map(|arrival| arrival.peer.address.ip());
        let session = shell::run(self.pool.clone(), Arc::clone(&reign), from, request.into_inner(), outbox);
        reign.supervisor.once("session", session);
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}
