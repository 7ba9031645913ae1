//! Briefs: the little of each node that bounds how soon one of its cards has room, held in columns. When room is sought
//! for a request for the first time they are read of all nodes; to read every card of a large pool instead takes a
//! hundred times as long.

use tessera_ledger::{LogTime, NodeId};

use super::outlook::Ends;
use super::wait::{NONE, Wait, millionths};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::class::ClassId;
use crate::index::schedule::Schedule;

/// The briefs of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Briefs {
    /// By node: when something comes back there first, as far as time limits say.
    first: Vec<Option<LogTime>>,
    /// By class and node: the most blocks that a card has free, and the most MiB, be it another one.
    largest: Vec<Vec<Option<(u32, u64)>>>,
}

impl Briefs {
    /// Reads a node.
    pub(super) fn read(&mut self, index: &Index, id: NodeId) {
        let Some(node) = index.node(id) else { return };
        let position = id.0 as usize;
        *entry(&mut self.first, position) = node.known_schedule().and_then(Schedule::first);
        self.largest.iter_mut().filter_map(|of_class| of_class.get_mut(position)).for_each(|largest| *largest = None);
        for card in node.cards.iter().filter(|card| card.is_open()) {
            let ClassId(class) = card.class;
            let largest = entry(entry(&mut self.largest, class), position);
            let (blocks, memory) = largest.unwrap_or_default();
            *largest = Some((blocks.max(card.free.total()), memory.max(card.memory_free)));
        }
    }

    /// No more than how long the first seat on one card of a node takes; `None` when it has none for the request.
    pub(super) fn bound(&self, demand: &Demand, id: NodeId, ends: Ends) -> Option<Wait> {
        let position = id.0 as usize;
        let short = |offer: &Offer| {
            let (blocks, memory) = (*self.largest.get(offer.class.0)?.get(position)?)?;
            let blocks = millionths(offer.need.saturating_sub(blocks).into(), offer.need.into());
            Some(blocks.saturating_add(millionths(demand.memory.saturating_sub(memory), demand.memory)))
        };
        let offers = demand.offers.iter().filter(|offer| demand.need_on_one_card(offer).is_some());
        let endless = offers.filter_map(short).min()?;
        if endless == 0 || ends == Ends::AtOnce {
            return Some(NONE);
        }
        // Whatever ends at a known time could be what is missing.
        let first = self.first.get(position).copied().flatten();
        Some(first.map_or(Wait { endless, at: NONE.at }, |at| Wait { endless: 0, at }))
    }
}

/// An entry of a column that is made as long as it must be.
pub(super) fn entry<T: Clone + Default>(column: &mut Vec<T>, position: usize) -> &mut T {
    if column.len() <= position {
        column.resize(position + 1, T::default());
    }
    &mut column[position]
}
