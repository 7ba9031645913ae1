//! Connections to other members, kept open between calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tessera_connection::{BadAddress, ConnectError, KeepAlive, Outbound, Terms};
use tonic::transport::Channel;

/// Connections to one member: one alone is bounded by the one task that serves it.
const PER_MEMBER: usize = 2;

/// The longest time that a member may take to accept a connection; and the silence after which it is probed, and given
/// up when it does not answer.
const TERMS: Terms = {
    let asked_after = Duration::from_secs(2);
    Terms {
        connect_timeout: Some(Duration::from_secs(1)),
        keep_alive: Some(KeepAlive { interval: asked_after, timeout: asked_after, while_idle: true }),
        window_bytes: None,
    }
};

/// Connections by address. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Channels {
    by_address: Arc<DashMap<String, Arc<Pooled>>>,
    outbound: Outbound,
}

#[derive(Debug)]
struct Pooled {
    channels: [Channel; PER_MEMBER],
    next: AtomicUsize,
}

impl Channels {
    /// No connections yet; they are opened by `outbound`.
    #[must_use]
    pub fn new(outbound: Outbound) -> Self {
        Self { by_address: Arc::default(), outbound }
    }

    /// A connection to a member; it is opened by the first call over it.
    ///
    /// # Errors
    /// `BadAddress`.
    pub fn to(&self, address: &str) -> Result<Channel, BadAddress> {
        if let Some(pooled) = self.by_address.get(address) {
            return Ok(pooled.pick());
        }
        let pooled = Arc::new(Pooled::open(address, &self.outbound)?);
        Ok(self.by_address.entry(address.to_owned()).or_insert(pooled).pick())
    }

    /// Opens a connection to a member for one stream of requests alone: a stream whose answers nobody reads holds up
    /// whatever shares its connection.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(super) async fn alone(&self, address: &str) -> Result<Channel, ConnectError> {
        self.outbound.connect(address, &TERMS).await
    }

    /// Drops the connections to a member that failed, so that the next call dials anew.
    pub fn forget(&self, address: &str) {
        self.by_address.remove(address);
    }
}

impl Pooled {
    fn open(address: &str, outbound: &Outbound) -> Result<Self, BadAddress> {
        let channel = || outbound.lazily(address, &TERMS);
        Ok(Self { channels: [channel()?, channel()?], next: AtomicUsize::new(0) })
    }

    fn pick(&self) -> Channel {
        self.channels[self.next.fetch_add(1, Ordering::Relaxed) % PER_MEMBER].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_member_has_one_set_of_connections_until_it_fails() {
        let channels = Channels::default();
        channels.to("127.0.0.1:1").expect("an address");
        channels.to("127.0.0.1:1").expect("an address");
        assert_eq!(channels.by_address.len(), 1);
        channels.forget("127.0.0.1:1");
        assert_eq!(channels.by_address.len(), 0);
        assert!(channels.to("not an address").is_err());
    }
}
