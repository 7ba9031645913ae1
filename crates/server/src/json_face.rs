//! The API as JSON, which both servers of a member answer: gRPC's, which makes it, and that of the pages.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HOST;
use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_gateway::{Gateway, refuse};

/// The API as JSON, while the services run, for whoever calls this member by a name that it knows. Clones speak of the
/// same.
#[derive(Clone, Debug, Default)]
pub struct JsonFace {
    gateway: Arc<Mutex<Option<Gateway>>>,
    names: Arc<[String]>,
}

/// While it is kept, the API is answered as JSON. The gateway holds what it answers for: without an end, neither would
/// ever be dropped.
#[derive(Debug)]
pub(crate) struct Answering(JsonFace);

impl JsonFace {
    /// A face that answers to `names` beside addresses and `localhost`.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().map(|name| name.to_ascii_lowercase()).collect(), ..Self::default() }
    }

    /// Who answers; `None` while the services do not run.
    pub(crate) fn gateway(&self) -> Option<Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has `gateway` answer for as long as what is returned is kept.
    pub(crate) fn answer_by(&self, gateway: Gateway) -> Answering {
        *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = Some(gateway);
        Answering(self.clone())
    }

    /// Whether a request calls this member by a name that it knows.
    ///
    /// A page of a stranger whose name is made to lead here is, to a browser, a page of this member's own, and may read
    /// all that it answers. It gives itself away by the name.
    pub(crate) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Refusal> {
        let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
        // HTTP/2 says it in the address; who says nothing is no browser.
        let Some(called) = host.or_else(|| request.uri().authority().map(http::uri::Authority::as_str)) else {
            return Ok(());
        };
        let name = name_of(called).to_ascii_lowercase();
        if name == "localhost" || name.parse::<IpAddr>().is_ok() || self.names.contains(&name) {
            return Ok(());
        }
        let sentence = format!(
            "this member is not known by the name {name:?}; ask by its address, or name it in `http_names` of its configuration"
        );
        Err(Refusal::new(ErrorReason::UnknownName, sentence))
    }

    /// Lets those requests through that call this member by a name that it knows.
    pub(crate) async fn guard(State(json): State<Self>, request: Request, next: Next) -> Response {
        match json.check(&request) {
            Ok(()) => next.run(request).await,
            Err(refusal) => refuse(refusal.into()),
        }
    }
}

/// The name in `name`, `name:port`, `[address]` or `[address]:port`.
pub(crate) fn name_of(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = authority.split_once(':').map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

impl Drop for Answering {
    fn drop(&mut self) {
        let gateway = self.0.gateway.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(gateway);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(host: &str) -> bool {
        let json = JsonFace::of(["Control-1.example".to_owned()]);
        let request = http::Request::builder().header(HOST, host).body(()).expect("a request");
        json.check(&request).is_ok()
    }

    #[test]
    fn addresses_and_names_of_its_own_are_known() {
        for host in [
            "127.0.0.1:7401",
            "[::1]:7401",
            "10.0.0.7",
            "localhost:7401",
            "control-1.example:7401",
            "control-1.example.",
        ] {
            assert!(known(host), "{host}");
        }
    }

    #[test]
    fn a_strangers_name_that_leads_here_is_not() {
        for host in ["evil.example:7401", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert!(!known(host), "{host}");
        }
    }

    #[test]
    fn who_says_no_name_is_no_browser() {
        assert!(JsonFace::default().check(&http::Request::new(())).is_ok());
    }
}
