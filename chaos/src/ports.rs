//! Free ports on loopback.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result};

/// As many free addresses as asked for, all different. They are bound and let go again: members keep theirs over
/// restarts, so that somebody must choose them beforehand.
///
/// # Errors
/// No port is free.
pub fn free(count: usize) -> Result<Vec<SocketAddr>> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()
        .context("no free port on loopback")?;
    let addresses: BTreeSet<SocketAddr> =
        held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>().context("a listener has no address")?;
    Ok(addresses.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_different_and_can_be_bound() {
        let addresses = free(8).expect("free");
        assert_eq!(addresses.len(), 8);
        for address in addresses {
            TcpListener::bind(address).expect("free");
        }
    }
}
