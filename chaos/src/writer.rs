//! The write that is measured: durable on a quorum of members once it is acknowledged.

use std::future::Future;

use anyhow::Result;

/// Somebody who can write. Cheap to clone; clones share connections.
pub trait Writer: Clone + Send + Sync + 'static {
    /// Content of an acknowledgement, as far as it is checked afterwards.
    type Ack: Send + 'static;

    /// Makes the write `number`, and waits for its acknowledgement.
    fn write(&self, number: u64) -> impl Future<Output = Result<Self::Ack>> + Send;
}
