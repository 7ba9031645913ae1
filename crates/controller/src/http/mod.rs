//! The member's plain HTTP pages for machines that watch it: metrics, and whether it is alive and ready. They listen on
//! a port of their own, so that they can be read without being able to submit.

mod metrics;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tessera_connection::Inbound;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::pool::PoolHandle;
use crate::services::readiness::{NotReady, Readiness};

/// What the pages show.
#[derive(Clone)]
struct Pages {
    member: watch::Receiver<Option<PoolHandle>>,
    metrics: Arc<Metrics>,
}

/// The pages: `/metrics`, `/livez` and `/readyz`. `member` is empty while the process has no identity: it is alive
/// then, and not ready.
pub fn router(member: watch::Receiver<Option<PoolHandle>>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::page))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .with_state(Pages { member, metrics })
}

/// Serves the pages until `shutdown`.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    inbound: Inbound,
    member: watch::Receiver<Option<PoolHandle>>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let server = axum::serve(inbound, router(member, metrics)).with_graceful_shutdown(shutdown.cancelled_owned());
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
