//! gRPC is for programs. A web page can have a browser send bytes to any address, without being asked whether it
//! may, and what it sends is no worse a call than another: so what a browser could have sent is refused before
//! anything is read.
//!
//! Browsers speak HTTP/1 to an address without TLS, say which page asks, and cannot say `application/grpc` without
//! asking for permission, which is never given. Calls in JSON have rules of their own (`tessera-gateway`).

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{Request, Response, Version};
use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_gateway::{PREFIX, refuse};
use tonic::body::Body;
use tower::{Layer, Service};

/// Refuses gRPC calls of browsers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramsLayer;

impl<S> Layer<S> for ProgramsLayer {
    type Service = Programs<S>;

    fn layer(&self, inner: S) -> Programs<S> {
        Programs { inner }
    }
}

/// A service that only programs call.
#[derive(Clone, Debug)]
pub(crate) struct Programs<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Programs<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<Ready<Result<Response<Body>, S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match check(&request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(refusal) => Either::Left(ready(Ok(refuse(refusal.into()).map(Body::new)))),
        }
    }
}

/// Checks whether a request may be answered as gRPC.
fn check<B>(request: &Request<B>) -> Result<(), Refusal> {
    if request.uri().path().starts_with(PREFIX) {
        return Ok(());
    }
    let headers = request.headers();
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        let sentence =
            "a web page asked for this; members do not know who looks at it, so use tessera or a program of your own";
        return Err(Refusal::new(ErrorReason::AskedByWebPage, sentence));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if request.version() != Version::HTTP_2 || !kind.starts_with("application/grpc") {
        let sentence = "this is no gRPC call: those come by HTTP/2 as application/grpc; JSON is answered at /v1/";
        return Err(Refusal::new(ErrorReason::ProtocolViolation, sentence));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &str, version: Version, headers: &[(&str, &str)]) -> Option<ErrorReason> {
        let mut request = Request::builder().uri(path).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).expect("a request")).err().map(|refusal| refusal.reason())
    }

    const SUBMIT: &str = "/tessera.v1.JobService/SubmitJob";
    const GRPC: (&str, &str) = ("content-type", "application/grpc+proto");

    #[test]
    fn calls_of_programs_pass() {
        assert_eq!(answer(SUBMIT, Version::HTTP_2, &[GRPC]), None);
    }

    #[test]
    fn what_a_page_can_have_sent_is_no_call() {
        let page = ("origin", "https://example.org");
        for version in [Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(answer(SUBMIT, version, &[GRPC, page]), Some(ErrorReason::AskedByWebPage));
            assert_eq!(
                answer(SUBMIT, version, &[]),
                Some(ErrorReason::ProtocolViolation),
                "a body of bytes has no type"
            );
            assert_eq!(
                answer(SUBMIT, version, &[("content-type", "text/plain")]),
                Some(ErrorReason::ProtocolViolation)
            );
        }
        assert_eq!(answer(SUBMIT, Version::HTTP_11, &[GRPC]), Some(ErrorReason::ProtocolViolation));
    }

    #[test]
    fn json_has_rules_of_its_own() {
        assert_eq!(answer("/v1/jobs", Version::HTTP_11, &[]), None);
    }
}
