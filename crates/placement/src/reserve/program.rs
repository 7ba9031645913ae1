//! Room kept on hosts for programs that need not be with their cards.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{HostRequest, NodeId, State};

use super::{Choice, NONE, Wait, until_host};
use crate::demand::Demand;
use crate::index::Index;

/// Adds room on hosts for the programs of a gang to what is kept of cards: where it is free soonest. `None`: no hosts
/// could hold them even if everything ended.
pub(super) fn with_hosts(index: &mut Index, state: &State, demand: &Demand, mut choice: Choice) -> Option<Choice> {
    let Some(request) = demand.program.filter(|request| !request.is_zero()) else { return Some(choice) };
    let hosts = Hosts::of(index, state, demand, &choice, request);
    let mut programs: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut open: BTreeSet<(Wait, bool, NodeId)> = hosts.nodes.iter().filter_map(|id| hosts.until(*id, 1)).collect();
    for _ in 0..demand.gang {
        let (wait, _, id) = open.pop_first()?;
        choice.wait = choice.wait.max(wait);
        let count = programs.entry(id).or_default();
        *count += 1;
        open.extend(hosts.until(id, *count + 1));
    }
    for (id, count) in programs {
        if index.node(id).is_some_and(|node| node.host.is_some()) {
            choice.kept.hosts.insert(id, request.times(count));
        }
    }
    Some(choice)
}

/// The hosts that may have a program.
struct Hosts<'a> {
    index: &'a Index,
    nodes: Vec<NodeId>,
    request: HostRequest,
}

impl<'a> Hosts<'a> {
    fn of(index: &'a mut Index, state: &State, demand: &Demand, choice: &Choice, request: HostRequest) -> Self {
        let may = demand.may_be_beside(index, choice.kept.cards.first().map(|card| card.node));
        let nodes: Vec<NodeId> = index.nodes().filter(|(id, node)| may(*id, node)).map(|(id, _)| id).collect();
        drop(may);
        index.looked_at += nodes.len() as u64;
        nodes.iter().for_each(|id| index.read_schedule(state, *id));
        Self { index, nodes, request }
    }

    /// Returns the wait until a host has room for `programs` programs; of equal waits, those of hosts without cards
    /// come first.
    fn until(&self, id: NodeId, programs: u32) -> Option<(Wait, bool, NodeId)> {
        let node = self.index.node(id)?;
        let has_cards = !node.cards.is_empty();
        let Some(whole) = node.returning_host() else { return Some((NONE, has_cards, id)) };
        let schedule = node.schedule.as_deref()?;
        Some((until_host(whole, schedule, self.request.times(programs))?, has_cards, id))
    }
}
