//! The name of a worker: one rank of one allocation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tessera_ledger::{AllocationId, Epoch, Rank};

/// One worker of one allocation. It is started at most once: whoever has seen this name never starts it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerId {
    pub allocation: AllocationId,
    /// The index of the log entry that made it: fences older ones.
    pub epoch: Epoch,
    /// The worker among the allocation's workers.
    pub rank: Rank,
}

impl fmt::Display for WorkerId {
    /// `ALLOCATION-EPOCH-RANK`, which is also the name of its folder, and with the node's identity that of its control
    /// group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.allocation.0, self.epoch.0, self.rank.0)
    }
}

/// A text that is not the name of a worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a worker; it should read `ALLOCATION-EPOCH-RANK`")]
pub struct NotAWorkerId(String);

impl FromStr for WorkerId {
    type Err = NotAWorkerId;

    fn from_str(text: &str) -> Result<Self, NotAWorkerId> {
        let parse = || {
            let mut parts = text.split('-');
            let allocation = AllocationId(parts.next()?.parse().ok()?);
            let epoch = Epoch(parts.next()?.parse().ok()?);
            let rank = Rank(parts.next()?.parse().ok()?);
            let id = Self { allocation, epoch, rank };
            // `+1-2-3` and `01-2-3` parse as numbers, but only one text names a worker.
            (parts.next().is_none() && id.to_string() == text).then_some(id)
        };
        parse().ok_or_else(|| NotAWorkerId(text.to_owned()))
    }
}

impl TryFrom<String> for WorkerId {
    type Error = NotAWorkerId;

    fn try_from(text: String) -> Result<Self, NotAWorkerId> {
        text.parse()
    }
}

impl From<WorkerId> for String {
    fn from(id: WorkerId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_text_names_a_worker() {
        let id = WorkerId { allocation: AllocationId(7), epoch: Epoch(42), rank: Rank(1) };
        assert_eq!(id.to_string(), "7-42-1");
        assert_eq!("7-42-1".parse(), Ok(id));
        for wrong in ["", "7", "7-42", "7-42-1-0", "+7-42-1", "07-42-1", "7-42-x", "../etc", "7-42--1"] {
            assert!(wrong.parse::<WorkerId>().is_err(), "{wrong}");
        }
    }
}
