//! What nodes give to virtual cards that spread over nodes: how long it takes until that is free, and how much it
//! is together.

use std::collections::BTreeSet;

use tessera_ledger::NodeId;

use super::briefs::entry;
use super::wait::Wait;
use crate::demand::Demand;
use crate::fit::sums::Sums;

/// What all nodes give, the soonest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    of_node: Vec<Option<(Wait, Sums)>>,
    order: BTreeSet<(Wait, NodeId)>,
    all: Sums,
}

impl Parts {
    /// Notes what a node gives; `None`: nothing.
    pub(super) fn set(&mut self, id: NodeId, part: Option<(Wait, Sums)>) {
        if let Some((wait, sums)) = std::mem::replace(entry(&mut self.of_node, id.0 as usize), part) {
            self.order.remove(&(wait, id));
            self.all.minus(&sums);
        }
        if let Some((wait, sums)) = part {
            self.order.insert((wait, id));
            self.all.plus(&sums);
        }
    }

    /// How many of the first nodes have enough for a gang together, as far as sums say.
    pub(super) fn enough_for(&self, demand: &Demand) -> Option<usize> {
        if self.all.members(demand) < demand.gang {
            return None;
        }
        let mut sums = Sums::default();
        let enough = |(_, sum): (Wait, Sums)| {
            sums.plus(&sum);
            sums.members(demand) >= demand.gang
        };
        self.nodes().filter_map(|id| self.of_node[id.0 as usize]).position(enough).map(|last| last + 1)
    }

    /// The nodes that give something.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.order.iter().map(|(_, id)| *id)
    }
}
