//! The state machine that consensus replicates, seen from outside.
//!
//! Consensus knows nothing of jobs or blocks. It hands committed entries to a [`Machine`], in order, exactly once per
//! process life, and takes frozen copies of it for snapshots. Determinism (law L8) is the machine's promise: everything
//! it may depend on is in its arguments.

use bytes::Bytes;

/// Position of an entry in the replicated log. The first entry has index 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

/// A Raft term: the reign of at most one leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Milliseconds since the Unix epoch as the proposing leader wrote them, by the log's own clock; never read on apply
/// (law L8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub u64);

/// The position in the log and the log time of a committed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPosition {
    pub index: LogIndex,
    /// Term of the leader that wrote it.
    pub term: Term,
    /// Log time when its leader wrote it.
    pub time: LogTime,
}

/// An entry or a snapshot that this release cannot read or apply (law L7). The member stops; nothing is skipped.
#[derive(Debug, thiserror::Error)]
#[error("{what}; stop this member and start it with a release that can read it")]
pub struct Unreadable {
    /// The unreadable item and the reason, in one sentence.
    pub what: String,
}

/// A deterministic state machine fed by the committed log.
pub trait Machine: Send + 'static {
    /// The answer to the proposer of one command once it is applied.
    type Outcome: Send + 'static;

    /// Applies the commands of one committed entry in order and answers one outcome per command.
    ///
    /// # Errors
    /// [`Unreadable`] when a command cannot be decoded; the member then stops.
    fn apply(&mut self, at: EntryPosition, commands: &[Bytes]) -> Result<Vec<Self::Outcome>, Unreadable>;

    /// Notes an entry that carries no command (a leader's first entry, a membership change), so that the machine's
    /// revision follows the log index.
    fn observe(&mut self, at: EntryPosition);

    /// Called after each batch of applied entries, before their outcomes are delivered: the place to publish a view.
    fn publish(&mut self);

    /// Called after each batch whose outcomes were delivered: the place to wake whoever watches the view, so that who
    /// waits for an outcome does not wait for them.
    fn announce(&mut self) {}

    /// An immutable copy for a snapshot. Must be cheap (no walk over the state): it runs between two applies.
    fn freeze(&self) -> Box<dyn Frozen>;

    /// Replaces the state by the snapshot whose chunks are given in order.
    ///
    /// # Errors
    /// [`Unreadable`] when a chunk cannot be decoded or one is missing; the old state is then kept.
    fn restore(&mut self, chunks: &mut dyn Iterator<Item = Bytes>) -> Result<(), Unreadable>;

    /// The highest level of commands that this release of the machine can apply, as members announce it to one another
    /// ([`Consensus::announced_levels`](crate::Consensus::announced_levels)). Consensus makes nothing of it: what needs
    /// which level is the machine's to say. 0, the default: the machine has none.
    fn highest_level(&self) -> u32 {
        0
    }

    /// A digest of the state as it is now, to be compared with the other members' (law L8). Called right after the
    /// entry at every multiple of [`ConsensusConfig::digest_interval`](crate::ConsensusConfig::digest_interval) was
    /// applied or observed, so on every member at the same places. It must depend on the state alone, not on how the
    /// state was reached (a member may have restored a snapshot), and be cheap: keep it up to date while applying
    /// rather than walking the state. `None`, the default, compares nothing.
    fn digest(&self) -> Option<u128> {
        None
    }
}

/// A frozen copy of a machine, written out on another thread while the machine goes on.
pub trait Frozen: Send + 'static {
    /// The snapshot's content as chunks of about 1 MiB, in order; the same state gives the same bytes on every member.
    fn chunks(self: Box<Self>) -> Box<dyn Iterator<Item = Bytes> + Send>;
}
