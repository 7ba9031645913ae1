//! How long nodes take at least until they have room for one virtual card, the soonest first.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tessera_ledger::NodeId;

use super::briefs::entry;
use super::wait::Wait;

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// How long it takes at least.
    pub(super) wait: Wait,
    /// Whether it takes just as long.
    pub(super) exact: bool,
}

/// Nodes by how long their first seats take.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    of_node: Vec<Option<Bound>>,
    order: BTreeSet<(Wait, NodeId)>,
}

impl Bounds {
    /// Those of many nodes at once.
    pub(super) fn of(bounds: impl Iterator<Item = (Wait, NodeId)>) -> Self {
        let order: BTreeSet<(Wait, NodeId)> = bounds.collect();
        let mut of_node = Vec::new();
        for (wait, id) in &order {
            *entry(&mut of_node, id.0 as usize) = Some(Bound { wait: *wait, exact: false });
        }
        Self { of_node, order }
    }

    /// The first node after another one.
    pub(super) fn after(&self, passed: Option<(Wait, NodeId)>) -> Option<(Bound, NodeId)> {
        let (_, id) = match passed {
            Some(passed) => self.order.range((Excluded(passed), Unbounded)).next()?,
            None => self.order.first()?,
        };
        Some((self.of_node[id.0 as usize]?, *id))
    }

    /// Notes what was found out of a node; `None`: it has no seat.
    pub(super) fn set(&mut self, id: NodeId, bound: Option<Bound>) {
        let before = std::mem::replace(entry(&mut self.of_node, id.0 as usize), bound);
        let [before, now] = [before, bound].map(|bound| bound.map(|bound| (bound.wait, id)));
        if before != now {
            before.map(|before| self.order.remove(&before));
            self.order.extend(now);
        }
    }
}
