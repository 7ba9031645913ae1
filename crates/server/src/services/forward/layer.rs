//! The layer itself: look at the path, find the leader, carry, judge, and carry again while the deadline allows.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use tessera_actor::Backoff;
use tessera_api::request_id::new_request_id;
use tessera_consensus::{Leadership, Member};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service, ServiceExt};

use super::channels::Channels;
use super::envelope::Envelope;
use super::verdict::{Verdict, says_not_now};
use crate::grpc::deadline::Deadline;
use crate::grpc::methods::{Answerer, Methods};
use crate::services::refusal;
use tessera_controller::pool::PoolHandle;

/// Pauses before a call is carried again, when nothing is heard of a new leader.
pub(super) const PAUSES: Backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(80) };

/// The time beyond its deadline that a read may take to say that it was not met.
const MARGIN: Duration = Duration::from_millis(20);

/// Brings calls to the leader.
#[derive(Clone, Debug)]
pub struct LeaderLayer {
    methods: Methods,
    pool: PoolHandle,
    leadership: watch::Receiver<Leadership>,
    channels: Channels,
}

impl LeaderLayer {
    #[must_use]
    pub fn new(methods: Methods, pool: PoolHandle, channels: Channels) -> Self {
        Self { methods, leadership: pool.leadership(), pool, channels }
    }
}

impl<S> Layer<S> for LeaderLayer {
    type Service = LeaderRoute<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LeaderRoute { inner, layer: self.clone() }
    }
}

/// The services of a member, behind the layer.
#[derive(Clone, Debug)]
pub struct LeaderRoute<S> {
    inner: S,
    layer: LeaderLayer,
}

impl<S: Clone> LeaderRoute<S> {
    fn carrier(&self) -> Carrier<S> {
        Carrier {
            inner: self.inner.clone(),
            pool: self.layer.pool.clone(),
            leadership: self.layer.leadership.clone(),
            channels: self.layer.channels.clone(),
        }
    }
}

impl<S> Service<Request<Body>> for LeaderRoute<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(method) = self.layer.methods.get(request.uri().path()) else {
            return Box::pin(self.inner.call(request));
        };
        let deadline = Deadline::of(request.headers());
        let mutates = match method.answerer {
            Answerer::AnyMember => {
                request.extensions_mut().insert(deadline);
                // A stream has its deadline for its beginning only, and sees to that itself.
                let bounded = !method.streaming;
                let answer = self.inner.call(request);
                return if bounded { Box::pin(in_time(deadline, answer)) } else { Box::pin(answer) };
            }
            Answerer::LeaderTakesStream => {
                let carrier = self.carrier();
                return Box::pin(async move {
                    Ok(carrier.pass_on(request, deadline).await.unwrap_or_else(|status| status.into_http()))
                });
            }
            Answerer::LeaderMutates => true,
            Answerer::LeaderReads => false,
        };
        let carrier = self.carrier();
        let pool = self.layer.pool.clone();
        Box::pin(async move {
            // By the clocks of the members, which may be right where this member's is not.
            let new_id = mutates.then_some(|| new_request_id(pool.right_time()));
            let answer = match Envelope::receive(request, deadline, new_id).await {
                Ok(envelope) => carrier.carry(&envelope).await,
                Err(status) => Err(status),
            };
            Ok(answer.unwrap_or_else(|status| status.into_http()))
        })
    }
}

/// The answer, if it comes in time. Reads see to their deadline themselves; this is for callers that do not finish what
/// they send.
async fn in_time(
    deadline: Deadline,
    answer: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Infallible> {
    match timeout_at(deadline.0 + MARGIN, answer).await {
        Ok(answer) => answer,
        Err(_) => Ok(refusal::too_late().into_http()),
    }
}

/// The leader, as far as this member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    This,
    Other(Member),
    Unknown,
}

impl Leader {
    pub(super) fn of(leadership: &Leadership) -> Self {
        match leadership {
            Leadership::Leading { .. } => Self::This,
            Leadership::Following { leader: Some(member) } => Self::Other(member.clone()),
            Leadership::Following { leader: None } => Self::Unknown,
        }
    }
}

/// Carries one call.
pub(super) struct Carrier<S> {
    pub(super) inner: S,
    pub(super) pool: PoolHandle,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) channels: Channels,
}

impl<S> Carrier<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    async fn carry(mut self, envelope: &Envelope) -> Result<Response<Body>, Status> {
        let mut perhaps_done = false;
        let mut pauses = PAUSES.pauses();
        loop {
            let leader = Leader::of(&self.leadership.borrow_and_update());
            if envelope.is_forwarded() {
                return self.answer_forwarded(envelope, leader).await;
            }
            let verdict = match &leader {
                Leader::This => self.ask_here(envelope).await,
                Leader::Other(member) => self.ask(member, envelope).await?,
                Leader::Unknown => Verdict::Again { perhaps_done: false },
            };
            match verdict {
                // An earlier attempt may have been carried out: a later one's "nothing was changed" is not the
                // whole truth.
                Verdict::Answer(response) if perhaps_done && says_not_now(&response) => {
                    return Err(refusal::gave_up(true));
                }
                Verdict::Answer(response) => return Ok(response),
                Verdict::Again { perhaps_done: doubt } => perhaps_done |= doubt,
            }
            let repeat = envelope.repeatable || !perhaps_done;
            let pause = pauses.next().unwrap_or_default();
            if !repeat || !self.wait(&leader, pause, envelope.deadline).await {
                return Err(refusal::gave_up(perhaps_done));
            }
        }
    }

    /// A call that another member sent here because it takes this one for the leader.
    async fn answer_forwarded(&self, envelope: &Envelope, leader: Leader) -> Result<Response<Body>, Status> {
        if leader != Leader::This {
            return Err(self.not_leader(&leader));
        }
        let Ok(response) = self.inner.clone().oneshot(envelope.for_here()).await;
        Ok(response)
    }

    /// Refuses what another member sent here.
    pub(super) fn not_leader(&self, leader: &Leader) -> Status {
        match leader {
            Leader::Other(member) => refusal::not_leader(&self.pool, Some(member)),
            Leader::This | Leader::Unknown => refusal::not_leader(&self.pool, None),
        }
    }

    async fn ask_here(&self, envelope: &Envelope) -> Verdict {
        let Ok(response) = self.inner.clone().oneshot(envelope.for_here()).await;
        Verdict::of(response)
    }

    /// Asks the leader, and lets go of it when it is not the leader any more.
    async fn ask(&self, member: &Member, envelope: &Envelope) -> Result<Verdict, Status> {
        let channel = self.channels.to(&member.address).map_err(|error| refusal::leader_unreachable(&error))?;
        let replaced = replaced(self.leadership.clone(), member.clone());
        let answered = async {
            match channel.oneshot(envelope.for_there(self.pool.consensus().identity().member)).await {
                Ok(response) => Verdict::of_remote(response).await,
                Err(error) => {
                    tracing::debug!(leader = %member, error = &error as &dyn std::error::Error, "the leader did not answer");
                    self.channels.forget(&member.address);
                    Verdict::of_failure(&error)
                }
            }
        };
        tokio::select! {
            biased;
            verdict = answered => Ok(verdict),
            // What must not be carried again is waited for: handing leadership on is such a call, and ends with
            // a change.
            () = replaced, if envelope.repeatable => Ok(Verdict::Again { perhaps_done: true }),
            () = sleep_until(envelope.deadline.0) => Ok(Verdict::Again { perhaps_done: true }),
        }
    }

    /// Waits until somebody else leads, or a little; false when the deadline comes first.
    pub(super) async fn wait(&mut self, asked: &Leader, pause: Duration, deadline: Deadline) -> bool {
        let until = Instant::now() + pause;
        if until >= deadline.0 {
            return false;
        }
        let changed = async {
            if self.leadership.wait_for(|now| Leader::of(now) != *asked).await.is_err() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep_until(until) => {}
        }
        true
    }
}

/// Waits until a member is not the leader any more.
pub(super) async fn replaced(mut leadership: watch::Receiver<Leadership>, member: Member) {
    let still = |now: &Leadership| matches!(now, Leadership::Following { leader: Some(now) } if *now == member);
    if leadership.wait_for(|now| !still(now)).await.is_err() {
        pending::<()>().await;
    }
}
