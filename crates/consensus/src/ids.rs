//! Names of clusters and members.

use std::fmt;
use std::sync::Arc;

/// Id of a control-plane member. Handed out once from the replicated membership and never used again, not even after
/// the member was removed: a new data folder is a new member (see
/// [`Consensus::add_learner`](crate::Consensus::add_learner)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of a cluster. Members refuse to talk to members of another cluster, so two clusters cannot mix by a wrong
/// address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(Arc<str>);

/// A cluster id that is empty or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster id has 1 to 64 characters, each a letter, a digit, `-`, `_` or `.`; got {got:?}")]
pub struct BadClusterId {
    pub got: String,
}

impl ClusterId {
    /// Checks and takes an id.
    ///
    /// # Errors
    /// [`BadClusterId`] when it is empty, longer than 64 characters or has characters other than letters, digits, `-`,
    /// `_` and `.`.
    pub fn new(id: &str) -> Result<Self, BadClusterId> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if id.is_empty() || id.len() > 64 || !id.chars().all(legal) {
            return Err(BadClusterId { got: id.to_owned() });
        }
        Ok(ClusterId(id.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A control-plane process that keeps a copy of the log: who it is and where it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    pub id: MemberId,
    /// Its name for people; may be empty.
    pub name: String,
    /// `host:port` where the raft service and the API of this member listen.
    pub address: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "member {} at {}", self.id, self.address)
        } else {
            write!(f, "member {} ({}) at {}", self.id, self.name, self.address)
        }
    }
}

/// The identity of a process: the cluster and its member id there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: ClusterId,
    pub member: MemberId,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {} of cluster {}", self.member, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_is_short_and_plain() {
        assert!(ClusterId::new("prod-eu.1").is_ok());
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(ClusterId::new(bad).is_err(), "{bad:?} was taken");
        }
    }
}
