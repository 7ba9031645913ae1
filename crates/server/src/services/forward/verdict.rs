//! The result of an attempt to have a call answered.

use std::error::Error;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, Collected, Full};
use tessera_api::error::reason_of;
use tessera_api::v1::ErrorReason;
use tonic::body::Body;
use tonic::{Code, Status};

/// The next step after an attempt.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The caller gets this.
    Answer(Response<Body>),
    /// The call must be carried again, to whoever leads then.
    Again {
        /// True if this attempt may have been carried out.
        perhaps_done: bool,
    },
}

impl Verdict {
    /// Judges what a member answered.
    pub(super) fn of(response: Response<Body>) -> Self {
        // Refusals come without a body; every other answer passes by after one look at its headers.
        match refused_because(&response) {
            Some(reason) if is_elsewhere(reason) => Self::Again { perhaps_done: false },
            Some(ErrorReason::OutcomeUnknown) => Self::Again { perhaps_done: true },
            _ => Self::Answer(response),
        }
    }

    /// Judges what another member answers, once all of it is here: the caller has heard nothing yet, so an answer that
    /// breaks off in the middle can still be asked for again.
    pub(super) async fn of_remote(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        match body.collect().await {
            Ok(whole) => Self::of(Response::from_parts(parts, as_it_came(whole))),
            Err(error) => {
                tracing::debug!(error = &error as &dyn Error, "the leader's answer broke off");
                Self::Again { perhaps_done: true }
            }
        }
    }

    /// Judges a connection that failed: a call that never left is safe to carry again.
    pub(super) fn of_failure(error: &tonic::transport::Error) -> Self {
        Self::Again { perhaps_done: !is_connect_error(error) }
    }
}

/// A body that says, before it is read, whether it is at its end. A refusal without messages then leaves as one frame
/// of headers that ends the stream, which is the only form of it that gRPC has.
fn as_it_came(whole: Collected<Bytes>) -> Body {
    let trailers = whole.trailers().cloned();
    match (whole.to_bytes(), trailers) {
        (bytes, None) => Body::new(Full::new(bytes)),
        (bytes, Some(trailers)) => Body::new(Full::new(bytes).with_trailers(async { Some(Ok(trailers)) })),
    }
}

fn refused_because(response: &Response<Body>) -> Option<ErrorReason> {
    let refused = |status: &HeaderValue| Code::from_bytes(status.as_bytes()) != Code::Ok;
    response.headers().get("grpc-status").filter(|status| refused(status))?;
    Status::from_header_map(response.headers()).and_then(|status| reason_of(&status))
}

/// Returns whether `reason` means that its sender does not lead. A process that knows of no cluster does not lead
/// either: it may have come in the place of a leader that was lost with its disk.
const fn is_elsewhere(reason: ErrorReason) -> bool {
    use ErrorReason as R;
    matches!(reason, R::NotLeader | R::MemberStarting | R::MemberStopped | R::NotInitialized)
}

/// Returns whether a stream was refused by a process that belongs to no cluster.
pub(super) fn knows_no_cluster(response: &Response<Body>) -> bool {
    refused_because(response) == Some(ErrorReason::NotInitialized)
}

/// Returns whether a member refused this attempt for now, promising that it changed nothing.
pub(super) fn says_not_now(response: &Response<Body>) -> bool {
    let reason = refused_because(response);
    use ErrorReason as R;
    let full = matches!(reason, Some(R::TooManyConnections | R::TooManyRequests | R::TooManyRequestBytes));
    full || matches!(reason, Some(R::NoQuorum | R::Overloaded | R::StorageFull))
}

fn is_connect_error(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http_body::{Body as _, Frame};
    use http_body_util::StreamBody;

    use tessera_connection::{Outbound, Terms};

    use super::*;
    use crate::services::refusal::because;

    fn verdict(status: &Status) -> Option<bool> {
        match Verdict::of(status.clone().into_http::<Body>()) {
            Verdict::Answer(_) => None,
            Verdict::Again { perhaps_done } => Some(perhaps_done),
        }
    }

    #[test]
    fn only_a_lost_leader_is_a_reason_to_carry_a_call_again() {
        let status = |reason| verdict(&because(reason, "for a reason"));
        assert_eq!(status(ErrorReason::NotLeader), Some(false));
        assert_eq!(status(ErrorReason::NotInitialized), Some(false), "whoever it is has taken the leader's place");
        assert_eq!(status(ErrorReason::OutcomeUnknown), Some(true));
        assert_eq!(status(ErrorReason::NoQuorum), None);
        assert_eq!(verdict(&Status::not_found("no such job")), None);
        assert_eq!(verdict(&Status::unavailable("from something in between")), None);
    }

    #[test]
    fn a_refusal_for_now_is_told_from_an_answer() {
        let says = |reason| says_not_now(&because(reason, "for a reason").into_http::<Body>());
        assert!(says(ErrorReason::NoQuorum) && says(ErrorReason::Overloaded) && says(ErrorReason::StorageFull));
        assert!(!says(ErrorReason::JobUnknown));
        assert!(!says_not_now(&Response::new(Body::empty())));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_asked_for_again() {
        let whole = [Ok(Frame::data(Bytes::from_static(b"all"))), Ok(Frame::trailers(HeaderMap::new()))];
        let broken = [Ok(Frame::data(Bytes::from_static(b"ha"))), Err(Status::internal("the connection is gone"))];
        let answer = |frames| Response::new(Body::new(StreamBody::new(futures::stream::iter(frames))));
        let Verdict::Answer(passed) = Verdict::of_remote(answer(whole)).await else { panic!("it came whole") };
        let passed = passed.into_body().collect().await.expect("it is here");
        assert!(passed.trailers().is_some());
        assert_eq!(passed.to_bytes(), "all");
        assert!(matches!(Verdict::of_remote(answer(broken)).await, Verdict::Again { perhaps_done: true }));
    }

    #[tokio::test]
    async fn a_refusal_ends_with_its_headers() {
        let refusal = because(ErrorReason::JobUnknown, "there is no job 7").into_http::<Body>();
        let Verdict::Answer(passed) = Verdict::of_remote(refusal).await else { panic!("it is final") };
        assert!(passed.body().is_end_stream() && passed.headers().contains_key("grpc-status"));
    }

    #[tokio::test]
    async fn a_connection_that_never_came_about_carried_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let mut channel =
            Outbound::default().lazily(&address.to_string(), &Terms::default()).expect("it is an address");
        let call = tower::ServiceExt::ready(&mut channel).await.expect("lazy channels are ready");
        let error = tower::Service::call(call, http::Request::new(Body::empty())).await.expect_err("nobody listens");
        assert!(matches!(Verdict::of_failure(&error), Verdict::Again { perhaps_done: false }), "{error:?}");
    }
}
