//! What was found out of nodes for a request is remembered until something of them changes, so that a round of
//! decisions costs as much as has changed since the one before.

use tessera_ledger::{NodeId, Span, State};

use super::Sought;
use super::briefs::Briefs;
use super::outlook::Ends;
use super::ranking::{Bounds, Parts};
use crate::demand::Demand;
use crate::fit::sums::Sums;
use crate::index::Index;
use crate::index::changes::NOTHING;

/// Most requests for which that is remembered; those that were not asked for longest are dropped.
const MOST_REQUESTS: usize = 16;

/// What is known of nodes for a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Room for virtual cards on one card or one node each.
    pub(super) seats: Bounds,
    /// Room for those that spread over nodes, if they may: beside jobs without a time limit, and with what those hold.
    pub(super) parts: [Parts; 2],
}

impl Nodes {
    /// What is known of some nodes. The index must know their schedules, if these matter.
    pub(super) fn of(sought: Sought<'_>, nodes: &[NodeId]) -> Self {
        let mut briefs = Briefs::default();
        if sought.demand.span == Span::Card {
            nodes.iter().for_each(|id| briefs.read(sought.index, *id));
        }
        Self::with_briefs(sought, nodes, &briefs)
    }

    fn with_briefs(sought: Sought<'_>, nodes: &[NodeId], briefs: &Briefs) -> Self {
        let mut known = Self::default();
        if sought.demand.span == Span::Card {
            let bound = |id: &NodeId| Some((briefs.bound(sought.demand, *id, sought.ends)?, *id));
            known.seats = Bounds::of(nodes.iter().filter_map(bound), false);
        } else {
            nodes.iter().for_each(|id| known.look_at(sought, *id, briefs));
        }
        known
    }

    /// Looks at a node that has changed.
    fn look_at(&mut self, sought: Sought<'_>, id: NodeId, briefs: &Briefs) {
        let span = sought.demand.span;
        let outlook = if span == Span::Card { None } else { sought.outlook(id) };
        let wait = match span {
            Span::Card => briefs.bound(sought.demand, id, sought.ends),
            Span::Node | Span::Pool => outlook.as_ref().and_then(|outlook| outlook.first_bound()),
        };
        self.seats.set(id, wait.map(|wait| (wait, false)));
        if span == Span::Pool {
            for (with_endless, parts) in [false, true].into_iter().zip(&mut self.parts) {
                let part = outlook.as_ref().and_then(|outlook| outlook.part(with_endless));
                parts.set(id, part.map(|part| (part.wait, Sums::of(sought.demand, &part.site.cards))));
            }
        }
    }
}

/// What is known for a request.
#[derive(Clone, Debug)]
struct Known {
    demand: Demand,
    /// Changes of nodes that were taken over.
    seen: usize,
    nodes: Nodes,
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
    /// What is known of all nodes for a request, current.
    pub(super) fn current(&mut self, index: &mut Index, state: &State, demand: &Demand) -> &mut Nodes {
        for id in index.changed_since(self.seen.get_or_insert(NOTHING)) {
            index.read_schedule(state, id);
            self.briefs.read(index, id);
        }
        let known = self.known.iter().position(|known| known.demand == *demand).map(|place| self.known.remove(place));
        if known.is_none() && self.known.len() >= MOST_REQUESTS {
            self.known.remove(0);
        }
        let is_new = known.is_none();
        let mut known =
            known.unwrap_or_else(|| Known { demand: demand.clone(), seen: NOTHING, nodes: Nodes::default() });
        let changed = index.changed_since(&mut known.seen);
        index.count_looks(changed.len() as u64);
        let sought = Sought { index, state, demand, ends: Ends::InTime };
        if is_new {
            known.nodes = Nodes::with_briefs(sought, &changed, &self.briefs);
        } else {
            changed.iter().for_each(|id| known.nodes.look_at(sought, *id, &self.briefs));
        }
        self.known.push(known);
        &mut self.known.last_mut().expect("it was just put there").nodes
    }
}
