//! The layer that keeps what clients ask for within this member's limits: calls under way, and the bytes of
//! their requests.
//!
//! It looks at the path of a call only. What agents and other members say passes by and makes their connection theirs;
//! what other members forward is counted as the client's that it comes from. What asks in JSON comes by twice, and is
//! counted when it comes as the call that it stands for. A call is under way until its answer has
//! been handed to the connection, a stream of answers until it is open: those have limits of their own. A stream of
//! requests takes no place among the calls, however long it lasts, but one among its kind, until both of its ways have
//! ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use prometheus_client::metrics::gauge::Gauge;
use tessera_api::metadata;
use tessera_connection::arriving::{Ample, Arriving, Punctuality, Room};
use tessera_connection::seated::Arrival;
use tessera_connection::seats::{Calling, Guest};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::methods::Methods;
use crate::limits::{LimitMeters, Limited, MemberLimits, Use};
use crate::services::refusal;

/// Beginning of the paths of what members say to each other.
const MEMBERS: &str = "/tessera.raft.";
/// Beginning of the paths of what agents say.
const AGENTS: &str = "/tessera.v1.AgentService/";
/// Beginning of the paths of reflection, which is asked by a stream of questions.
const REFLECTION: &str = "/grpc.reflection.";
/// Calls of the health service and of reflection that may be open at once: they can be streams without end, and must
/// not take what the API needs.
const PROBES: usize = 256;
/// Bytes that one permit stands for, so that permits of all limits fit into their number.
const UNIT: usize = 1 << 10;

/// Keeps calls within limits.
#[derive(Clone, Debug)]
pub(crate) struct AdmitLayer {
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    methods: Methods,
    meters: LimitMeters,
    requests: Arc<Semaphore>,
    submission_streams: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    used: Gauge,
    punctuality: Punctuality,
}

impl AdmitLayer {
    pub(crate) fn new(methods: Methods, limits: &MemberLimits, meters: LimitMeters) -> Self {
        let units = (limits.request_bytes / UNIT).min(Semaphore::MAX_PERMITS);
        let gate = Gate {
            methods,
            requests: Arc::new(Semaphore::new(limits.requests)),
            submission_streams: Arc::new(Semaphore::new(limits.submission_streams)),
            probes: Arc::new(Semaphore::new(PROBES)),
            bytes: Arc::new(Semaphore::new(units)),
            used: meters.used(Limited::RequestBytes),
            meters,
            punctuality: Punctuality { patience: limits.silence, late: refusal::request_came_too_slowly },
        };
        Self { gate: Arc::new(gate) }
    }
}

impl<S> Layer<S> for AdmitLayer {
    type Service = Admit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Admit { inner, gate: Arc::clone(&self.gate) }
    }
}

/// A service whose calls are kept within limits.
#[derive(Clone, Debug)]
pub(crate) struct Admit<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S> Service<Request<Body>> for Admit<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let guest = guest_of(&request);
        let seated = request.extensions().get::<Arrival>().is_none_or(|arrival| arrival.seat.belongs_to(guest));
        let path = request.uri().path();
        if path.starts_with(MEMBERS) || path.starts_with(AGENTS) {
            return Box::pin(self.inner.call(request));
        }
        let json = path.starts_with(tessera_gateway::PREFIX);
        if !seated {
            let status = self.gate.meters.refuse(Limited::Connections);
            if json {
                return Box::pin(std::future::ready(Ok(tessera_gateway::refuse(status).map(Body::new))));
            }
            return refused(status);
        }
        if json {
            return Box::pin(self.inner.call(request));
        }
        let Some(method) = self.gate.methods.get(path) else {
            let Ok(permit) = Arc::clone(&self.gate.probes).try_acquire_owned() else {
                return refused(self.gate.meters.refuse(Limited::Requests));
            };
            let (punctuality, stream) = (self.gate.punctuality, path.starts_with(REFLECTION));
            let request = request.map(|body| {
                let arriving = if stream { Arriving::stream } else { Arriving::whole };
                Body::new(arriving(body, Arc::new(Ample), punctuality))
            });
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(|body| Body::new(Leaving { body, _held: permit }))) });
        };
        let (places, limited) = if method.takes_stream {
            (&self.gate.submission_streams, Limited::SubmissionStreams)
        } else {
            (&self.gate.requests, Limited::Requests)
        };
        let Ok(permit) = Arc::clone(places).try_acquire_owned() else {
            return refused(self.gate.meters.refuse(limited));
        };
        let counted = self.gate.meters.one(limited);
        let arrival = request.extensions().get::<Arrival>().filter(|_| !method.takes_stream);
        let calling = arrival.map(|arrival| arrival.seat.call());
        let held = Arc::new(Held::new(Arc::clone(&self.gate), permit, (counted, calling)));
        let (punctuality, takes_stream) = (self.gate.punctuality, method.takes_stream);
        let until_open = method.streaming && !takes_stream;
        let mut request = request.map(|body| {
            let held = Arc::clone(&held);
            Body::new(if takes_stream {
                Arriving::stream(body, held, punctuality)
            } else {
                Arriving::whole(body, held, punctuality)
            })
        });
        if takes_stream {
            request.extensions_mut().insert(Received(Arc::clone(&held)));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            if until_open {
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(Leaving { body, _held: held })))
        })
    }
}

fn refused<E: Send + 'static>(status: Status) -> BoxFuture<'static, Result<Response<Body>, E>> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

/// The owner of the connection over which a call comes: a client, or the control plane itself.
fn guest_of(request: &Request<Body>) -> Guest {
    let path = request.uri().path();
    let own = path.starts_with(MEMBERS) || path.starts_with(AGENTS);
    if own || request.headers().contains_key(metadata::FORWARDED_BY) { Guest::Own } else { Guest::Client }
}

/// The bytes of a stream of requests that have come and count as held. Kept in the extensions of its request; whoever
/// is done with some of them gives them back.
#[derive(Clone, Debug)]
pub(crate) struct Received(Arc<Held>);

impl Received {
    /// Releases `bytes` bytes that are no longer held.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.0.give_back(bytes);
    }
}

/// The part of the limits that one call takes up, released when nothing of the call is left.
#[derive(Debug)]
pub(super) struct Held {
    gate: Arc<Gate>,
    bytes: std::sync::Mutex<Units>,
    _permit: OwnedSemaphorePermit,
    _counted: (Use, Option<Calling>),
}

/// Bytes that have come, and the permits taken for them.
#[derive(Debug, Default)]
struct Units {
    bytes: usize,
    taken: usize,
}

impl Held {
    fn new(gate: Arc<Gate>, permit: OwnedSemaphorePermit, counted: (Use, Option<Calling>)) -> Self {
        Self { gate, bytes: std::sync::Mutex::default(), _permit: permit, _counted: counted }
    }

    fn give_back(&self, bytes: usize) {
        let mut units = self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        units.bytes = units.bytes.saturating_sub(bytes);
        let less = units.taken - units.bytes.div_ceil(UNIT);
        units.taken -= less;
        self.gate.bytes.add_permits(less);
        self.gate.used.dec_by(as_bytes(less));
    }
}

impl Room for Held {
    fn take(&self, bytes: usize) -> Result<(), Status> {
        let mut units = self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        units.bytes += bytes;
        let more = units.bytes.div_ceil(UNIT) - units.taken;
        let wanted = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(permits) = self.gate.bytes.try_acquire_many(wanted) else {
            return Err(self.gate.meters.refuse(Limited::RequestBytes));
        };
        permits.forget();
        units.taken += more;
        self.gate.used.inc_by(as_bytes(more));
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let taken = self.bytes.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner).taken;
        self.gate.bytes.add_permits(taken);
        self.gate.used.dec_by(as_bytes(taken));
    }
}

fn as_bytes(units: usize) -> i64 {
    i64::try_from(units.saturating_mul(UNIT)).unwrap_or(i64::MAX)
}

/// The body of an answer on its way out; the call is under way as long as it is there.
struct Leaving<H> {
    body: Body,
    _held: H,
}

impl<H: Unpin> http_body::Body for Leaving<H> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
