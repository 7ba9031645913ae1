//! Metrics and health over HTTP, and signs of life for whoever runs the process.

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tessera_actor::{Address, AskError, Pulse, exposition};
use tessera_connection::Inbound;
use tessera_connection::names::KnownNames;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Meters, View, page};
use crate::shell::Input;

/// The longest time that the node may take to answer; longer means that it is not alive.
const PATIENCE: Duration = Duration::from_secs(1);

/// The page of metrics, for whoever serves it or hands it on.
#[derive(Clone)]
pub(crate) struct Page {
    pub node: Address<Input>,
    pub meters: Meters,
}

impl Page {
    /// Its text, or why the node does not answer.
    pub async fn text(&self) -> Result<String, String> {
        let view = look_at(&self.node).await.map_err(|error| error.to_string())?;
        Ok(page(&view, &self.meters))
    }
}

/// Serves `/metrics`, `/livez` (the node's loop answers) and `/readyz` (the leader knows the node) until `end`.
/// Metrics are told to whoever calls the agent by one of its `names`.
pub async fn serve_http(
    inbound: Inbound,
    node: Address<Input>,
    meters: Meters,
    names: KnownNames,
    end: CancellationToken,
) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(names, guard))
        // Health says nothing of the node's work, and is asked for by any name.
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(Page { node, meters });
    tessera_connection::pages::serve(inbound, router, end).await;
}

/// Sends what the page of metrics shows to the collector of this process, if it has one, until `end`.
pub async fn push_metrics(node: Address<Input>, meters: Meters, end: CancellationToken) {
    let context = Page { node, meters };
    let shown = || {
        let context = context.clone();
        async move { context.text().await.ok() }
    };
    tessera_otlp::push(shown, end).await;
}

/// Lets those requests through that call this agent by a name that it knows.
async fn guard(State(names): State<KnownNames>, request: Request, next: Next) -> Response {
    match names.check(&request) {
        Ok(()) => next.run(request).await,
        Err(unknown) => (StatusCode::FORBIDDEN, format!("{unknown}\n")).into_response(),
    }
}

/// Beats as long as the node's loop answers, until `end`.
pub async fn show_pulse(pulse: Pulse, node: Address<Input>, end: CancellationToken) {
    let alive = || async { look_at(&node).await.is_ok() };
    pulse.keep(alive, end).await;
}

async fn look_at(node: &Address<Input>) -> Result<View, AskError> {
    node.ask(Input::Look, Instant::now() + PATIENCE).await
}

async fn look(context: &Page) -> Result<View, (StatusCode, String)> {
    look_at(&context.node).await.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn metrics(State(context): State<Page>, headers: HeaderMap) -> Response {
    match look(&context).await {
        Ok(view) => {
            let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let (kind, text) = exposition(page(&view, &context.meters), accept);
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn livez(State(context): State<Page>) -> Response {
    look(&context).await.map(|_| "alive\n").into_response()
}

async fn readyz(State(context): State<Page>) -> Response {
    match look(&context).await {
        Ok(view) if view.welcome => "ready\n".into_response(),
        Ok(_) => (StatusCode::SERVICE_UNAVAILABLE, "no leader has welcomed this node\n").into_response(),
        Err(error) => error.into_response(),
    }
}
