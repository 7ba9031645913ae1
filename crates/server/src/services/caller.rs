//! What a call brings along beside its message: who calls, until when, and in which trace.

use tessera_api::metadata;
use tessera_otlp::{span, traceparent};
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::MetadataMap;

use crate::grpc::deadline::Deadline;

/// The actor of a caller that does not say who it is.
const ANONYMOUS: &str = "anonymous";

/// Who calls, until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// A name for people.
    pub actor: String,
    /// When the call must be answered.
    pub deadline: Instant,
}

impl Caller {
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let actor = text_of(request.metadata(), metadata::ACTOR)
            .filter(|actor| !actor.is_empty() && actor.len() <= metadata::ACTOR_LIMIT)
            .unwrap_or(ANONYMOUS)
            .to_owned();
        Self { actor, deadline: deadline_of(request) }
    }
}

pub(crate) fn deadline_of<T>(request: &Request<T>) -> Instant {
    let deadline = request.extensions().get::<Deadline>().copied();
    deadline.unwrap_or_else(|| Deadline::of(request.metadata().as_ref())).0
}

/// The W3C trace context in which a request was sent; empty when there is none.
pub(crate) fn traceparent_of<T>(request: &Request<T>) -> String {
    let text = text_of(request.metadata(), metadata::TRACEPARENT).filter(|text| traceparent::parse(text).is_some());
    text.unwrap_or_default().to_owned()
}

/// The trace context that what is done now for the caller of `request` belongs to: that of this member's span where
/// spans are collected, else the caller's own.
pub(crate) fn context_of<T>(request: &Request<T>) -> String {
    span::current().unwrap_or_else(|| traceparent_of(request))
}

fn text_of<'a>(metadata: &'a MetadataMap, key: &str) -> Option<&'a str> {
    metadata.get(key)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[tokio::test]
    async fn a_caller_without_name_is_anonymous() {
        let mut request = Request::new(());
        assert_eq!(Caller::of(&request).actor, ANONYMOUS);
        request.metadata_mut().insert(metadata::ACTOR, "ada".parse().expect("a header"));
        assert_eq!(Caller::of(&request).actor, "ada");
        let long = "x".repeat(metadata::ACTOR_LIMIT + 1);
        request.metadata_mut().insert(metadata::ACTOR, long.parse().expect("a header"));
        assert_eq!(Caller::of(&request).actor, ANONYMOUS);
    }

    #[test]
    fn only_a_trace_context_is_taken_for_one() {
        let mut request = Request::new(());
        assert_eq!(traceparent_of(&request), "");
        request.metadata_mut().insert(metadata::TRACEPARENT, TRACE.parse().expect("a header"));
        assert_eq!(traceparent_of(&request), TRACE);
        request.metadata_mut().insert(metadata::TRACEPARENT, "00-drop table".parse().expect("a header"));
        assert_eq!(traceparent_of(&request), "");
    }
}
