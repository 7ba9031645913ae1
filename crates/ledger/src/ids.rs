//! Names of things. All are handed out by the ledger itself, in log order, and never used twice.

use std::fmt;
use std::time::Duration;

use crate::units::LogTime;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A node, numbered from 0 in the order of registration (P3, P8). Shown as a number, so that nobody takes it for
    /// the node's name, which only the ledger knows.
    NodeId(u32), "node number "
);
id!(
    /// A job, numbered from 1 in the order of submission.
    JobId(u64), ""
);
id!(
    /// An allocation of virtual cards to an attempt.
    AllocationId(u64), "allocation-"
);
id!(
    /// A move of a job in progress.
    MoveId(u64), "move-"
);
id!(
    /// The rank of a worker within its allocation, from 0.
    Rank(u32), ""
);

/// A card: the node and the position on it. (card, index) is the identity of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardId {
    pub node: NodeId,
    /// Position on the node, from 0, in the order gpu, npu, fpga, cpu.
    pub index: u32,
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "card {} of {}", self.index, self.node)
    }
}

/// The owner of blocks: one worker of one allocation. The epoch fences older allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub allocation: AllocationId,
    /// The log index that made it.
    pub epoch: crate::units::Epoch,
    pub rank: Rank,
}

/// A caller's name for one mutation: sent again, it gives the same answer once (law L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

impl RequestId {
    /// The time at which the id was made, by the clock of its maker: a UUID of version 7 begins with that. `None` for
    /// any other.
    #[must_use]
    pub const fn made_at(self) -> Option<LogTime> {
        let version = (self.0 >> 76) & 0xf;
        // The upper 48 bits.
        if version == 7 { Some(LogTime((self.0 >> 80) as u64)) } else { None }
    }
}

/// The longest time by which a request id may be made in the future: clients' clocks differ a little.
pub const REQUEST_AHEAD: Duration = Duration::from_secs(120);

/// A request id with a hash of the request's body, so that the same id with another body is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// The id that the caller chose.
    pub id: RequestId,
    /// Hash of the request's content, made by the member that took the request.
    pub fingerprint: u64,
}
