//! The pool at a glance: one row of numbers for each card, in columns, and then what changes of them.
//!
//! It is for whoever draws all cards at once, as the console does. The lists of the API say far more of each card, and
//! would be a hundred times as much for a pool of 100,000 cards. `/v1/map` answers once; `/v1/map:watch` is a stream of
//! server-sent events that begins with the whole map (`map`), then sends the rows that changed (`changed`), and the
//! whole map again whenever nodes or cards come or go. Both show what this member has applied.

mod feed;
mod rows;

use std::convert::Infallible;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, future, stream};
use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

pub(super) use self::feed::Feed;
use super::Pages;

/// The whole map, once.
pub(super) async fn whole(State(pages): State<Pages>) -> Response {
    let pool = match pages.pool() {
        Ok(pool) => pool,
        Err(refusal) => return tessera_gateway::refuse(refusal.into()),
    };
    match pages.feed.join(&pool).await {
        Ok((whole, _)) => ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], Bytes::from_owner(whole))
            .into_response(),
        Err(error) => failed(&error),
    }
}

/// The whole map, then what changes of it.
pub(super) async fn watch(State(pages): State<Pages>) -> Response {
    let (pool, place) = match pages.pool().and_then(|pool| Ok((pool, pages.stream()?))) {
        Ok(both) => both,
        Err(refusal) => return tessera_gateway::refuse(refusal.into()),
    };
    let (whole, changes) = match pages.feed.join(&pool).await {
        Ok(joined) => joined,
        Err(error) => return failed(&error),
    };
    let first = Event::default().event(feed::WHOLE_MAP).data(whole.text());
    // Whoever reads too slowly is cut; its browser asks again, and begins anew.
    let cut = |told: &Result<_, BroadcastStreamRecvError>| future::ready(told.is_ok());
    let changes = BroadcastStream::new(changes).take_while(cut).filter_map(|told| future::ready(told.ok()));
    let changes = changes.map(|(name, data): feed::Told| Event::default().event(name).data(data.text()));
    let events = stream::once(future::ready(first)).chain(changes).take_until(pages.end.clone().cancelled_owned());
    let events = events.map(move |event| {
        let _kept_until_the_stream_ends = &place;
        Ok::<_, Infallible>(event)
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn failed(error: &tokio::task::JoinError) -> Response {
    let sentence = format!("the map could not be made: {error}; report it");
    tessera_gateway::refuse(Refusal::new(ErrorReason::Internal, sentence).into())
}
