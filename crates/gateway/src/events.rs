//! Streams as server-sent events: each message is an event whose id takes the stream up again after it.
//!
//! A stream that is over says so with an event `end`, so that a browser does not ask again; one that is cut says why
//! with an event `refused`.

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt, future, stream};
use http::{HeaderName, HeaderValue};
use prost_reflect::DynamicMessage;
use tonic::{Status, Streaming};

use crate::answer::{json_of, status_json};
use crate::routes::Resume;
use crate::{Described, call};

/// Asks proxies not to keep events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// The answer that a stream is.
pub(crate) fn answer(described: &Described, messages: Streaming<Bytes>) -> Response {
    let sent = Sse::new(events(described.clone(), messages)).keep_alive(KeepAlive::default());
    ([UNBUFFERED], sent).into_response()
}

fn events(
    described: Described,
    messages: Streaming<Bytes>,
) -> impl Stream<Item = Result<Event, Infallible>> + Send + 'static {
    let last = stream::once(future::ready(Event::default().event("end").data("{}")));
    let told = messages.map(move |message| message.and_then(|bytes| event(&described, bytes)));
    // After a refusal nothing follows, not even the end.
    told.chain(last.map(Ok)).scan(false, |over, told| {
        let event = match told {
            _ if *over => None,
            Ok(event) => Some(event),
            Err(status) => {
                *over = true;
                Some(Event::default().event("refused").data(status_json(&status).to_string()))
            }
        };
        future::ready(event.map(Ok))
    })
}

fn event(described: &Described, bytes: Bytes) -> Result<Event, Status> {
    let message = call::decode(described, bytes)?;
    let event = Event::default().data(json_of(&message)?);
    Ok(match id(described.route.resume, &message) {
        Some(id) => event.id(id),
        None => event,
    })
}

/// The id from which the stream can be resumed after a message; `None` where the stream cannot be resumed.
fn id(resume: Resume, message: &DynamicMessage) -> Option<String> {
    match resume {
        Resume::Never => None,
        Resume::Token => {
            let token = message.get_field_by_name("resume_token")?.as_str()?.to_owned();
            (!token.is_empty()).then_some(token)
        }
        Resume::Offset => {
            let offset = message.get_field_by_name("offset")?.as_u64()?;
            let data = message.get_field_by_name("data")?.as_bytes()?.len();
            Some(offset.saturating_add(u64::try_from(data).unwrap_or(u64::MAX)).to_string())
        }
    }
}
