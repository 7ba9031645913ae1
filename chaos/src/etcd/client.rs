//! Putting into etcd.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message;
use tokio::time::{Duration, timeout};
use tonic::transport::{Channel, Endpoint};

use super::wire::kv_client::KvClient;
use super::wire::{PutRequest, RangeRequest};
use crate::readback::Written;
use crate::writer::Writer;

/// Keys begin with this.
const PREFIX: &str = "bench/";
/// The first key after all of these.
const AFTER_PREFIX: &str = "bench0";
/// Keys in one answer.
const PAGE: i64 = 10_000;

/// The properties of puts.
#[derive(Clone, Debug)]
pub struct Put {
    /// The value.
    pub value: Bytes,
    /// Number of different keys that each client uses; `None`: a new key each time.
    pub keys: Option<u64>,
    /// Deadline of one put.
    pub deadline: Duration,
}

/// A put that was acknowledged: the key, and the revision in which it was made.
pub type PutAck = Written;

/// Puts, to the endpoints in turn.
#[derive(Clone, Debug)]
pub struct Putter {
    endpoints: Vec<KvClient<Channel>>,
    put: Put,
}

impl Putter {
    /// With one connection to each of `addresses` (`host:port`), opened when it is needed.
    ///
    /// # Errors
    /// There is no address, or one that is none.
    pub fn new(addresses: &[String], put: Put) -> Result<Self> {
        ensure!(!addresses.is_empty(), "no endpoint of etcd");
        let endpoints = addresses.iter().map(|address| Ok(KvClient::new(channel(address)?))).collect::<Result<_>>()?;
        Ok(Self { endpoints, put })
    }

    fn key(&self, number: u64) -> String {
        match self.put.keys {
            None => format!("{PREFIX}{number:016x}"),
            Some(keys) => format!("{PREFIX}{:08x}{:08x}", number >> 32, (number & 0xffff_ffff) % keys),
        }
    }

    /// All that is there.
    ///
    /// # Errors
    /// The endpoint does not answer.
    pub async fn read_back(&self) -> Result<Vec<Written>> {
        let mut there = Vec::new();
        let mut from = Bytes::from_static(PREFIX.as_bytes());
        loop {
            let range = RangeRequest {
                key: from,
                range_end: Bytes::from_static(AFTER_PREFIX.as_bytes()),
                limit: PAGE,
                keys_only: true,
            };
            let mut endpoint = self.endpoints[0].clone();
            let page = endpoint.range(range).await.context("etcd does not give the keys back")?.into_inner();
            let Some(last) = page.kvs.last() else { return Ok(there) };
            from = [last.key.as_ref(), &[0]].concat().into();
            there.extend(page.kvs.iter().map(|kv| Written {
                name: String::from_utf8_lossy(&kv.key).into_owned(),
                id: u64::try_from(kv.create_revision).unwrap_or_default(),
            }));
            if !page.more {
                return Ok(there);
            }
        }
    }
}

impl Writer for Putter {
    type Ack = PutAck;

    async fn write(&self, number: u64) -> Result<PutAck> {
        let name = self.key(number);
        let request = PutRequest { key: Bytes::from(name.clone()), value: self.put.value.clone() };
        let mut endpoint = self.endpoints[usize::try_from(number).unwrap_or_default() % self.endpoints.len()].clone();
        let answer = timeout(self.put.deadline, endpoint.put(request)).await.context("no answer in time")??;
        let revision = answer.into_inner().header.map_or(0, |header| header.revision);
        Ok(Written { name, id: u64::try_from(revision).unwrap_or_default() })
    }
}

/// A connection to `address`, opened when it is needed and again when it broke.
pub(super) fn channel(address: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).context("not an address")?;
    Ok(endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(2)).connect_lazy())
}

/// The size of value that makes a put as long as `request_bytes` on the wire.
#[must_use]
pub fn size_of_value(request_bytes: usize) -> usize {
    let of = |value: usize| {
        let key = Bytes::from(format!("{PREFIX}{:016x}", 0));
        PutRequest { key, value: vec![b'x'; value].into() }.encoded_len()
    };
    (0..request_bytes).rev().find(|value| of(*value) <= request_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn putter(keys: Option<u64>) -> Putter {
        let put = Put { value: Bytes::from_static(b"x"), keys, deadline: Duration::from_secs(1) };
        let addresses = ["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        Putter::new(&addresses, put).expect("addresses")
    }

    #[tokio::test]
    async fn keys_are_new_each_time_or_used_again() {
        assert_ne!(putter(None).key(1), putter(None).key(1001));
        let again = putter(Some(1000));
        assert_eq!(again.key(1), again.key(1001));
        assert_ne!(again.key(1), again.key(1 << 32 | 1), "clients have keys of their own");
        assert!(PREFIX < AFTER_PREFIX && again.key(1).as_str() < AFTER_PREFIX);
    }

    #[test]
    fn a_put_is_as_long_as_a_submission() {
        for length in [100, 127, 128, 200, 1000] {
            let value = size_of_value(length);
            let key = Bytes::from(format!("{PREFIX}{:016x}", 7));
            let request = PutRequest { key, value: vec![0; value].into() };
            assert!(length - request.encoded_len() <= 1, "{length}: {}", request.encoded_len());
        }
    }
}
