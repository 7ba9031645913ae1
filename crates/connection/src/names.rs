//! The names of a process by which it answers over HTTP.
//!
//! A page of a stranger whose name is made to lead to a process is, to a browser, a page of that process, and may read
//! all that it answers. It gives itself away by the name.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// The names by which a process answers, beside addresses and `localhost`. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct KnownNames(Arc<[String]>);

/// A request calls the process by a name that is none of its own.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process is not known by the name {0:?}; ask by its address, or name it in `http_names` of its configuration"
)]
pub struct UnknownName(String);

impl KnownNames {
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Checks that a request calls this process by a name that it knows.
    ///
    /// # Errors
    /// [`UnknownName`].
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), UnknownName> {
        let hosts = request.headers().get_all(HOST);
        let in_hosts = hosts.iter().map(|host| host.to_str().unwrap_or_default());
        // HTTP/2 says it in the address; who says nothing is no browser. Whoever says two may mean either.
        let mut called = in_hosts.chain(request.uri().authority().map(Authority::as_str));
        match called.find(|called| !self.knows(called)) {
            Some(unknown) => Err(UnknownName(name_of(unknown).to_owned())),
            None if hosts.iter().nth(1).is_some() => Err(UnknownName("several at once".to_owned())),
            None => Ok(()),
        }
    }

    fn knows(&self, called: &str) -> bool {
        let name = name_of(called).to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

/// Returns the name in `name`, `name:port`, `[address]` or `[address]:port`.
#[must_use]
pub fn name_of(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = authority.split_once(':').map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(hosts: &[&str]) -> bool {
        let names = KnownNames::of(["Control-1.example".to_owned()]);
        let request = hosts.iter().fold(Request::builder(), |request, host| request.header(HOST, *host));
        names.check(&request.body(()).expect("a request")).is_ok()
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
            assert!(known(&[host]), "{host}");
        }
    }

    #[test]
    fn a_strangers_name_that_leads_here_is_not() {
        for host in ["evil.example:7401", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert!(!known(&[host]), "{host}");
            assert!(!known(&["localhost", host]), "{host}, said second");
        }
        assert!(!known(&["localhost", "localhost"]), "which of them counts, others may see otherwise");
    }

    #[test]
    fn the_name_in_an_address_counts_where_no_header_says_one() {
        let called =
            |address: &str| KnownNames::default().check(&Request::builder().uri(address).body(()).expect("a request"));
        assert!(called("http://127.0.0.1:7401/metrics").is_ok());
        assert!(called("http://evil.example/metrics").is_err());
    }

    #[test]
    fn who_says_no_name_is_no_browser() {
        assert!(KnownNames::default().check(&Request::new(())).is_ok());
    }
}
