//! The TCP connections of a tree: only those of which both ends are in it can go on elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The treatment of a tree's TCP connections when it resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connections {
    None,
    /// They go on: both ends of each are in the tree.
    Kept,
    /// Their other ends are elsewhere: the program finds them closed.
    Closed,
}

impl Connections {
    /// Determines the treatment of the TCP connections of these processes, which share the network of `first`.
    ///
    /// # Errors
    /// The sentence that tells why they cannot go on.
    pub fn of(first: i32, processes: &[i32]) -> Result<Self, String> {
        let sockets: BTreeSet<u64> = processes.iter().flat_map(|pid| sockets_of(*pid)).collect();
        let table = |name: &str| fs::read_to_string(format!("/proc/{first}/net/{name}")).unwrap_or_default();
        Self::judge(&sockets, &[table("tcp"), table("tcp6")])
    }

    fn judge(sockets: &BTreeSet<u64>, tables: &[String]) -> Result<Self, String> {
        let lines = tables.iter().flat_map(|table| table.lines());
        let ends: BTreeMap<(SocketAddr, SocketAddr), u64> =
            lines.filter_map(connection).filter(|(_, socket)| sockets.contains(socket)).collect();
        let outside = ends.keys().find(|(here, there)| !ends.contains_key(&(*there, *here)));
        let inside = ends.keys().any(|(here, there)| ends.contains_key(&(*there, *here)));
        match (inside, outside) {
            (false, None) => Ok(Self::None),
            (true, None) => Ok(Self::Kept),
            (false, Some(_)) => Ok(Self::Closed),
            (true, Some((_, there))) => Err(format!(
                "it has TCP connections among its own processes and one to {there}; only one of both kinds can go on"
            )),
        }
    }
}

/// The sockets that a process has open, by their numbers.
fn sockets_of(pid: i32) -> Vec<u64> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let links = open.into_iter().flatten().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// Both ends and the socket of a line of `/proc/net/tcp` that is a connection, and neither listens nor is over.
fn connection(line: &str) -> Option<((SocketAddr, SocketAddr), u64)> {
    const ENDED: [&str; 3] = ["06", "07", "0A"];
    let mut words = line.split_ascii_whitespace().skip(1);
    let (here, there, state) = (end(words.next()?)?, end(words.next()?)?, words.next()?);
    let socket = words.nth(5)?.parse().ok()?;
    (!ENDED.contains(&state)).then_some(((here, there), socket))
}

/// An address as the kernel writes it: words of 32 bits in the machine's own order, and a port.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = address
        .as_bytes()
        .chunks(8)
        .map(|word| Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<_>>()?;
    let address = match words.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        [_, _, _, _] => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a host wrote it: a listener (1), both ends of a connection on loopback (2, 3), one to another host (4), one
    /// that is over (5).
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9C41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  5000        0 1 1 0000000000000000 100 0 0 10 0
   1: 0100007F:9C41 0100007F:D1A2 01 00000000:00000000 00:00000000 00000000  5000        0 2 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:D1A2 0100007F:9C41 01 00000000:00000000 00:00000000 00000000  5000        0 3 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:8888 0200000A:01BB 01 00000000:00000000 00:00000000 00000000  5000        0 4 1 0000000000000000 20 4 30 10 -1
   4: 0100007F:8889 0200000A:01BB 06 00000000:00000000 00:00000000 00000000     0        0 5 1 0000000000000000 20 4 30 10 -1
";
    /// The same connection, of which one end is a socket of version 6.
    const TCP6: &str = "   0: 0000000000000000FFFF00000100007F:9C41 0000000000000000FFFF00000100007F:D1A2 01 00000000:00000000 00:00000000 00000000  5000        0 6 1 0000000000000000 20 4 30 10 -1
";

    fn judged(sockets: &[u64]) -> Result<Connections, String> {
        Connections::judge(&sockets.iter().copied().collect(), &[TCP.to_owned(), TCP6.to_owned()])
    }

    #[test]
    fn connections_go_on_when_both_ends_do() {
        assert_eq!(judged(&[]), Ok(Connections::None));
        assert_eq!(judged(&[1, 5, 99]), Ok(Connections::None), "a listener is no connection");
        assert_eq!(judged(&[1, 2, 3]), Ok(Connections::Kept));
        assert_eq!(judged(&[3, 6]), Ok(Connections::Kept), "in whichever family they are written");
        assert_eq!(judged(&[4]), Ok(Connections::Closed));
        assert_eq!(judged(&[2]), Ok(Connections::Closed), "the other end is another worker's");
        assert!(judged(&[2, 3, 4]).expect_err("one of both kinds").contains("10.0.0.2:443"));
    }
}
