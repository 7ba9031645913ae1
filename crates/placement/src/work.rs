//! How much was looked at: what tests and measurements count instead of time.

/// Work done since the pool was read or its settings changed. It never decides anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests that were tried on the index by decisions.
    pub tried: u64,
    /// What requests would cost that were computed, each for all nodes that look the same.
    pub costs_computed: u64,
    /// Nodes that were looked at one by one, for jobs with wishes and for room to keep.
    pub nodes_looked_at: u64,
    /// Searches of the pool for cards to keep for a job.
    pub reservations_sought: u64,
    /// Queues whose past use was counted anew from the ledger's last count, not from where a decision left it.
    pub uses_recounted: u64,
}
