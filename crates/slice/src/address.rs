//! The address on which a slice server listens.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use crate::Error;

/// A Unix socket of this host, or a TCP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `unix:/run/tessera/slice-7.sock`
    Unix(PathBuf),
    /// `tcp:host:port`; the host may be a name.
    Tcp(String),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("tcp", host)) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                Ok(Self::Tcp(host.into()))
            }
            _ => Err(Error::Address(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in ["unix:/run/slice.sock", "tcp:127.0.0.1:80", "tcp:[::1]:80", "tcp:node-7:4100"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_forms_there_are() {
        for text in ["", "unix:relative", "tcp:host", "tcp:host:many", "http://x"] {
            let refused = text.parse::<Address>().unwrap_err().to_string();
            assert!(refused.contains("unix:/path or tcp:host:port"), "{refused}");
        }
    }
}
