//! The API as JSON over HTTP: `/v1/...` for curl, scripts, and the console.
//!
//! One table ([`routes`]) says which path stands for which gRPC method. Nothing here knows what a method does: a
//! request is put together from path, query and body by the API's own descriptors (`question`), handed to the very
//! stack of services that gRPC calls pass (`call`), and the answer is written by the rules that protocol buffers have
//! for JSON (`answer`). So a call has the same limits, deadlines, way to the leader and refusals whichever face it
//! comes in by. Watches and output come as server-sent events (`events`). [`openapi`] describes all of it, from the
//! same table.

mod answer;
mod call;
mod events;
mod guard;
pub mod openapi;
mod paths;
mod question;
pub mod routes;
mod together;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use prost_reflect::{DescriptorError, MethodDescriptor};
use tessera_api::v1::ErrorReason;
use tessera_api::{Refusal, limits, reflect};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

pub use answer::{not_found, refuse};
use answer::{refuse_as, refuse_method};
pub use guard::Rights;
use paths::{Found, find};
use routes::{ROUTES, Route};
use together::{Key, Together};

/// The stack that answers gRPC calls: the services with every layer that a call over the network passes.
pub type Stack = BoxCloneSyncService<Request<Body>, http::Response<Body>, Infallible>;

/// Beginning of all paths.
pub const PREFIX: &str = "/v1/";

/// The path of the OpenAPI document.
const DESCRIPTION: &str = "/v1/openapi.json";

/// Most bytes of a request's body. JSON is longer than what it stands for, at most about twice where it matters.
const BODY: usize = 2 * limits::REQUEST;

/// Bodies that are received at once; further ones wait.
const BODIES: usize = 16;

/// Bodies that are read at once; further ones wait. What is read takes ten times the room of what was received.
const READERS: usize = 2;

/// KiB of answers that wait for callers to read them; further ones are refused.
const ANSWERS_KIB: usize = 128 << 10;

/// The longest time that a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason for which the API cannot be served as JSON.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The API's descriptors are damaged.
    #[error("the descriptors of the API cannot be read; this build of Tessera is damaged, install it anew")]
    Descriptors(#[from] &'static DescriptorError),
    /// The table names a method that there is not.
    #[error("no service has the method {0}; this build of Tessera is damaged, install it anew")]
    NoMethod(&'static str),
}

/// A route with what the descriptors say of its method.
#[derive(Clone, Debug)]
struct Described {
    route: &'static Route,
    method: MethodDescriptor,
}

/// Answers HTTP requests by calling a stack of services. Clones call the same.
#[derive(Clone, Debug)]
pub struct Gateway {
    described: Arc<[Described]>,
    bodies: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    together: Together,
    stack: Stack,
    description: Arc<str>,
}

impl Gateway {
    /// A gateway to the services of `stack`.
    ///
    /// # Errors
    /// [`GatewayError`], which a test rules out for the descriptors that are compiled in.
    pub fn new(stack: Stack) -> Result<Self, GatewayError> {
        let described = describe()?.into();
        let description = openapi::text()?.into();
        Ok(Self {
            described,
            bodies: Arc::new(Semaphore::new(BODIES)),
            readers: Arc::new(Semaphore::new(READERS)),
            answers: Arc::new(Semaphore::new(ANSWERS_KIB)),
            together: Together::default(),
            stack,
            description,
        })
    }

    /// Answers a request whose path begins with [`PREFIX`].
    pub async fn answer<B>(&self, request: Request<B>, rights: Rights) -> Response
    where
        B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let (parts, body) = request.into_parts();
        if parts.uri.path() == DESCRIPTION {
            return answer::text(&self.description);
        }
        // A question without a body is what HEAD asks for too; whoever serves leaves the body out.
        let verb = if parts.method == Method::HEAD { Method::GET } else { parts.method };
        let (described, bound) = match find(&self.described, &verb, parts.uri.path()) {
            Found::Route(described, bound) => (described, bound),
            Found::OtherVerbs(verbs) => return refuse_method(&verbs),
            Found::Nothing => return not_found(parts.uri.path()),
        };
        if let Err(refused) = guard::check(described.route, &parts.headers, rights) {
            return refused.into_response();
        }
        let body = match described.route.takes_body() {
            true => match self.receive(body).await {
                Ok(body) => Some(body),
                Err(refusal) => return refuse(refusal.into()),
            },
            false => None,
        };
        let asked = question::Asked {
            bound: &bound,
            query: parts.uri.query().unwrap_or_default(),
            body: body.as_deref(),
            last_event: parts.headers.get("last-event-id").and_then(|value| value.to_str().ok()),
        };
        let message = {
            // Nobody closes the semaphore.
            let _place = self.readers.acquire().await;
            question::message(described, &asked)
        };
        match message {
            Ok(message) => self.pass_on(described, message, &parts.headers).await,
            Err(refusal) => refuse(refusal.into()),
        }
    }

    async fn pass_on(
        &self,
        described: &Described,
        message: prost_reflect::DynamicMessage,
        from: &HeaderMap,
    ) -> Response {
        let answered = if described.method.is_server_streaming() {
            call::stream(self.stack.clone(), described, &message, from)
                .await
                .map(|messages| events::answer(described, messages))
        } else {
            let written = match Key::of(described, &message, from) {
                Some(key) => {
                    let (own, described, from) = (self.clone(), described.clone(), from.clone());
                    self.together.ask(key, async move || own.unary(&described, &message, &from).await).await
                }
                None => self.unary(described, &message, from).await,
            };
            written.map(answer::json)
        };
        answered.unwrap_or_else(|status| refuse_as(answer::http_code(status.code()), &status))
    }

    async fn unary(
        &self,
        described: &Described,
        message: &prost_reflect::DynamicMessage,
        from: &HeaderMap,
    ) -> together::Answer {
        let message = call::unary(self.stack.clone(), described, message, from).await?;
        answer::written(&message, &self.answers)
    }

    /// The whole body, of a bounded size and in a bounded time.
    async fn receive<B>(&self, body: B) -> Result<Bytes, Refusal>
    where
        B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
    {
        let received = timeout(PATIENCE, async {
            // Nobody closes the semaphore.
            let _place = self.bodies.acquire().await;
            Limited::new(body, BODY).collect().await
        });
        match received.await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let sentence = format!("the body is larger than {BODY} bytes; ask for less at once");
                Err(Refusal::new(ErrorReason::RequestTooLarge, sentence))
            }
            Ok(Err(error)) => {
                Err(Refusal::new(ErrorReason::ProtocolViolation, format!("the body broke off: {error}; send it again")))
            }
            Err(_) => {
                let sentence = format!("the body did not arrive within {} s; send it again", PATIENCE.as_secs());
                Err(Refusal::new(ErrorReason::DeadlineExceeded, sentence))
            }
        }
    }
}

/// The table with the descriptors of its methods.
fn describe() -> Result<Vec<Described>, GatewayError> {
    let pool = reflect::descriptors()?;
    let with_method = |route: &'static Route| {
        let (service, name) = route.method.split_once('/').ok_or(GatewayError::NoMethod(route.method))?;
        let service = pool.get_service_by_name(&format!("tessera.v1.{service}"));
        let method = service.and_then(|service| service.methods().find(|method| method.name() == name));
        Ok(Described { route, method: method.ok_or(GatewayError::NoMethod(route.method))? })
    };
    ROUTES.iter().map(with_method).collect()
}

/// A refusal that is not the answer of a method.
fn refusal_of(reason: ErrorReason, sentence: impl Into<String>) -> Status {
    Refusal::new(reason, sentence).into()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::future::join_all;
    use futures::{poll, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bodies_are_bounded_in_size_time_and_number() {
        let nobody = tower::service_fn(async |_| Ok(http::Response::new(Body::empty())));
        let gateway = Gateway::new(Stack::new(nobody)).expect("the descriptors were compiled in");
        let of = |bytes| gateway.receive(Full::new(Bytes::from(vec![b' '; bytes])));
        let silent = || gateway.receive(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        assert_eq!(of(BODY).await.map(|body| body.len()).ok(), Some(BODY));
        assert_eq!(of(BODY + 1).await.expect_err("one byte more").reason(), ErrorReason::RequestTooLarge);
        let began = Instant::now();
        let refused = silent().await.expect_err("nothing comes");
        assert_eq!((refused.reason(), began.elapsed()), (ErrorReason::DeadlineExceeded, PATIENCE));

        let mut under_way = pin!(join_all((0..BODIES).map(|_| silent())));
        assert!(poll!(&mut under_way).is_pending());
        let mut further = pin!(of(1));
        assert!(poll!(&mut further).is_pending(), "it waits for a place");
        assert!(under_way.await.iter().all(Result::is_err));
        assert!(further.await.is_ok());
    }
}
