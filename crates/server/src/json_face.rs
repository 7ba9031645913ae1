//! The API as JSON, which both servers of a member answer: gRPC's, which makes it, and that of the pages.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_connection::names::KnownNames;
use tessera_gateway::{Gateway, refuse};

/// The API as JSON, while the services run, for whoever calls this member by a name that it knows. Clones speak of the
/// same.
#[derive(Clone, Debug, Default)]
pub struct JsonFace {
    gateway: Arc<Mutex<Option<Gateway>>>,
    names: KnownNames,
}

/// While it is kept, the API is answered as JSON. The gateway holds what it answers for: without an end, neither would
/// ever be dropped.
#[derive(Debug)]
pub(crate) struct Answering(JsonFace);

impl JsonFace {
    /// A face that answers to `names` beside addresses and `localhost`.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: KnownNames::of(names), ..Self::default() }
    }

    /// The gateway that answers; `None` while the services do not run.
    pub(crate) fn gateway(&self) -> Option<Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has `gateway` answer for as long as what is returned is kept.
    pub(crate) fn answer_by(&self, gateway: Gateway) -> Answering {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = Some(gateway);
        Answering(self.clone())
    }

    /// Checks that a request calls this member by a name that it knows.
    pub(crate) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Refusal> {
        self.names.check(request).map_err(|unknown| Refusal::new(ErrorReason::UnknownName, unknown.to_string()))
    }

    /// Lets those requests through that call this member by a name that it knows.
    pub(crate) async fn guard(State(json): State<Self>, request: Request, next: Next) -> Response {
        match json.check(&request) {
            Ok(()) => next.run(request).await,
            Err(refusal) => refuse(refusal.into()),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let gateway = self.0.gateway.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(gateway);
    }
}
