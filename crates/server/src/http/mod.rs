//! The member's plain HTTP pages: metrics, whether it is alive and ready, the web console, and the questions of the API
//! as JSON. They listen on a port of their own, so that they can be read without being able to submit: what changes
//! anything is answered in JSON where gRPC is served, and refused here.

mod map;
mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, get};
use futures::StreamExt;
use tessera_api::Refusal;
use tessera_api::error::LIMIT;
use tessera_api::v1::ErrorReason;
use tessera_connection::Inbound;
use tessera_connection::pages::{self, CONNECTIONS};
use tessera_gateway::Rights;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::json_face::JsonFace;
use crate::phase::Phase;
use tessera_controller::metrics::Metrics;
use tessera_controller::pool::PoolHandle;

/// Streams that are open over the pages at once. The rest of their connections is for who asks and goes, above all for
/// who asks whether this member is alive.
const STREAMS: usize = CONNECTIONS * 3 / 4;

/// The data and resources of the pages.
#[derive(Clone)]
struct Pages {
    phase: watch::Receiver<Phase>,
    metrics: Arc<Metrics>,
    json: JsonFace,
    feed: map::Feed,
    streams: Arc<Semaphore>,
    /// Held while the page that tells job by job is made.
    detail: Arc<Semaphore>,
    /// Ends the streams.
    end: CancellationToken,
}

impl Pages {
    /// The pool, or the refusal while there is none to ask.
    fn pool(&self) -> Result<PoolHandle, Refusal> {
        let phase = self.phase.borrow();
        phase.pool().cloned().ok_or_else(|| phase.refusal())
    }

    /// A place for one more stream, or the refusal.
    fn stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let sentence = format!("{STREAMS} streams are open over the pages of this member; ask another");
            Refusal::new(ErrorReason::TooManyWatches, sentence).with(LIMIT, STREAMS.to_string())
        })
    }
}

/// The pages: `/metrics`, `/metrics/detail/jobs`, `/livez`, `/readyz`, `/console/` and `/v1/...`. While
/// the process is no member it is alive, and not ready. Streams end when `end` is cancelled.
pub fn router(phase: watch::Receiver<Phase>, metrics: Arc<Metrics>, json: JsonFace, end: CancellationToken) -> Router {
    let [streams, detail] = [STREAMS, 1].map(|most| Arc::new(Semaphore::new(most)));
    let pool = Router::new()
        .route("/v1/map", get(map::whole))
        .route("/v1/map:watch", get(map::watch))
        .route("/v1/{*path}", any(ask))
        .merge(tessera_console::router())
        .route("/metrics", get(metrics::page))
        .route("/metrics/detail/jobs", get(metrics::jobs))
        .layer(from_fn_with_state(json.clone(), JsonFace::guard));
    // Health says nothing of the pool, and is asked for by any name.
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .merge(pool)
        .with_state(Pages { phase, metrics, json, feed: map::Feed::default(), streams, detail, end })
}

/// The questions of the API.
async fn ask(State(pages): State<Pages>, request: Request) -> Response {
    let Some(gateway) = pages.json.gateway() else {
        return tessera_gateway::refuse(pages.phase.borrow().refusal().into());
    };
    let answer = gateway.answer(request, Rights::Ask).await;
    let kind = answer.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "text/event-stream") {
        return answer;
    }
    match pages.stream() {
        Ok(place) => answer.map(|body| {
            axum::body::Body::from_stream(body.into_data_stream().map(move |data| {
                let _kept_until_the_stream_ends = &place;
                data
            }))
        }),
        Err(refusal) => tessera_gateway::refuse(refusal.into()),
    }
}

/// Serves the pages until `shutdown`.
pub async fn serve(
    inbound: Inbound,
    phase: watch::Receiver<Phase>,
    metrics: Arc<Metrics>,
    json: JsonFace,
    shutdown: CancellationToken,
) {
    pages::serve(inbound, router(phase, metrics, json, shutdown.clone()), shutdown).await;
}

/// Sends what the page of metrics shows to the collector of this process, if it has one, until `shutdown`.
pub async fn push(metrics: Arc<Metrics>, shutdown: CancellationToken) {
    let page = || std::future::ready(metrics.encode().ok());
    tessera_otlp::push(page, shutdown).await;
}

/// Tells whether calls should be sent to this member; the body says why not.
async fn ready(State(pages): State<Pages>) -> (StatusCode, String) {
    let phase = pages.phase.borrow().clone();
    match phase.readiness() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}
