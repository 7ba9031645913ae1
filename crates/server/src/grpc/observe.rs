//! The outermost layer of the server: a span per call, in the trace of whoever called, and the meters of calls.
//!
//! Only methods of the API are observed; what members say to each other is too frequent and has meters of its own.
//! Spans are made only where somebody collects them; the log has a span of its own, for those who look closely.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tessera_api::error::code_name;
use tessera_api::metadata::TRACEPARENT;
use tessera_connection::seated::Arrival;
use tessera_otlp::Span;
use tessera_otlp::span::within;
use tessera_otlp::traceparent::sampled_trace;
use tokio::time::Instant;
use tonic::Code;
use tonic::body::Body;
use tower::{Layer, Service};
use tracing::Instrument;

use super::meter::{CallMeters, MethodMeter};
use super::methods::Methods;

/// Adds spans and meters to a server.
#[derive(Clone, Debug)]
pub struct ObserveLayer {
    methods: Methods,
    meters: CallMeters,
}

impl ObserveLayer {
    #[must_use]
    pub const fn new(methods: Methods, meters: CallMeters) -> Self {
        Self { methods, meters }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe { inner, methods: self.methods.clone(), meters: self.meters.clone() }
    }
}

/// A service whose calls are observed.
#[derive(Clone, Debug)]
pub struct Observe<S> {
    inner: S,
    methods: Methods,
    meters: CallMeters,
}

impl<S> Service<Request<Body>> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let (Some(method), Some(meter)) = (self.methods.get(path), self.meters.get(path)) else {
            return Box::pin(self.inner.call(request));
        };
        let caller = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let span = Span::of_call(path, caller);
        let peer = request.extensions().get::<Arrival>().map(|arrival| tracing::field::display(&arrival.peer));
        let logged = tracing::debug_span!("rpc", service = method.service, method = method.name, peer);
        let mut open = OpenCall { meter: Arc::clone(meter), began: Instant::now(), span, ended: false };
        let answer = {
            let _current = open.span.as_ref().map(Span::enter);
            logged.in_scope(|| self.inner.call(request))
        };
        let observed = async move {
            let response = match within(open.span.as_ref(), answer).await {
                Ok(response) => response,
                Err(error) => {
                    open.end(Code::Unknown);
                    return Err(error);
                }
            };
            let (parts, body) = response.into_parts();
            if let Some(code) = code_in(&parts.headers) {
                open.end(code);
                return Ok(Response::from_parts(parts, body));
            }
            Ok(Response::from_parts(parts, Body::new(ObservedBody { body, open })))
        };
        Box::pin(observed.instrument(logged))
    }
}

/// The code of a call that ended, if headers or trailers carry one.
fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::from_bytes(value.as_bytes()))
}

/// Returns whether a code says that the server is at fault, by the semantic conventions for servers.
const fn is_fault(code: Code) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    matches!(code, Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}

/// A call that goes on. Dropped before its end, it was cancelled.
struct OpenCall {
    meter: Arc<MethodMeter>,
    began: Instant,
    span: Option<Span>,
    ended: bool,
}

impl OpenCall {
    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let duration: Duration = self.began.elapsed();
        let trace = self.span.as_ref().and_then(|span| sampled_trace(&span.traceparent()));
        self.meter.record(code, duration, trace);
        if let Some(span) = self.span.take() {
            span.set("rpc.response.status_code", code_name(code));
            if is_fault(code) {
                span.fail(code.description());
            }
        }
        tracing::debug!(code = ?code, micros = duration.as_micros(), "call ended");
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// A response whose trailers are looked at on their way out.
struct ObservedBody {
    body: Body,
    open: OpenCall,
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(code) = frame.trailers_ref().and_then(code_in) {
                    self.open.end(code);
                }
            }
            Some(Err(status)) => self.open.end(status.code()),
            None => self.open.end(Code::Ok),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_who_is_wrong_is_not_the_servers_fault() {
        assert!(is_fault(Code::Internal) && !is_fault(Code::InvalidArgument));
    }
}
