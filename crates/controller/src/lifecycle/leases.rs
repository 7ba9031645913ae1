//! The proof that a node's lease is over: the table that leases are granted from and nodes are condemned by.
//!
//! Two things must never happen at once: a node is declared lost, and it is granted a lease. Both go through this
//! table, under one lock. A node that is *condemned* (its loss is being proposed) is granted nothing until the ledger
//! has answered; from then on the ledger itself says that it is lost.
//!
//! A new leader need not know what earlier ones granted. Before a lease is granted, the heartbeat arrives, and then a
//! quorum confirms the leader. A majority elected the new leader later than that, so every lease of an earlier leader
//! counts from a moment before the election, and is over when the full time has passed since the new leader won.
//!
//! The full time is the ledger's *ceiling*, not the timings in force: leases are granted from committed timings only,
//! those can be changed, and leases that were granted before run on ([`tessera_ledger::LeaseCeiling`]). A leader that
//! has waited for as long as the ceiling says since it applied the change has it lowered: see [`Leases::settled`].

use std::collections::BTreeMap;
use std::time::Duration;

use planted::Bug;
use tessera_ledger::{Epoch, LeaseTimings, NodeId, NodeState, Revision, State};
use tokio::time::Instant;

/// The reason why a heartbeat is not answered by a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// No quorum confirmed in time that this member leads in this term.
    Unconfirmed,
    /// The node is lost, or about to be declared so.
    Lost,
}

impl Withheld {
    /// The word used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unconfirmed => "unconfirmed",
            Self::Lost => "lost",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    heard_at: Instant,
    /// The epoch in which its loss was proposed.
    condemned: Option<Epoch>,
}

/// The time at which each node was last heard, and the nodes that are condemned.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The time at which this leader won.
    began: Instant,
    /// The change of the timings that was seen last, and since when: whatever was granted under earlier ones counts
    /// from before.
    change: Option<(Revision, Instant)>,
    nodes: BTreeMap<NodeId, Entry>,
}

/// The silence of a node after which every lease that any leader may have granted to it is over, work included.
fn full_time(state: &State) -> Duration {
    if planted::is(Bug::CeilingIgnored) {
        return state.config().leases.regrant_after;
    }
    state.lease_ceiling().regrant_after
}

/// Silence after which a node is out of order: while nodes may still keep to longer timings of before, that of the
/// longest lease.
pub(crate) fn silence(state: &State) -> Duration {
    let timings = state.config().leases;
    let longest = full_time(state);
    if longest > timings.regrant_after { longest } else { timings.stop_after }
}

impl Leases {
    /// The table of a leader that won at `began`, when the ledger was at `state`.
    pub fn new(began: Instant, state: &State) -> Self {
        let unheard_since = began.checked_sub(full_time(state)).filter(|_| planted::is(Bug::NewLeaderDoesNotWait));
        let began = unheard_since.unwrap_or(began);
        Self { began, change: None, nodes: BTreeMap::new() }
    }

    fn entry(&mut self, node: NodeId) -> &mut Entry {
        let unheard = Entry { heard_at: self.began, condemned: None };
        self.nodes.entry(node).or_insert(unheard)
    }

    /// The node was heard. Whatever it is granted counts from before this moment.
    pub fn heard(&mut self, node: NodeId, at: Instant) {
        let entry = self.entry(node);
        entry.heard_at = entry.heard_at.max(at);
    }

    /// The time at which the node was last heard, or at which this leader won.
    pub fn last_heard(&self, node: NodeId) -> Instant {
        self.nodes.get(&node).map_or(self.began, |entry| entry.heard_at)
    }

    /// Decides whether the node may be granted a lease for a heartbeat that arrived at `heard_at`, and returns its
    /// timings. `state` must have been read while this table is held: what was declared lost before shows in it, and
    /// timings that this leader has seen replaced are granted no more.
    pub fn grant(&mut self, node: NodeId, heard_at: Instant, state: &State) -> Result<LeaseTimings, Withheld> {
        let ready = state.node(node).is_some_and(|node| node.state == NodeState::Ready);
        if !ready || self.entry(node).condemned.is_some() {
            return Err(Withheld::Lost);
        }
        self.heard(node, heard_at);
        Ok(state.config().leases)
    }

    /// True if every lease that any leader may have granted to the node is over, and so is the work under it. `state`
    /// must have been read while this table is held: it then knows the timings of every lease granted before.
    pub fn is_over(&self, node: NodeId, now: Instant, state: &State) -> bool {
        now.saturating_duration_since(self.last_heard(node)) >= full_time(state)
    }

    /// The change of the timings of which it is certain by now that every lease from before it is over, if nobody has
    /// said so yet: this leader has led, and has granted nothing but the timings in force, for as long as the longest
    /// lease. `state` must have been read while this table is held.
    pub fn settled(&mut self, now: Instant, state: &State) -> Option<Revision> {
        let ceiling = state.lease_ceiling();
        if ceiling.regrant_after == state.config().leases.regrant_after {
            return None;
        }
        let since = match self.change {
            Some((change, since)) if change == ceiling.changed_at => since,
            _ => self.change.insert((ceiling.changed_at, now)).1,
        };
        (now.saturating_duration_since(since) >= ceiling.regrant_after).then_some(ceiling.changed_at)
    }

    /// Condemns the node if its lease is over; answers whether it is condemned now. Once condemned it stays so, even if
    /// it is heard again, until it is spared: its loss may be in the log already.
    pub fn condemn(&mut self, node: NodeId, epoch: Epoch, now: Instant, state: &State) -> bool {
        if self.is_over(node, now, state) {
            self.entry(node).condemned.get_or_insert(epoch);
        }
        self.condemned_in(node).is_some()
    }

    /// The epoch in which the node was condemned. A loss that was proposed in an older epoch than the node's present
    /// one was refused or will be.
    pub fn condemned_in(&self, node: NodeId) -> Option<Epoch> {
        self.nodes.get(&node).and_then(|entry| entry.condemned)
    }

    /// The ledger has answered, or the loss was never proposed.
    pub fn spare(&mut self, node: NodeId) {
        self.entry(node).condemned = None;
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
