//! How long nodes take at least until they have room for one virtual card, the soonest first. What was found out of a node for a request
//! is remembered until something of the node changes, so that a round of decisions costs as much as has changed since the one before.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tessera_ledger::{NodeId, Span, State};

use super::briefs::Briefs;
use super::outlook::{Ends, Outlook};
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
        let mut briefs = Briefs::default();
        if demand.span == Span::Card {
            nodes.iter().for_each(|id| briefs.read(index, *id));
        }
        Self::with_briefs(index, state, demand, nodes, ends, &briefs)
    }

    fn with_briefs(
        index: &Index,
        state: &State,
        demand: &Demand,
        nodes: &[NodeId],
        ends: Ends,
        briefs: &Briefs,
    ) -> Self {
        let bound = |id: &NodeId| Some((first_bound(index, state, demand, *id, ends, briefs)?, *id));
        let order: BTreeSet<(Wait, NodeId)> = nodes.iter().filter_map(bound).collect();
        let mut of_node = vec![None; index.node_count()];
        for (wait, id) in &order {
            of_node[id.0 as usize] = Some(Bound { wait: *wait, exact: false });
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

/// No more than how long the first seat of a node takes.
fn first_bound(index: &Index, state: &State, demand: &Demand, id: NodeId, ends: Ends, briefs: &Briefs) -> Option<Wait> {
    match demand.span {
        Span::Card => briefs.bound(demand, id, ends),
        Span::Node | Span::Pool => Outlook::of(index, state, demand, id, ends)?.first_bound(),
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

/// What was found out when room was sought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    briefs: Briefs,
    /// Changes of nodes that the briefs have taken over, if they were ever read.
    seen: Option<usize>,
    /// The requests for which room was sought last, the latest at the end.
    known: Vec<Known>,
}

impl Remembered {
    /// The bounds of all nodes for a request, current.
    pub(super) fn current(&mut self, index: &mut Index, state: &State, demand: &Demand) -> &mut Bounds {
        for id in index.changed_since(self.seen.get_or_insert(NOTHING)) {
            index.read_schedule(state, id);
            self.briefs.read(index, id);
        }
        let known = self.known.iter().position(|known| known.demand == *demand).map(|place| self.known.remove(place));
        if known.is_none() && self.known.len() >= MOST_REQUESTS {
            self.known.remove(0);
        }
        let mut known =
            known.unwrap_or_else(|| Known { demand: demand.clone(), seen: NOTHING, bounds: Bounds::default() });
        let is_new = known.seen == NOTHING;
        let changed = index.changed_since(&mut known.seen);
        if is_new {
            known.bounds = Bounds::with_briefs(index, state, demand, &changed, Ends::InTime, &self.briefs);
        } else {
            for id in &changed {
                let wait = first_bound(index, state, demand, *id, Ends::InTime, &self.briefs);
                known.bounds.set(*id, wait.map(|wait| Bound { wait, exact: false }));
            }
        }
        index.count_looks(changed.len() as u64);
        self.known.push(known);
        &mut self.known.last_mut().expect("it was just put there").bounds
    }
}
