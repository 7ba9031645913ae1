//! The address of a member.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tessera_api::fields::host_and_port;

/// `host:port` where a member of the control plane listens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

/// A text that is no address of a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}` is not an address of a member: {problem}; write it as `host:port`, such as `127.0.0.1:7400`")]
pub struct BadAddress {
    pub got: String,
    pub problem: &'static str,
}

impl Address {
    /// The address as `host:port`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host, a name or an address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or(&*self.0, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        // It was read when the address was.
        self.0.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default()
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    /// Takes `host:port`, as people write it: spaces around it and `http://` before it are no part of it.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let refuse = |problem| BadAddress { got: text.to_owned(), problem };
        let trimmed = text.trim();
        if trimmed.starts_with("https://") {
            return Err(refuse("members are spoken to without TLS"));
        }
        let bare = trimmed.strip_prefix("http://").unwrap_or(trimmed).trim_end_matches('/');
        host_and_port(bare).map_err(refuse)?;
        Ok(Self(bare.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_taken_with_or_without_a_scheme() {
        for good in ["127.0.0.1:7400", "http://127.0.0.1:7400", "http://127.0.0.1:7400/", " 127.0.0.1:7400 "] {
            assert_eq!(good.parse::<Address>().map(|a| a.to_string()), Ok("127.0.0.1:7400".to_owned()));
        }
        assert!("[::1]:7400".parse::<Address>().is_ok());
        assert!("member-1.pool.example:7400".parse::<Address>().is_ok());
    }

    #[test]
    fn everything_else_is_refused_with_what_is_wrong() {
        let problem = |text: &str| text.parse::<Address>().map_err(|bad| bad.problem);
        assert_eq!(problem("localhost"), Err("it has no port"));
        assert_eq!(problem(":7400"), Err("it has no host"));
        assert_eq!(problem("localhost:0"), Err("its port is not a number from 1 to 65535"));
        assert_eq!(problem("localhost:99999"), Err("its port is not a number from 1 to 65535"));
        assert_eq!(problem("https://localhost:7400"), Err("members are spoken to without TLS"));
        assert_eq!(problem("two words:7400"), Err("its host has characters that no host name has"));
    }
}
