//! The addresses that a node tells others: the one at which members read its output, and the one at which workers of
//! other nodes meet its own.
//!
//! An address of loopback leads everybody back to himself. It is told only in a pool that is on one host altogether; in
//! any other one the node tells the address from which it speaks to the members, and what contradicts that is refused
//! before anything starts.

use std::net::{IpAddr, SocketAddr};

use tessera_client::reach::Scope;

use crate::config::{ConfigError, address_in};

/// An operator's settings for the addresses of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes<'a> {
    /// The address at which members read output.
    pub listen: Option<SocketAddr>,
    /// The address by which members reach `listen`.
    pub advertise: Option<&'a str>,
    /// The host name or address at which workers of other nodes reach those of this one.
    pub worker_host: Option<&'a str>,
}

/// A node's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The address at which members read output; port 0: any.
    pub listen: SocketAddr,
    /// The address by which members reach `listen`; `None`: the agent derives it from its listener.
    pub advertise: Option<String>,
    /// The host name or address at which workers of other nodes reach those of this one.
    pub worker_host: String,
}

impl Reach {
    /// Decides what was left open, for a node that speaks to the members from `source`.
    ///
    /// # Errors
    /// The field with which others would not reach the node, and what to write instead.
    pub fn decide(wishes: Wishes<'_>, source: IpAddr) -> Result<Self, ConfigError> {
        // Only in a pool on one host does loopback lead to this node.
        let leads_here = |scope: Scope| scope == Scope::Others || scope == Scope::SameHost && source.is_loopback();
        let leads_astray = |what: &str| {
            format!(
                "{what} is reached from this host only, and the members are on others: this host speaks to them from {source}"
            )
        };
        let listen = wishes.listen.unwrap_or_else(|| SocketAddr::new(source, 0));
        let listens_at = Scope::of(&listen.ip().to_string());
        let advertise = wishes.advertise.map(|address| address_in("advertise", address)).transpose()?;
        match &advertise {
            Some(address) if !leads_here(Scope::of(address.host())) => {
                let remedy = format!(
                    "write `host:port` as members reach this node (--advertise), such as `{}`",
                    at(source, listen.port())
                );
                return Err(ConfigError::new("advertise", leads_astray(address.as_str()), remedy));
            }
            None if listens_at == Scope::SameHost && !leads_here(listens_at) => {
                let remedy = format!(
                    "listen at `{}` (--listen), or say how members reach this node all the same (--advertise)",
                    at(source, listen.port())
                );
                return Err(ConfigError::new("listen", leads_astray(&listen.to_string()), remedy));
            }
            _ => {}
        }
        let worker_host = match wishes.worker_host {
            Some(host) if !leads_here(Scope::of(host)) => {
                let remedy =
                    format!("name this host as workers of other nodes reach it (--worker-host), such as `{source}`");
                return Err(ConfigError::new("worker_host", leads_astray(host), remedy));
            }
            Some(host) => host.to_owned(),
            None if leads_here(listens_at) => listen.ip().to_string(),
            None => source.to_string(),
        };
        Ok(Self { listen, advertise: advertise.map(|address| address.to_string()), worker_host })
    }
}

/// The address by which members reach what listens at `listener`, unless somebody said it: that of the listener, or the
/// worker host with its port if it listens everywhere.
pub(crate) fn advertised(listener: SocketAddr, worker_host: &str) -> String {
    if !listener.ip().is_unspecified() {
        return listener.to_string();
    }
    of_host(worker_host, listener.port())
}

/// A port of a host that is named by a name or an address.
pub(crate) fn of_host(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => at(address, port),
        Err(_) => format!("{host}:{port}"),
    }
}

fn at(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn lan() -> IpAddr {
        "10.0.1.7".parse().expect("an address")
    }

    fn listening(at: &str) -> Wishes<'static> {
        Wishes { listen: Some(at.parse().expect("an address")), ..Wishes::default() }
    }

    fn told(wishes: Wishes<'_>, source: IpAddr) -> (String, String, String) {
        let reach = Reach::decide(wishes, source).expect("others reach it");
        // The system chooses a port for 0; any other shows as well what is told.
        let listener = SocketAddr::new(reach.listen.ip(), reach.listen.port().max(7410));
        let advertised = reach.advertise.unwrap_or_else(|| advertised(listener, &reach.worker_host));
        (reach.listen.to_string(), advertised, reach.worker_host)
    }

    fn refused(wishes: Wishes<'_>, source: IpAddr) -> (&'static str, String) {
        let error = Reach::decide(wishes, source).expect_err("nobody would reach it");
        (error.field, error.to_string())
    }

    fn three(listen: &str, advertise: &str, host: &str) -> (String, String, String) {
        (listen.to_owned(), advertise.to_owned(), host.to_owned())
    }

    #[test]
    fn a_node_tells_the_address_from_which_it_speaks_to_the_members() {
        assert_eq!(told(Wishes::default(), lan()), three("10.0.1.7:0", "10.0.1.7:7410", "10.0.1.7"));
        assert_eq!(told(Wishes::default(), HERE), three("127.0.0.1:0", "127.0.0.1:7410", "127.0.0.1"));
    }

    #[test]
    fn what_is_said_goes_before_what_is_found() {
        assert_eq!(told(listening("0.0.0.0:7410"), lan()), three("0.0.0.0:7410", "10.0.1.7:7410", "10.0.1.7"));
        assert_eq!(told(listening("10.9.0.1:0"), lan()), three("10.9.0.1:0", "10.9.0.1:7410", "10.9.0.1"));
        let named = Wishes { worker_host: Some("node-a"), ..listening("0.0.0.0:7410") };
        assert_eq!(told(named, lan()), three("0.0.0.0:7410", "node-a:7410", "node-a"));
        let behind = Wishes { advertise: Some("gate:9"), ..listening("127.0.0.1:7410") };
        assert_eq!(told(behind, lan()), three("127.0.0.1:7410", "gate:9", "10.0.1.7"), "a tunnel ends at loopback");
        let spaced = Wishes { advertise: Some(" http://gate:9/ "), ..listening("127.0.0.1:7410") };
        assert_eq!(told(spaced, lan()).1, "gate:9");
        let six = Wishes { worker_host: Some("fd00::7"), ..listening("[::]:7410") };
        assert_eq!(told(six, lan()).1, "[fd00::7]:7410");
    }

    #[test]
    fn addresses_that_lead_others_to_themselves_are_refused_by_name() {
        let (field, text) = refused(listening("127.0.0.1:0"), lan());
        assert!(field == "listen" && text.contains("--listen") && text.contains("10.0.1.7"), "{text}");
        let advertise = |address| Wishes { advertise: Some(address), ..listening("0.0.0.0:7410") };
        assert_eq!(refused(advertise("gate"), lan()).0, "advertise");
        for address in ["127.0.0.1:7410", "localhost:7410", "0.0.0.0:7410"] {
            let (field, text) = refused(advertise(address), lan());
            assert!(field == "advertise" && text.contains("--advertise") && text.contains("`10.0.1.7:7410`"), "{text}");
        }
        let (field, text) = refused(Wishes { worker_host: Some("localhost"), ..Wishes::default() }, lan());
        assert!(field == "worker_host" && text.contains("--worker-host"), "{text}");
        assert_eq!(refused(Wishes { worker_host: Some("0.0.0.0"), ..Wishes::default() }, HERE).0, "worker_host");
    }

    #[test]
    fn loopback_is_enough_where_the_members_are_on_it() {
        let all = Wishes { advertise: Some("localhost:1"), worker_host: Some("localhost"), ..listening("127.0.0.1:1") };
        assert_eq!(told(all, HERE), three("127.0.0.1:1", "localhost:1", "localhost"));
        assert_eq!(told(listening("0.0.0.0:7410"), HERE), three("0.0.0.0:7410", "127.0.0.1:7410", "127.0.0.1"));
    }
}
