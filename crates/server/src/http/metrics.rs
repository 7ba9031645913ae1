//! The metrics page, in the format that the reader asks for.

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tessera_actor::exposition;

use super::Pages;

pub(super) async fn page(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let text = match pages.metrics.encode() {
        Ok(text) => text,
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (kind, text) = exposition(text, accept);
    ([(CONTENT_TYPE, kind)], text).into_response()
}
