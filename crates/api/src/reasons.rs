//! Refusals that the gRPC framework makes before a call reaches a service, given the reasons that the API documents: a
//! message that cannot be decoded, one that is too large, a method that does not exist.
//!
//! What is served beside the API has no reasons, and answers INTERNAL of its own where it means it: consensus, and the
//! checkpoints of agents. There, and in the services that others specify (health, reflection), only what the decoder
//! refused becomes INVALID_ARGUMENT, which is what it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::error::Refusal;
use crate::limits;
use crate::v1::ErrorReason;

/// Beginning of the paths of the API.
const API: &str = "/tessera.v1.";
/// Beginnings of what the decoder says when it refuses a message, which it calls INTERNAL.
const DECODER: [&str; 4] = [
    "failed to decode Protobuf message",
    "protocol error: received message with",
    "Missing request message",
    "Unexpected EOF decoding stream",
];

/// Gives reasons to refusals without one.
#[derive(Clone, Copy, Debug)]
pub struct ReasonLayer;

impl<S> Layer<S> for ReasonLayer {
    type Service = Reasons<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Reasons { inner }
    }
}

/// A service whose refusals all have a reason.
#[derive(Clone, Debug)]
pub struct Reasons<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Reasons<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let of_api = request.uri().path().starts_with(API);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            Ok(if of_api { with_reason(response) } else { undecoded(response) })
        })
    }
}

/// The refusal in the answer to a call that is no more than a refusal, if it has no reason.
fn without_reason(response: &Response<Body>) -> Option<Status> {
    let headers = response.headers();
    let refused = headers.get("grpc-status").is_some_and(|status| Code::from_bytes(status.as_bytes()) != Code::Ok);
    let bare = refused && !headers.contains_key("grpc-status-details-bin");
    bare.then(|| Status::from_header_map(headers)).flatten()
}

fn with_reason(response: Response<Body>) -> Response<Body> {
    let reasoned = without_reason(&response).and_then(|status| reason_for(&status));
    reasoned.map_or(response, |refusal| Status::from(refusal).into_http())
}

fn undecoded(response: Response<Body>) -> Response<Body> {
    let refused = without_reason(&response).filter(is_undecoded);
    refused.map_or(response, |status| Status::invalid_argument(status.message()).into_http())
}

/// Returns whether the decoder refused a message so.
#[must_use]
pub fn is_undecoded(status: &Status) -> bool {
    status.code() == Code::Internal && DECODER.iter().any(|words| status.message().starts_with(words))
}

/// The refusal that a status without a reason stands for.
#[must_use]
pub fn reason_for(status: &Status) -> Option<Refusal> {
    let said = status.message();
    match status.code() {
        Code::OutOfRange => Some(Refusal::new(
            ErrorReason::RequestTooLarge,
            format!("the request is larger than {} bytes: {said}", limits::REQUEST),
        )),
        Code::Unimplemented => Some(Refusal::new(
            ErrorReason::NotSupported,
            format!("this release does not know how to answer this: {said}; see which release the member runs"),
        )),
        Code::Cancelled | Code::DeadlineExceeded => {
            Some(Refusal::new(ErrorReason::DeadlineExceeded, format!("the call was not answered in time: {said}")))
        }
        // Services never answer so without a reason: the message did not come through the decoder.
        Code::Internal => Some(Refusal::new(
            ErrorReason::ProtocolViolation,
            format!("the request is no message of this method: {said}; use the client of this release"),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::reason_of;

    fn reason(status: Status) -> Option<ErrorReason> {
        let response = with_reason(status.into_http());
        reason_of(&Status::from_header_map(response.headers())?)
    }

    #[test]
    fn what_the_framework_refuses_gets_a_documented_reason() {
        assert_eq!(reason(Status::internal("failed to decode")), Some(ErrorReason::ProtocolViolation));
        assert_eq!(reason(Status::out_of_range("too large")), Some(ErrorReason::RequestTooLarge));
        assert_eq!(reason(Status::unimplemented("")), Some(ErrorReason::NotSupported));
    }

    #[test]
    fn what_has_a_reason_keeps_it() {
        let status = Status::from(Refusal::new(ErrorReason::Internal, "a defect"));
        assert_eq!(reason(status), Some(ErrorReason::Internal));
        assert_eq!(reason(Status::ok("")), None);
    }

    #[test]
    fn beside_the_api_only_what_the_decoder_refused_is_the_callers_fault() {
        let code =
            |status: Status| Status::from_header_map(undecoded(status.into_http()).headers()).map(|said| said.code());
        let garbage = "failed to decode Protobuf message: invalid tag value: 0";
        assert_eq!(code(Status::internal(garbage)), Some(Code::InvalidArgument));
        assert_eq!(code(Status::internal("the disk is full")), Some(Code::Internal));
        assert_eq!(code(Status::out_of_range("it has 3 chunks")), Some(Code::OutOfRange));
    }
}
