//! From where a host is reached: what its own addresses are worth to others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

use crate::address::Address;

/// An address of nobody (TEST-NET-1), by which the system tells which way it would go to strangers; nothing is sent
/// there.
const STRANGER: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// The set of callers that reach a host under a name or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nobody: `0.0.0.0` and `::` are places to listen at, not to be reached at.
    Nobody,
    /// Only processes of the same host: everybody else would reach himself.
    SameHost,
    /// Others, as far as their network goes.
    Others,
}

impl Scope {
    /// Returns the scope from which this host name or address is reached.
    #[must_use]
    pub fn of(host: &str) -> Self {
        match host.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => Self::Nobody,
            Ok(address) if address.is_loopback() => Self::SameHost,
            Err(_) if host == "localhost" || host.ends_with(".localhost") => Self::SameHost,
            Ok(_) | Err(_) => Self::Others,
        }
    }
}

/// The own address from which this host speaks to members: the one under which they reach it, where no address is
/// translated in between. One that other hosts reach goes before one of loopback. Nothing is sent.
///
/// # Errors
/// When no member's name is known, or no way leads to any of them.
pub fn source_towards(members: &[Address]) -> io::Result<IpAddr> {
    let mut found = Err(io::Error::new(io::ErrorKind::InvalidInput, "no member is named"));
    for member in members {
        match source_towards_member(member) {
            Ok(source) if !source.is_loopback() => return Ok(source),
            Ok(source) => found = Ok(source),
            Err(error) if found.is_err() => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

/// The own address from which this host speaks to the world, if a way leads there.
#[must_use]
pub fn source_towards_strangers() -> Option<IpAddr> {
    let (address, port) = STRANGER;
    source_of(address, port).ok().filter(|source| !source.is_loopback())
}

fn source_towards_member(member: &Address) -> io::Result<IpAddr> {
    let mut places = (member.host(), member.port()).to_socket_addrs()?;
    let source = places.find_map(|place| source_of(place.ip(), place.port()).ok());
    source.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NetworkUnreachable, format!("no way leads to {member} from this host"))
    })
}

/// Connecting a datagram socket makes the system choose the way, and with it the source address.
fn source_of(address: IpAddr, port: u16) -> io::Result<IpAddr> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, port))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_an_address_is_told_from_it() {
        assert_eq!(["0.0.0.0", "::"].map(Scope::of), [Scope::Nobody; 2]);
        assert_eq!(["127.0.0.1", "127.1.2.3", "::1", "localhost"].map(Scope::of), [Scope::SameHost; 4]);
        assert_eq!(["10.0.0.1", "fd00::1", "node-a", "localhost.example"].map(Scope::of), [Scope::Others; 4]);
    }

    #[test]
    fn a_member_of_the_same_host_is_spoken_to_from_there() {
        let member = |text: &str| text.parse::<Address>().expect("an address");
        let source = source_towards(&[member("127.0.0.1:7400")]).expect("loopback is always there");
        assert!(source.is_loopback());
        let nowhere = source_towards(&[member("no-such-host.invalid:7400")]).expect_err("nobody knows it");
        assert_ne!(nowhere.kind(), io::ErrorKind::InvalidInput);
        let known = source_towards(&[member("no-such-host.invalid:7400"), member("127.0.0.1:7400")]);
        assert!(known.is_ok_and(|source| source.is_loopback()), "one that is known is enough");
        assert!(source_towards(&[]).is_err());
    }

    #[test]
    fn the_parts_of_an_address_are_those_that_were_written() {
        let parts = |text: &str| text.parse::<Address>().map(|it| (it.host().to_owned(), it.port())).ok();
        assert_eq!(parts("node-a:7400"), Some(("node-a".to_owned(), 7400)));
        assert_eq!(parts("[fd00::1]:1"), Some(("fd00::1".to_owned(), 1)));
    }
}
