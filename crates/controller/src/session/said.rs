//! The messages of a session to its agent.

use std::time::Duration;

use prost::Message as _;
use tessera_api::Refusal;
use tessera_api::v1::session_response::Message;
use tessera_api::v1::{self, ErrorReason, SessionResponse};
use tessera_consensus::Term;
use tessera_ledger::wire::duration_to_wire;
use tessera_ledger::{LeaseTimings, PoolConfig, Rejection, State};

use super::messages::Heartbeat;
use super::step::Effect;

/// Size from which orders go out in several messages.
const ORDERS_BYTES: usize = 4 << 20;

pub(super) fn send(message: Message) -> Effect {
    Effect::Send(Box::new(SessionResponse { message: Some(message) }))
}

/// That what it reported is in the log, or need not be.
pub(super) fn acknowledge(report_id: u64) -> Effect {
    send(Message::ReportAcknowledged(v1::ReportAcknowledged { report_id }))
}

/// Orders as messages of a bounded size: jobs may be large, and a message that cannot be sent would end the
/// session, again and again. What is complete but too large for one message is followed by one that only names
/// every worker.
pub(super) fn orders(term: Term, state: &State, workers: Vec<v1::WorkerOrder>, complete: bool) -> Vec<Effect> {
    let message = |workers, complete| {
        send(Message::Orders(v1::Orders { term: term.0, revision: state.revision().0, complete, workers }))
    };
    let named = |order: &v1::WorkerOrder| v1::WorkerOrder { worker: order.worker, ..v1::WorkerOrder::default() };
    let names: Vec<v1::WorkerOrder> = workers.iter().map(named).collect();
    let (mut batches, mut size) = (vec![Vec::new()], 0);
    for order in workers {
        let length = order.encoded_len();
        if size > 0 && size + length > ORDERS_BYTES {
            batches.push(Vec::new());
            size = 0;
        }
        size += length;
        batches.last_mut().expect("there is always one batch").push(order);
    }
    if batches.len() == 1 {
        return batches.into_iter().map(|batch| message(batch, complete)).collect();
    }
    let mut effects: Vec<Effect> = batches.into_iter().map(|batch| message(batch, false)).collect();
    if complete {
        effects.push(message(names, true));
    }
    effects
}

/// The lease that answers a heartbeat: it counts from the moment the agent sent it. With it goes what of the pool's
/// settings an agent follows, so that a change reaches sessions that are open.
pub(super) fn lease(term: Term, heartbeat: &Heartbeat, timings: &LeaseTimings, config: &PoolConfig) -> Effect {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    send(Message::LeaseGrant(v1::LeaseGrant {
        heartbeat_sequence: heartbeat.sequence,
        sent_at_boottime_ms: heartbeat.sent_at_boottime_ms,
        stop_after_ms: millis(timings.stop_after),
        kill_after_ms: millis(timings.kill_after),
        term: term.0,
        heartbeat_interval: Some(duration_to_wire(timings.heartbeat)),
        output_retention: Some(duration_to_wire(config.output_retention)),
    }))
}

/// The reason why a node is not registered; problems of cards have a reason of their own.
pub(super) fn not_registered(rejection: &Rejection) -> Refusal {
    match rejection {
        Rejection::Invalid { field, problem } if field.starts_with("node.cards") => {
            Refusal::new(ErrorReason::CardInvalid, format!("{field}: {problem}; correct what the agent declares"))
        }
        other => Refusal::from(other),
    }
}
