//! The task around a session: it waits for whatever happens next and performs what the session says.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use planted::Bug;
use tessera_api::error::reason_name;
use tessera_api::reasons::is_undecoded;
use tessera_api::v1::{
    DeviceUse, ErrorReason, SessionRequest, SessionResponse, SliceSample, TimeSlicing, WorkerSample,
};
use tessera_api::{Refusal, agent, limits};
use tessera_ledger::{AllocationId, CardId, LeaseTimings, NodeId, Rank, Request, State};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Code, Status, Streaming};
use tracing::Instrument as _;

use super::concern::Concern;
use super::directory::Registration;
use super::messages::{self, Heard, Heartbeat, Measured};
use super::node_clock::NodeClock;
use super::not_leader;
use super::state::Session;
use super::step::{Effect, Event, Step};
use crate::leader::Reign;
use crate::lifecycle::leases::Withheld;
use crate::pool::PoolHandle;
use crate::telemetry::{CardReading, SessionInfo, SliceReading, WorkerReading};

/// The time limit for an agent to say hello.
const HELLO: Duration = Duration::from_secs(10);
/// The part of a lease within which a quorum has to confirm who leads. An agent that is sent away then finds whoever
/// leads by now before the rest is over.
const CONFIRMED_WITHIN: u32 = 3;

/// Bytes that are logged of a refusal whose words may be a stranger's.
const SAID: usize = 200;

type Outbox = mpsc::Sender<Result<SessionResponse, Status>>;

/// The cause of the end of a session, as metrics name it.
type Cause = &'static str;

/// Runs a session until either side ends it.
pub(super) async fn run(
    pool: PoolHandle,
    reign: Arc<Reign>,
    from: Option<IpAddr>,
    incoming: Streaming<SessionRequest>,
    outbox: Outbox,
) {
    let registration = reign.directory.register();
    let span =
        tracing::info_span!("session", number = registration.number, term = reign.term.0, node = tracing::field::Empty);
    let identity = pool.consensus().identity().cluster.as_str().to_owned();
    let shell = Shell {
        core: Session::new(reign.term, &identity),
        node: None,
        from,
        pending: FuturesUnordered::new(),
        pool,
        reign,
        registration,
        outbox,
        clock: NodeClock::default(),
    };
    shell.run(incoming).instrument(span).await;
}

struct Shell {
    core: Session,
    pool: PoolHandle,
    reign: Arc<Reign>,
    registration: Registration,
    /// The node that the session speaks for, once known.
    node: Option<NodeId>,
    /// The host from which the session comes, if that is known.
    from: Option<IpAddr>,
    outbox: Outbox,
    clock: NodeClock,
    /// The requests to others that are not answered yet.
    pending: FuturesUnordered<BoxFuture<'static, Event>>,
}

impl Shell {
    async fn run(mut self, incoming: Streaming<SessionRequest>) {
        self.pool.metrics().session_opened();
        let cause = self.serve(incoming).await;
        self.pool.metrics().session_ended(cause);
        if let Some(node) = self.node {
            tracing::info!(cause, node = node.0, "a session ended");
            self.reign.directory.leave(node, self.registration.number);
            self.pool.telemetry().closed(node, self.registration.number);
        }
    }

    async fn serve(&mut self, mut incoming: Streaming<SessionRequest>) -> Cause {
        let mut silent_at = Instant::now() + HELLO;
        let (registration, end) = (self.registration.clone(), self.reign.end.clone());
        loop {
            let event = tokio::select! {
                biased;
                () = end.cancelled() => return self.refuse(not_leader(&self.pool), "leadership_lost"),
                () = registration.replaced.cancelled() => return self.replaced(),
                Some(event) = self.pending.next(), if !self.pending.is_empty() => event,
                concern = registration.wake.concerned() => Event::Changed(concern),
                message = incoming.message() => match message {
                    Ok(Some(request)) => match messages::read(request) {
                        Ok(mut heard) => {
                            self.clock.hear(&mut heard, self.pool.log_time());
                            silent_at = Instant::now() + self.leases().kill_after;
                            self.note_heard(&heard);
                            Event::Heard(heard)
                        }
                        Err(refusal) => return self.refuse(refusal, "refused"),
                    },
                    Ok(None) => return "agent_left",
                    Err(status) => return self.broken(&status),
                },
                () = sleep_until(silent_at) => return self.silent(),
            };
            let state = self.pool.view().current();
            for effect in self.core.on(event, &state) {
                if let Some(cause) = self.perform(effect) {
                    return cause;
                }
            }
        }
    }

    fn leases(&self) -> LeaseTimings {
        self.pool.view().current().config().leases
    }

    fn note_heard(&self, heard: &Heard) {
        let Some(node) = self.node else { return };
        let now = Instant::now();
        self.pool.telemetry().heard(node, self.registration.number, now);
        if matches!(heard, Heard::Heartbeat(..)) {
            let elsewhere = self.reign.copies.of(node, &self.pool.view().current(), now);
            self.pending.push(std::future::ready(Event::Tend(elsewhere)).boxed());
            self.reign.leases.lock().unwrap_or_else(PoisonError::into_inner).heard(node, now);
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Cause> {
        match effect {
            Effect::Send(response) => return self.send(*response),
            Effect::Propose(step, requests) => self.propose(step, requests),
            Effect::Outlive(node) => {
                let leases = self.reign.leases.lock().unwrap_or_else(PoisonError::into_inner);
                // Read while the table is held: see `Leases::is_over`.
                let over = leases.is_over(node, Instant::now(), &self.pool.view().current());
                self.pending.push(std::future::ready(Event::Outlived(over)).boxed());
            }
            Effect::Meet(node) => return self.meet(node),
            Effect::Confirm(node, heartbeat) => self.confirm(node, heartbeat),
            Effect::Note(node, measured) => self.note(node, measured),
            Effect::Pause(pause) => self.pending.push(sleep(pause).map(|()| Event::Resumed).boxed()),
            Effect::Close(refusal) => return Some(self.refuse(refusal, "refused")),
        }
        None
    }

    /// Hands a message to the agent. One that does not read what it is told is cut: it says hello again and reads it
    /// all anew.
    fn send(&self, response: SessionResponse) -> Option<Cause> {
        match self.outbox.try_send(Ok(response)) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Closed(_)) => Some("agent_left"),
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!("an agent does not read what it is told: its session is cut");
                Some("slow")
            }
        }
    }

    /// Ends the session with a reason that its agent can act on, if there is room to say it.
    fn refuse(&self, refusal: Refusal, cause: Cause) -> Cause {
        match self.node {
            Some(_) => tracing::info!(%refusal, cause, "a session is refused or ended"),
            None => self.turned_away(&refusal, cause),
        }
        drop(self.outbox.try_send(Err(refusal.into())));
        cause
    }

    /// Says that a session is refused of which no node is known: anybody can bring that about as often as he likes. It
    /// is one short line, outside of the session's span, and what others `said` does not make another warning of it.
    fn turned_away(&self, refusal: &Refusal, cause: Cause) {
        let from = self.from.map(|from| from.to_string()).unwrap_or_default();
        let reason = reason_name(refusal.reason());
        let said = agent::cut(refusal.message().to_owned(), SAID);
        tracing::warn!(parent: None, from, reason, cause, said, "a session was refused before its node was known");
    }

    /// Nothing more can be read: what came is no message, or the connection is gone.
    fn broken(&self, status: &Status) -> Cause {
        if is_undecoded(status) || status.code() == Code::OutOfRange {
            let what = format!("a message of a session cannot be read: {}", status.message());
            return self.refuse(messages::violation(&what), "refused");
        }
        match self.node {
            Some(_) => tracing::info!(%status, "the connection to an agent broke"),
            None => tracing::debug!(%status, "the connection of a session broke before its node was known"),
        }
        "connection_broke"
    }

    fn replaced(&self) -> Cause {
        let text = "a newer session of this node took over; two agents run on it, or a connection had been given up";
        self.refuse(Refusal::new(ErrorReason::NodeChanged, text), "replaced")
    }

    fn silent(&self) -> Cause {
        let text = "nothing was heard for longer than a lease lasts; say hello again";
        self.refuse(Refusal::new(ErrorReason::DeadlineExceeded, text), "silent")
    }

    fn meet(&mut self, node: NodeId) -> Option<Cause> {
        if !self.reign.directory.take(node, &self.registration) {
            return Some(self.replaced());
        }
        self.node = Some(node);
        tracing::Span::current().record("node", tracing::field::display(node));
        let now = Instant::now();
        self.reign.leases.lock().unwrap_or_else(PoisonError::into_inner).heard(node, now);
        let session = SessionInfo { number: self.registration.number, since: now, heard_at: now };
        self.pool.telemetry().opened(node, session);
        // The ledger may have changed for this node before the session was registered.
        self.registration.wake.add(Concern::Everything);
        None
    }

    fn propose(&mut self, step: Step, requests: Vec<Request>) {
        let deadline = Instant::now() + self.pool.config().timings.propose;
        let pool = self.pool.clone();
        let proposed = async move {
            let proposals = requests.into_iter().map(|request| pool.propose(request, deadline));
            Event::Proposed(step, try_join_all(proposals).await)
        };
        self.pending.push(proposed.in_current_span().boxed());
    }

    /// Asks a quorum, and then the table of leases. The question to the quorum is put after the heartbeat arrived; many
    /// sessions share one round of confirmation.
    fn confirm(&mut self, node: NodeId, heartbeat: Heartbeat) {
        let (pool, reign) = (self.pool.clone(), Arc::clone(&self.reign));
        let confirmed = async move {
            let heard_at = Instant::now();
            let deadline = heard_at + pool.view().current().config().leases.stop_after / CONFIRMED_WITHIN;
            let trusted = planted::is(Bug::LeaseWithoutQuorum);
            let confirmed = if trusted { Ok(reign.term) } else { pool.consensus().confirm_leadership(deadline).await };
            let granted = match confirmed {
                Ok(term) if term == reign.term && !reign.end.is_cancelled() => {
                    let mut leases = reign.leases.lock().unwrap_or_else(PoisonError::into_inner);
                    // Read while the table is held: see `Leases::grant`.
                    let state = pool.view().current();
                    leases.grant(node, heard_at, &state)
                }
                Ok(_) | Err(_) => Err(Withheld::Unconfirmed),
            };
            match granted {
                Ok(_) => pool.metrics().lease_granted(),
                Err(withheld) => pool.metrics().lease_withheld(withheld.name()),
            }
            Event::Leased(heartbeat, granted)
        };
        self.pending.push(confirmed.boxed());
    }

    fn note(&self, node: NodeId, measured: Measured) {
        let at = Instant::now();
        let state = self.pool.view().current();
        let cards = state.node(node).map_or(0, |node| node.cards);
        for sample in measured.cards.into_iter().filter(|sample| sample.card_index < cards) {
            let reading = CardReading {
                at,
                utilization_ratio: sensible(sample.utilization_ratio).min(1.0),
                memory_used_bytes: sensible_bytes(sample.memory_used_bytes),
                temperature_celsius: sample.temperature_celsius.filter(|celsius| CELSIUS.contains(celsius)),
                power_watts: sample.power_watts.filter(|watts| WATTS.contains(watts)),
                time_slicing: sample.time_slicing.map(sensible_slicing),
                unread: sample.unread,
            };
            self.pool.telemetry().note(CardId { node, index: sample.card_index }, reading);
        }
        let workers = measured.workers.into_iter().filter_map(|sample| worker_reading(&state, node, at, sample));
        self.pool.telemetry().note_workers(node, workers.collect());
    }
}

/// A reading of a worker that the ledger knows to be on the node.
fn worker_reading(
    state: &State,
    node: NodeId,
    at: Instant,
    sample: WorkerSample,
) -> Option<((AllocationId, Rank), WorkerReading)> {
    let owner = tessera_api::agent::owner(sample.worker.as_ref()?);
    let allocation = state.allocation(owner.allocation).filter(|allocation| allocation.epoch == owner.epoch)?;
    let worker = allocation.workers.iter().find(|worker| worker.rank == owner.rank && worker.node == node)?;
    let reading = |told: &SliceSample| {
        let slice = worker.slices.iter().find(|slice| slice.card.index == told.card_index)?;
        let blocks = state.card(slice.card).map_or(0, |card| card.blocks.0);
        // A program may write what its slice server tells. No slice computes more than its whole card.
        let most = f64::from(blocks) / f64::from(slice.length.0.max(1));
        let utilization_ratio = sensible(told.utilization_ratio).min(most.max(1.0));
        let memory_used_bytes = sensible_bytes(told.memory_used_bytes);
        let device = told.device.map(sensible_device);
        Some((told.card_index, SliceReading { utilization_ratio, memory_used_bytes, device }))
    };
    let reading = WorkerReading {
        at,
        epoch: owner.epoch,
        processors: sensible_rate(sample.processors, PROCESSORS),
        host_memory_bytes: sensible_bytes(sample.host_memory_bytes),
        slices: sample.slices.iter().filter_map(reading).collect(),
    };
    Some(((owner.allocation, owner.rank), reading))
}

/// Temperatures that a card can have.
const CELSIUS: RangeInclusive<f64> = -273.0..=10_000.0;
/// Power that a card can take.
const WATTS: RangeInclusive<f64> = 0.0..=1_000_000.0;
/// Most processors that a host can have.
const PROCESSORS: f64 = 1_000_000.0;
/// Most of anything that a card can do or be given in a second.
const PER_SECOND: f64 = 1e18;

fn sensible_device(told: DeviceUse) -> DeviceUse {
    DeviceUse {
        operations_per_second: sensible_rate(told.operations_per_second, PER_SECOND),
        bytes_per_second: sensible_rate(told.bytes_per_second, PER_SECOND),
        gate_wait_ratio: sensible(told.gate_wait_ratio).min(1.0),
        queued_bytes: sensible_bytes(told.queued_bytes),
    }
}

fn sensible_slicing(told: TimeSlicing) -> TimeSlicing {
    TimeSlicing {
        switches_per_round: sensible_rate(told.switches_per_round, PER_SECOND),
        competing: tessera_api::agent::sentence(told.competing),
        ..told
    }
}

/// Nothing in the place of a rate that nothing has.
fn sensible_rate(told: f64, most: f64) -> f64 {
    Some(sensible(told)).filter(|rate| *rate <= most).unwrap_or(0.0)
}

/// Nothing in the place of more memory than any card or host has.
fn sensible_bytes(told: u64) -> u64 {
    Some(told).filter(|bytes| *bytes <= limits::MEMORY.0 << 20).unwrap_or(0)
}

/// Nothing in the place of what is no share of time.
const fn sensible(share: f64) -> f64 {
    if share.is_finite() && share > 0.0 { share } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_that_nothing_can_have_count_as_nothing() {
        let device = |rate| DeviceUse { operations_per_second: rate, bytes_per_second: rate, ..DeviceUse::default() };
        assert_eq!(sensible_device(device(2e9)), device(2e9));
        for told in [1e300, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(sensible_device(device(told)), device(0.0), "{told}");
            assert_eq!(sensible_rate(told, PROCESSORS), 0.0, "{told}");
            assert!(!CELSIUS.contains(&told) || told == -1.0);
            assert!(!WATTS.contains(&told), "{told}");
        }
        assert_eq!((sensible_bytes(80 << 30), sensible_bytes(u64::MAX)), (80 << 30, 0));
    }
}
