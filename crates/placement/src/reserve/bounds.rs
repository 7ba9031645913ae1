//! How long nodes take at least until they have room for one virtual card, the soonest first. What was found out of a node for a request
//! is remembered until something of the node changes, so that a round of decisions costs as much as has changed since the one before.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tessera_ledger::{NodeId, State};

use super::outlook::{Ends, Outlook, cheap_bound};
use super::wait::Wait;
use crate::demand::Demand;
use crate::index::Index;
use crate::index::changes::NOTHING;

/// Most requests for which bounds are remembered; those that were not asked for longest are dropped.
const MOST_REQUESTS: usize = 16;

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
    /// Those of some nodes. The index must know their schedules, if these matter.
    pub(super) fn of(index: &Index, state: &State, demand: &Demand, nodes: &[NodeId], ends: Ends) -> Self {
        let mut bounds = Self::default();
        nodes.iter().for_each(|id| bounds.look_at(index, state, demand, *id, ends));
        bounds
    }

    fn look_at(&mut self, index: &Index, state: &State, demand: &Demand, id: NodeId, ends: Ends) {
        let wait = match demand.span {
            tessera_ledger::Span::Card => cheap_bound(index, demand, id, ends),
            _ => Outlook::of(index, state, demand, id, ends).and_then(|outlook| outlook.first_bound()),
        };
        self.set(id, wait.map(|wait| Bound { wait, exact: false }));
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
        let position = id.0 as usize;
        if self.of_node.len() <= position {
            self.of_node.resize(position + 1, None);
        }
        let before = std::mem::replace(&mut self.of_node[position], bound);
        let [before, now] = [before, bound].map(|bound| bound.map(|bound| (bound.wait, id)));
        if before != now {
            before.map(|before| self.order.remove(&before));
            self.order.extend(now);
        }
    }
}

/// The bounds of a request.
#[derive(Clone, Debug)]
struct Known {
    demand: Demand,
    /// Changes of nodes that were taken over.
    seen: usize,
    bounds: Bounds,
}

/// The bounds of the requests for which room was sought last, the latest at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Vec<Known>);

impl Remembered {
    /// The bounds of all nodes for a request, current.
    pub(super) fn current(&mut self, index: &mut Index, state: &State, demand: &Demand) -> &mut Bounds {
        let known = self.0.iter().position(|known| known.demand == *demand).map(|place| self.0.remove(place));
        if known.is_none() && self.0.len() >= MOST_REQUESTS {
            self.0.remove(0);
        }
        let anew = || Known { demand: demand.clone(), seen: NOTHING, bounds: Bounds::default() };
        let mut known = known.unwrap_or_else(anew);
        let changed = index.changed_since(&mut known.seen);
        for id in &changed {
            index.read_schedule(state, *id);
            known.bounds.look_at(index, state, demand, *id, Ends::InTime);
        }
        index.count_looks(changed.len() as u64);
        self.0.push(known);
        &mut self.0.last_mut().expect("it was just put there").bounds
    }
}
