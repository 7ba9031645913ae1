//! A unary call taken off the wire whole, so that it can be carried more than once.

use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use prost::Message;
use tessera_api::{limits, metadata};
use tessera_connection::arriving::PREFIX;
use tessera_consensus::MemberId;
use tessera_otlp::span;
use tokio::time::timeout_at;
use tonic::Status;
use tonic::body::Body;

use crate::grpc::deadline::{Deadline, TIMEOUT_HEADER, timeout_value};
use crate::services::refusal;

/// The one call that does something else when it is carried a second time.
const TRANSFER_LEADERSHIP: &str = "/tessera.v1.ClusterService/TransferLeadership";

/// The common part of all mutations.
#[derive(Clone, PartialEq, Message)]
struct Keyed {
    #[prost(string, tag = "1")]
    request_id: String,
}

/// A call with its whole body.
#[derive(Debug)]
pub(super) struct Envelope {
    parts: Parts,
    body: Bytes,
    pub(super) deadline: Deadline,
    /// True if carrying the call twice does no harm.
    pub(super) repeatable: bool,
}

impl Envelope {
    /// Takes in a call. A mutation is given with a new request id, which it gets when it has none.
    ///
    /// # Errors
    /// When the body is too large, breaks off, or does not come before the deadline.
    pub(super) async fn receive(
        request: Request<Body>,
        deadline: Deadline,
        new_id: Option<impl FnOnce() -> String>,
    ) -> Result<Self, Status> {
        let (mut parts, body) = request.into_parts();
        let whole = timeout_at(deadline.0, Limited::new(body, limits::REQUEST + PREFIX).collect()).await;
        let body = match whole {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(refusal::request_too_large()),
            // What was refused on the way says so itself.
            Ok(Err(error)) => {
                let refused = error.downcast::<Status>().map(|status| *status);
                return Err(refused.unwrap_or_else(|error| refusal::broken_request(error.as_ref())));
            }
            Err(_) => return Err(refusal::request_came_too_slowly()),
        };
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.extensions.insert(deadline);
        let (body, repeatable) = match new_id {
            Some(new_id) => with_request_id(body, new_id),
            None => (body, true),
        };
        // Carried again, it would ask the new leader to hand leadership on.
        let repeatable = repeatable && parts.uri.path() != TRANSFER_LEADERSHIP;
        Ok(Self { parts, body, deadline, repeatable })
    }

    /// Returns whether another member forwarded the call.
    pub(super) fn is_forwarded(&self) -> bool {
        is_forwarded(&self.parts.headers)
    }

    /// The call for the services of this member.
    pub(super) fn for_here(&self) -> Request<Body> {
        Request::from_parts(self.parts.clone(), Body::new(Full::new(self.body.clone())))
    }

    /// The call for another member: marked, and with what is left of the deadline.
    pub(super) fn for_there(&self, by: MemberId) -> Request<Body> {
        let mut request = self.for_here();
        let headers = request.headers_mut();
        mark(headers, by);
        headers.insert(TIMEOUT_HEADER, timeout_value(self.deadline.left()));
        request
    }
}

/// Returns whether another member forwarded a call.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(metadata::FORWARDED_BY)
}

/// Marks a call as forwarded.
pub(super) fn mark(headers: &mut HeaderMap, by: MemberId) {
    headers.insert(metadata::FORWARDED_BY, HeaderValue::from(by.0));
    // What the leader does becomes part of what this member does for the caller.
    if let Some(traceparent) = span::current().and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(metadata::TRACEPARENT, traceparent);
    }
}

/// The body with a request id in it, a new one if there is none, and whether it has one. What cannot be understood is
/// left to the services to refuse.
fn with_request_id(body: Bytes, new_id: impl FnOnce() -> String) -> (Bytes, bool) {
    let Some(message) = uncompressed_message(&body) else { return (body, false) };
    match Keyed::decode(message) {
        Ok(keyed) if !keyed.request_id.is_empty() => (body, true),
        Ok(_) => (prefixed(&Keyed { request_id: new_id() }, message), true),
        Err(_) => (body, false),
    }
}

/// The only message of a body, when it is whole and not compressed.
fn uncompressed_message(body: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = body.split_first_chunk::<PREFIX>()?;
    let [compressed, length @ ..] = prefix;
    let whole = usize::try_from(u32::from_be_bytes(*length)).ok() == Some(message.len());
    (*compressed == 0 && whole).then_some(message)
}

/// The message with another one merged into it: to put one encoding before the other is how protobuf merges.
fn prefixed(first: &Keyed, message: &[u8]) -> Bytes {
    let length = first.encoded_len() + message.len();
    let mut body = BytesMut::with_capacity(PREFIX + length);
    body.put_u8(0);
    body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    body.put_slice(&first.encode_to_vec());
    body.put_slice(message);
    body.freeze()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tessera_api::v1::{CancelJobRequest, SubmitJobRequest};
    use tokio::time::Instant;
    use tonic::Code;

    use super::*;

    fn framed(message: &impl Message) -> Bytes {
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(u32::try_from(message.encoded_len()).expect("small"));
        body.put_slice(&message.encode_to_vec());
        body.freeze()
    }

    fn new_id() -> String {
        "new".to_owned()
    }

    fn cancel(body: &Bytes) -> CancelJobRequest {
        CancelJobRequest::decode(uncompressed_message(body).expect("one message")).expect("a message")
    }

    #[test]
    fn a_request_id_is_kept_and_a_missing_one_is_made() {
        let given = framed(&CancelJobRequest { request_id: "mine".to_owned(), job_id: 7 });
        assert_eq!(with_request_id(given.clone(), new_id), (given, true));

        let (body, repeatable) =
            with_request_id(framed(&CancelJobRequest { request_id: String::new(), job_id: 7 }), new_id);
        let made = cancel(&body);
        assert!(repeatable);
        assert_eq!((made.job_id, made.request_id.as_str()), (7, "new"));
    }

    #[test]
    fn what_cannot_be_understood_is_passed_on_and_not_repeated() {
        let mut compressed = BytesMut::from(&framed(&SubmitJobRequest::default())[..]);
        compressed[0] = 1;
        for body in [compressed.freeze(), Bytes::from_static(b"\0\0"), Bytes::from_static(b"\0\0\0\0\x02\x0a\xff")] {
            assert_eq!(with_request_id(body.clone(), new_id), (body, false));
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused_with_its_reason() {
        let huge = Body::new(Full::new(Bytes::from(vec![0; limits::REQUEST + PREFIX + 1])));
        let deadline = Deadline(Instant::now() + Duration::from_secs(5));
        let refused = Envelope::receive(Request::new(huge), deadline, Some(new_id)).await.expect_err("it is too large");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
}
