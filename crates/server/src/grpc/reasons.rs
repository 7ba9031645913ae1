//! Refusals that the gRPC framework makes before a call reaches a service, given the reasons that the API documents: a
//! message that cannot be decoded, one that is too large, a method that does not exist.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tessera_api::error::Refusal;
use tessera_api::limits;
use tessera_api::v1::ErrorReason;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Beginning of the paths of the API.
const API: &str = "/tessera.v1.";

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
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let of_api = request.uri().path().starts_with(API);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            Ok(if of_api { with_reason(response) } else { response })
        })
    }
}

fn with_reason(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    let refused = headers.get("grpc-status").is_some_and(|status| Code::from_bytes(status.as_bytes()) != Code::Ok);
    if !refused || headers.contains_key("grpc-status-details-bin") {
        return response;
    }
    let reasoned = Status::from_header_map(headers).and_then(|status| reason_for(&status));
    reasoned.map_or(response, |refusal| Status::from(refusal).into_http())
}

/// The refusal that a status without a reason stands for.
pub(crate) fn reason_for(status: &Status) -> Option<Refusal> {
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
    use tessera_api::error::reason_of;

    use super::*;

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
}
