//! The context of a call beside its message: the caller, the deadline, and the trace.

use tessera_api::fields::line;
use tessera_api::{Refusal, metadata};
use tessera_ledger::wire::FieldError;
use tessera_otlp::{span, traceparent};
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::MetadataMap;

use crate::grpc::deadline::Deadline;

/// The actor of a caller that does not say who it is.
const ANONYMOUS: &str = "anonymous";

/// The caller and the deadline of its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// A name for people.
    pub actor: String,
    /// The moment by which the call must be answered.
    pub deadline: Instant,
}

impl Caller {
    /// # Errors
    /// A [`Refusal`] when who calls is not said as it can be kept.
    pub(crate) fn of<T>(request: &Request<T>) -> Result<Self, Refusal> {
        let actor = request.metadata().get(metadata::ACTOR).map_or(Ok(""), |actor| {
            let text = std::str::from_utf8(actor.as_encoded_bytes());
            text.map_err(|_| FieldError::invalid(metadata::ACTOR, "must be text in UTF-8"))
        })?;
        line(metadata::ACTOR, actor)?;
        let actor = if actor.is_empty() { ANONYMOUS } else { actor }.to_owned();
        Ok(Self { actor, deadline: deadline_of(request) })
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
    use tessera_api::limits;

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[tokio::test]
    async fn a_caller_without_name_is_anonymous() {
        let mut request = Request::new(());
        let actor = |request: &Request<()>| Caller::of(request).map(|caller| caller.actor);
        assert_eq!(actor(&request).expect("nobody is somebody, too"), ANONYMOUS);
        request.metadata_mut().insert(metadata::ACTOR, "ada".parse().expect("a header"));
        assert_eq!(actor(&request).expect("a name"), "ada");
        let mut named = |name: &[u8]| {
            request.metadata_mut().insert(metadata::ACTOR, name.try_into().expect("a header"));
            actor(&request)
        };
        assert_eq!(named("Zoë 训练".as_bytes()).expect("a name"), "Zoë 训练");
        let turned = "\u{202e}ada".as_bytes();
        for unkept in [&[b'x'; limits::NAME + 1][..], b"Zo\xeb", b"a\tda", "a\u{85}da".as_bytes(), turned] {
            let refused = named(unkept).expect_err("it cannot be kept").to_string();
            assert!(refused.contains(metadata::ACTOR), "{refused}");
        }
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
