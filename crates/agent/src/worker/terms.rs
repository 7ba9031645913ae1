//! The terms on which a worker may run: fence, lease, and how it is told to stop.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tessera_ledger::Epoch;

use crate::boot::BootTime;

/// A term of the control plane's consensus: whoever leads in a higher one has deposed those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Orders with an older fence than the highest seen are refused (law L2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence {
    pub term: Term,
    #[serde(with = "epoch_number")]
    pub epoch: Epoch,
}

impl Fence {
    /// Returns whether a message that carries `other` comes from an older leader or an older allocation.
    #[must_use]
    pub fn refuses(self, other: Self) -> bool {
        other.term < self.term || other.epoch < self.epoch
    }

    /// The higher of both in each part.
    #[must_use]
    pub fn raised_to(self, other: Self) -> Self {
        Self { term: self.term.max(other.term), epoch: self.epoch.max(other.epoch) }
    }
}

mod epoch_number {
    use serde::{Deserialize, Deserializer, Serializer};
    use tessera_ledger::Epoch;

    pub fn serialize<S: Serializer>(epoch: &Epoch, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(epoch.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Epoch, D::Error> {
        u64::deserialize(deserializer).map(Epoch)
    }
}

/// Until when work may run: the agent's own clock, counted from when it sent the heartbeat that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub stop_at: BootTime,
    pub kill_at: BootTime,
}

impl Lease {
    /// The same lease, or one that ends at `latest` with as much time between the word to stop and the kill.
    #[must_use]
    pub fn cut_off_at(self, latest: BootTime) -> Self {
        let beyond = latest.until(self.kill_at);
        Self { stop_at: self.stop_at.before(beyond), kill_at: self.kill_at.before(beyond) }
    }

    /// The lease with the later deadlines: permissions once given stay given, in whatever order they arrive.
    #[must_use]
    pub fn extended_by(self, other: Self) -> Self {
        Self { stop_at: self.stop_at.max(other.stop_at), kill_at: self.kill_at.max(other.kill_at) }
    }
}

/// A signal by its name, such as `SIGTERM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StopSignal(pub Signal);

impl Default for StopSignal {
    fn default() -> Self {
        Self(Signal::SIGTERM)
    }
}

impl FromStr for StopSignal {
    type Err = NotASignal;

    /// Takes `SIGTERM` and `TERM`, in any case.
    fn from_str(text: &str) -> Result<Self, NotASignal> {
        let name = text.trim().to_ascii_uppercase();
        let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
        name.parse().map(Self).map_err(|_| NotASignal(text.to_owned()))
    }
}

impl TryFrom<String> for StopSignal {
    type Error = NotASignal;

    fn try_from(text: String) -> Result<Self, NotASignal> {
        text.parse()
    }
}

impl From<StopSignal> for String {
    fn from(signal: StopSignal) -> Self {
        signal.0.as_str().to_owned()
    }
}

/// A text that names no signal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a signal; use a name such as SIGTERM or SIGUSR1")]
pub struct NotASignal(String);

/// The steps of a worker's stop: a signal, then, after a while, everything left of it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct StopPolicy {
    /// Sent first.
    pub signal: StopSignal,
    /// Time until everything left is killed; zero: at once.
    pub grace: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_refuses_older_terms_and_older_epochs() {
        let fence = |term, epoch| Fence { term: Term(term), epoch: Epoch(epoch) };
        assert!(!fence(2, 5).refuses(fence(2, 5)));
        assert!(!fence(2, 5).refuses(fence(3, 5)));
        assert!(fence(2, 5).refuses(fence(1, 9)), "an old leader, however new its allocation");
        assert!(fence(2, 5).refuses(fence(3, 4)), "an old allocation, however new its leader");
        assert_eq!(fence(2, 5).raised_to(fence(3, 4)), fence(3, 5));
    }

    #[test]
    fn signals_are_known_by_name() {
        assert_eq!("SIGUSR1".parse(), Ok(StopSignal(Signal::SIGUSR1)));
        assert_eq!("term".parse(), Ok(StopSignal(Signal::SIGTERM)));
        assert!("SIGNOTHING".parse::<StopSignal>().is_err());
    }
}
