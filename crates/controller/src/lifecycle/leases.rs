//! When a node's lease is provably over: the table that leases are granted from and nodes are condemned by.
//!
//! Two things must never happen at once: a node is declared lost, and it is granted a lease. Both go through this table,
//! under one lock. A node that is *condemned* (its loss is being proposed) is granted nothing until the ledger has
//! answered; from then on the ledger itself says that it is lost.
//!
//! Why a new leader need not know what earlier ones granted: a lease is granted only after a quorum confirmed the leader
//! after the heartbeat had arrived. A majority elected the new leader later than that, so every lease of an earlier leader counts
//! from a moment before the election, and is over when the full time has passed since the new leader won.

use std::collections::BTreeMap;
use std::time::Duration;

use planted::Bug;
use tessera_ledger::{Epoch, NodeId, NodeState, State};
use tokio::time::Instant;

/// Why a heartbeat is not answered by a lease.
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

/// When each node was heard last, and which of them are condemned.
#[derive(Debug)]
pub(crate) struct Leases {
    /// When this leader won.
    began: Instant,
    regrant_after: Duration,
    nodes: BTreeMap<NodeId, Entry>,
}

impl Leases {
    /// The table of a leader that won at `began`.
    pub fn new(began: Instant, regrant_after: Duration) -> Self {
        let unheard_since = began.checked_sub(regrant_after).filter(|_| planted::is(Bug::NewLeaderDoesNotWait));
        let began = unheard_since.unwrap_or(began);
        Self { began, regrant_after, nodes: BTreeMap::new() }
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

    /// When the node was heard last, or this leader won.
    pub fn last_heard(&self, node: NodeId) -> Instant {
        self.nodes.get(&node).map_or(self.began, |entry| entry.heard_at)
    }

    /// Whether the node may be granted a lease for a heartbeat that arrived at `heard_at`. `state` must have been read
    /// while this table is held: what was declared lost before shows in it.
    pub fn grant(&mut self, node: NodeId, heard_at: Instant, state: &State) -> Result<(), Withheld> {
        let ready = state.node(node).is_some_and(|node| node.state == NodeState::Ready);
        if !ready || self.entry(node).condemned.is_some() {
            return Err(Withheld::Lost);
        }
        self.heard(node, heard_at);
        Ok(())
    }

    /// Whether every lease that any leader may have granted to the node is over, work included.
    pub fn is_over(&self, node: NodeId, now: Instant) -> bool {
        now.saturating_duration_since(self.last_heard(node)) >= self.regrant_after
    }

    /// Condemns the node if its lease is over; answers whether it is condemned now. Once condemned it stays so, even if it is
    /// heard again, until it is spared: its loss may be in the log already.
    pub fn condemn(&mut self, node: NodeId, epoch: Epoch, now: Instant) -> bool {
        if self.is_over(node, now) {
            self.entry(node).condemned.get_or_insert(epoch);
        }
        self.condemned_in(node).is_some()
    }

    /// The epoch in which the node was condemned. A loss that was proposed in an older epoch than the node's present one
    /// was refused or will be.
    pub fn condemned_in(&self, node: NodeId) -> Option<Epoch> {
        self.nodes.get(&node).and_then(|entry| entry.condemned)
    }

    /// The ledger has answered, or the loss was never proposed.
    pub fn spare(&mut self, node: NodeId) {
        self.entry(node).condemned = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Ledger;

    const REGRANT: Duration = Duration::from_secs(20);

    fn table() -> (Leases, Ledger, NodeId) {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        (Leases::new(Instant::now(), REGRANT), ledger, node)
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_waits_the_full_time_since_it_won() {
        let (leases, _, node) = table();
        let won = Instant::now();
        assert!(!leases.is_over(node, won + REGRANT - Duration::from_millis(1)));
        assert!(leases.is_over(node, won + REGRANT));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heard_moves_the_end_and_never_back() {
        let (mut leases, _, node) = table();
        let won = Instant::now();
        leases.heard(node, won + Duration::from_secs(5));
        leases.heard(node, won + Duration::from_secs(3));
        assert!(!leases.is_over(node, won + REGRANT + Duration::from_secs(4)));
        assert!(leases.is_over(node, won + REGRANT + Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_condemned_node_gets_no_lease_until_the_ledger_has_answered() {
        let (mut leases, mut ledger, node) = table();
        let late = Instant::now() + REGRANT;
        assert!(!leases.condemn(node, Epoch(1), late - Duration::from_secs(1)), "its lease may still run");
        assert_eq!(leases.grant(node, late, &ledger.state), Ok(()));
        let later = late + REGRANT;
        assert!(leases.condemn(node, Epoch(1), later));
        assert_eq!(leases.grant(node, later, &ledger.state), Err(Withheld::Lost), "its loss may be in the log");
        leases.heard(node, later);
        assert!(leases.condemn(node, Epoch(1), later), "it stays condemned even when it is heard");
        ledger.lose(node);
        leases.spare(node);
        assert_eq!(leases.grant(node, later, &ledger.state), Err(Withheld::Lost), "now the ledger says so");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_node_gets_no_lease() {
        let (mut leases, ledger, _) = table();
        assert_eq!(leases.grant(NodeId(9), Instant::now(), &ledger.state), Err(Withheld::Lost));
    }
}
