//! The task that keeps a session with the leader: asks the node what to say, finds the leader, carries messages.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tessera_actor::{Address, Backoff, Reply};
use tessera_api::v1 as wire;
use tessera_client::{ClientError, Session, SessionConnector};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::node::Event;
use crate::shell::Input;

/// The longest time of one search for the leader before a fresh hello is made.
const SEARCH: Duration = Duration::from_secs(3);
/// The longest time that the node may take to answer; it is never busy for long.
const ANSWER: Duration = Duration::from_secs(30);
/// Bounds of the wait before the next search, which is doubled while searches fail.
const WAIT: Backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(2) };
/// Wait after the leader refused this node: only people can change that.
const WAIT_REFUSED: Duration = Duration::from_secs(5);

/// A session that the node can use.
#[derive(Debug)]
pub struct Opened {
    /// To the leader.
    pub outgoing: mpsc::Sender<wire::SessionRequest>,
    /// Ends the session.
    pub close: CancellationToken,
    /// Set before it is ended because its leader is silent.
    pub silent: CancellationToken,
}

/// Keeps a session until `end`.
pub async fn keep_session(
    mut connector: SessionConnector,
    node: Address<Input>,
    mut random: StdRng,
    end: CancellationToken,
) {
    let mut waits = WAIT.pauses();
    loop {
        let lasted = tokio::select! {
            () = end.cancelled() => return,
            lasted = one_session(&mut connector, &node) => lasted,
        };
        if node.tell(Input::Event(Event::SessionClosed), Instant::now() + ANSWER).await.is_err() {
            return;
        }
        if matches!(lasted, Lasted::Welcomed) {
            waits = WAIT.pauses();
        }
        let wait = match lasted {
            Lasted::Welcomed | Lasted::NotFound => waits.next().unwrap_or(WAIT.longest),
            Lasted::Refused => WAIT_REFUSED,
        };
        // Agents that lost their leader together must not come back together.
        let jittered = wait.mul_f64(random.random_range(0.5..1.5));
        tokio::select! {
            () = end.cancelled() => return,
            () = sleep(jittered) => {}
        }
    }
}

/// The outcome of a session.
enum Lasted {
    /// The leader had welcomed the node.
    Welcomed,
    NotFound,
    /// The leader will not have this node.
    Refused,
}

async fn one_session(connector: &mut SessionConnector, node: &Address<Input>) -> Lasted {
    let ask = |reply: Reply<wire::Hello>| Input::HelloWanted(reply);
    let Ok(hello) = node.ask(ask, Instant::now() + ANSWER).await else { return Lasted::NotFound };
    let session = match connector.open(hello, SEARCH).await {
        Ok(session) => session,
        Err(error @ ClientError::Refused(_)) => {
            tracing::error!(%error, "the leader refuses this node");
            return Lasted::Refused;
        }
        Err(error) => {
            tracing::warn!(%error, "no leader was found");
            return Lasted::NotFound;
        }
    };
    tracing::info!(leader = %session.leader, term = session.welcome.term, node_id = session.welcome.node_id, "welcomed");
    carry(connector, session, node).await;
    Lasted::Welcomed
}

/// Carries the leader's messages to the node until the session ends.
async fn carry(connector: &mut SessionConnector, session: Session, node: &Address<Input>) {
    let Session { leader, welcome, outgoing, mut incoming } = session;
    let close = CancellationToken::new();
    let silent = CancellationToken::new();
    let opened = Opened { outgoing, close: close.clone(), silent: silent.clone() };
    if node.tell(Input::Opened(opened), Instant::now() + ANSWER).await.is_err() {
        return;
    }
    let mut next = Some(wire::session_response::Message::Welcome(welcome));
    loop {
        if let Some(message) = next.take() {
            let response = wire::SessionResponse { message: Some(message) };
            let event = Event::FromLeader(Box::new(response));
            if node.tell(Input::Event(event), Instant::now() + ANSWER).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = close.cancelled() => {
                if silent.is_cancelled() {
                    connector.ended(&leader, &Status::unavailable("it leaves heartbeats unanswered"));
                }
                return;
            }
            received = incoming.message() => match received {
                Ok(Some(response)) => next = response.message,
                Ok(None) => {
                    tracing::info!(%leader, "the leader ended the session");
                    return;
                }
                Err(status) => {
                    tracing::info!(%leader, %status, "the session broke");
                    connector.ended(&leader, &status);
                    return;
                }
            },
        }
    }
}
