//! The member's plain HTTP pages: metrics, whether it is alive and ready, the web console, and the questions of the API
//! as JSON. They listen on a port of their own, so that they can be read without being able to submit: what changes
//! anything is answered in JSON where gRPC is served, and refused here.

mod map;
mod metrics;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{any, get};
use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_connection::Inbound;
use tessera_gateway::Rights;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::json_face::JsonFace;
use crate::services::readiness::{NotReady, Readiness};
use tessera_controller::metrics::Metrics;
use tessera_controller::pool::PoolHandle;

/// Watchers of the map that this member keeps.
const WATCHERS: usize = 256;

/// What the pages show.
#[derive(Clone)]
struct Pages {
    member: watch::Receiver<Option<PoolHandle>>,
    metrics: Arc<Metrics>,
    json: JsonFace,
    feed: map::Feed,
    watchers: Arc<Semaphore>,
    /// Ends the streams.
    end: CancellationToken,
}

impl Pages {
    fn pool(&self) -> Option<PoolHandle> {
        self.member.borrow().clone()
    }
}

/// The pages: `/metrics`, `/livez`, `/readyz`, `/console/` and `/v1/...`. `member` is empty while the process has no
/// identity: it is alive then, and not ready. Streams end when `end` is cancelled.
pub fn router(
    member: watch::Receiver<Option<PoolHandle>>,
    metrics: Arc<Metrics>,
    json: JsonFace,
    end: CancellationToken,
) -> Router {
    let watchers = Arc::new(Semaphore::new(WATCHERS));
    Router::new()
        .route("/metrics", get(metrics::page))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/v1/map", get(map::whole))
        .route("/v1/map:watch", get(map::watch))
        .route("/v1/{*path}", any(ask))
        .merge(tessera_console::router())
        .with_state(Pages { member, metrics, json, feed: map::Feed::default(), watchers, end })
}

/// The questions of the API.
async fn ask(State(pages): State<Pages>, request: Request) -> Response {
    match pages.json.gateway() {
        Some(gateway) => gateway.answer(request, Rights::Ask).await,
        None => not_admitted(),
    }
}

/// There is no pool to ask yet.
fn not_admitted() -> Response {
    let sentence = "this process is no member yet; create the cluster with tessera cluster init, or add the process to it \
                    with tessera cluster member add";
    tessera_gateway::refuse(Refusal::new(ErrorReason::NotInitialized, sentence).into())
}

/// Serves the pages until `shutdown`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    inbound: Inbound,
    member: watch::Receiver<Option<PoolHandle>>,
    metrics: Arc<Metrics>,
    json: JsonFace,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let server = axum::serve(inbound, router(member, metrics, json, shutdown.clone()))
        .with_graceful_shutdown(shutdown.cancelled_owned());
    server.await
}

/// Sends what the page of metrics shows to the collector of this process, if it has one, until `shutdown`.
pub async fn push(metrics: Arc<Metrics>, shutdown: CancellationToken) {
    let page = || std::future::ready(metrics.encode().ok());
    tessera_otlp::push(page, shutdown).await;
}

/// Whether calls should be sent to this member; the body says why not.
async fn ready(State(pages): State<Pages>) -> (StatusCode, String) {
    let member = pages.member.borrow().clone();
    let judged = member.map_or(Err(NotReady::NotAdmitted), |pool| Readiness::of(pool).check());
    match judged {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}
