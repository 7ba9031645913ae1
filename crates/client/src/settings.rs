//! The settings of a client: its deadlines, its waits between tries, its way of opening connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tessera_connection::{KeepAlive, Outbound, Terms};
use tonic::metadata::MetadataMap;

/// Settings of a client. The defaults suit a LAN and a person who waits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for one call with all its retries.
    pub deadline: Duration,
    /// Time after which a call is given up when no member could be reached at all, not even to say no.
    pub unreachable_after: Duration,
    /// A member that has said nothing for so long after a call was sent is no longer waited for alone: the call is sent
    /// to another member too (it carries the same request id, so it is made once). This is what a member costs that
    /// died without its kernel closing the connection.
    pub hedge_after: Duration,
    /// Longest time for opening a connection.
    pub connect_timeout: Duration,
    /// The interval at which an idle connection is probed.
    pub keepalive_interval: Duration,
    /// A connection whose try is not answered for so long is closed.
    pub keepalive_timeout: Duration,
    /// First wait after all members were tried in vain.
    pub backoff_min: Duration,
    /// Longest wait between such rounds.
    pub backoff_max: Duration,
    /// A watch that brings nothing for so long, not even progress, is opened anew at another member.
    pub watch_silence: Duration,
    /// Largest answer that is accepted, in bytes.
    pub max_message_bytes: usize,
    /// Seed of request ids and jitter; `None`: from the operating system. Set it in simulations only: two clients with
    /// one seed make the same request ids.
    pub seed: Option<u64>,
    /// The way in which connections are opened.
    pub outbound: Outbound,
    /// Headers put on every call.
    pub headers: Headers,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            unreachable_after: Duration::from_secs(3),
            hedge_after: Duration::from_millis(80),
            connect_timeout: Duration::from_secs(2),
            keepalive_interval: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(8),
            backoff_max: Duration::from_millis(500),
            watch_silence: Duration::from_secs(20),
            max_message_bytes: 32 << 20,
            seed: None,
            outbound: Outbound::default(),
            headers: Headers::default(),
        }
    }
}

impl Settings {
    /// On which terms connections to members are kept.
    pub(crate) const fn terms(&self) -> Terms {
        let keep_alive =
            KeepAlive { interval: self.keepalive_interval, timeout: self.keepalive_timeout, while_idle: true };
        Terms { connect_timeout: Some(self.connect_timeout), keep_alive: Some(keep_alive), window_bytes: None }
    }

    /// The limit on the silence of a member that owes an answer on a stream. Such an answer takes a commit at most; the
    /// limit is much longer than a commit takes.
    pub(crate) fn silence(&self) -> Duration {
        self.hedge_after.saturating_mul(25)
    }
}

/// The additions to the headers of every call, such as the trace context of the caller.
#[derive(Clone)]
pub struct Headers(Arc<dyn Fn(&mut MetadataMap) + Send + Sync>);

impl Headers {
    /// Has `add` called for every try of every call.
    pub fn new(add: impl Fn(&mut MetadataMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(add))
    }

    pub(crate) fn add_to(&self, headers: &mut MetadataMap) {
        (self.0)(headers);
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Headers")
    }
}
