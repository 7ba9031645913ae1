//! The metrics pages, in the format that the reader asks for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tessera_actor::exposition;

use tessera_api::v1;
use tessera_controller::metrics::jobs::{self, JobsWanted, MOST_JOBS};
use tessera_ledger::JobState;
use tessera_ledger::wire::enum_from_wire;

use super::Pages;

pub(super) async fn page(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    shown(pages.metrics.encode(), &headers)
}

/// Parses the selection of jobs in the query of an address, or says what is wrong with it.
fn wanted(query: &str) -> Result<JobsWanted, String> {
    let mut wanted = JobsWanted::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "queue" => wanted.queue = value.into_owned(),
            "submitter" => wanted.submitter = value.into_owned(),
            "state" => {
                let unknown = || format!("{value} is no state of a job; `running` is one\n");
                wanted.state = Some(state_named(&value).ok_or_else(unknown)?);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST_JOBS).contains(limit));
                wanted.limit = limit.ok_or_else(|| format!("limit must be from 1 to {MOST_JOBS}, is {value}\n"))?;
            }
            "min_age_seconds" => {
                let seconds =
                    value.parse().map_err(|_| format!("min_age_seconds must be a whole number, is {value}\n"))?;
                wanted.min_age = Duration::from_secs(seconds);
            }
            _ => {
                let known = "queue, submitter, state, min_age_seconds and limit";
                return Err(format!("{name} is not known here; {known} are\n"));
            }
        }
    }
    Ok(wanted)
}

fn state_named(word: &str) -> Option<JobState> {
    let named = v1::JobState::from_str_name(&format!("JOB_STATE_{}", word.to_ascii_uppercase()))?;
    enum_from_wire("state", named.into()).ok().flatten()
}

/// The page that tells job by job.
pub(super) async fn jobs(State(pages): State<Pages>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let pool = match pages.pool() {
        Ok(pool) => pool,
        Err(refusal) => return tessera_gateway::refuse(refusal.into()),
    };
    let wanted = match wanted(query.as_deref().unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(problem) => return (StatusCode::BAD_REQUEST, problem).into_response(),
    };
    // One at a time, and away from the threads that serve: there may be many jobs. Nobody closes the semaphore.
    let place = Arc::clone(&pages.detail).acquire_owned().await;
    let make = move || {
        let _place = place;
        jobs::page(&pool.view().current(), pool.telemetry(), pool.log_time(), &wanted)
    };
    match tessera_consensus::try_blocking(make).await {
        Ok(text) => shown(text, &headers),
        Err(error) => {
            tracing::error!(%error, "the page of jobs could not be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn shown(text: Result<String, std::fmt::Error>, headers: &HeaderMap) -> Response {
    let text = match text {
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
