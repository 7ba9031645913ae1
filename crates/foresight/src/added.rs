//! Nodes that are only thought of: what a user does not say of them is taken from a node of the pool that has
//! such cards.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{Card, CardDescription, Command, HostCapacity, Link, NodeDescription, NodeId, State};

use crate::what_if::AddedNodes;

/// The cards, labels and host of a node that is registered in the rehearsal.
pub(crate) struct Thought {
    cards: Vec<CardDescription>,
    labels: BTreeMap<String, String>,
    host: Option<HostCapacity>,
}

/// The node that added ones are like: the one that was named, else of those with cards of the same models the one that
/// has most nearly as many of them, and of these the first.
pub(crate) fn like(state: &State, added: &AddedNodes) -> Option<NodeId> {
    let wanted = by_model(added.cards.iter());
    let common = |node: NodeId| {
        let there = by_model(state.cards_of(node).map(|(_, card)| &card.description));
        let both = |model: &&str| there.get(*model).copied().unwrap_or(0).min(wanted[*model]);
        let all = there.values().sum::<usize>().abs_diff(added.cards.len());
        (wanted.keys().map(both).sum::<usize>(), Reverse(all))
    };
    let nodes = state.nodes().map(|node| (common(node.id), Reverse(node.id)));
    let found = nodes.filter(|((count, _), _)| *count > 0).max().map(|(_, Reverse(id))| id);
    added.like.or(found)
}

impl AddedNodes {
    /// Names the half of the hosts' size (processor time or memory) that is neither stated nor known of the node that
    /// they are like, where the other half is stated: by its name in the API.
    #[must_use]
    pub fn unknown_of_host(&self, state: &State) -> Option<&'static str> {
        let known = like(state, self).and_then(|id| state.node(id)).is_some_and(|node| node.description.host.is_some());
        match (self.cpu, self.memory) {
            (Some(_), None) if !known => Some("host_memory_mib"),
            (None, Some(_)) if !known => Some("host_milli_cpus"),
            _ => None,
        }
    }
}

/// Cards that name a model, by model.
fn by_model<'a>(cards: impl Iterator<Item = &'a CardDescription>) -> BTreeMap<&'a str, usize> {
    let mut models = BTreeMap::new();
    for card in cards.filter(|card| !card.model.is_empty()) {
        *models.entry(card.model.as_str()).or_default() += 1;
    }
    models
}

/// Describes each of the added nodes.
pub(crate) fn node_like(state: &State, added: &AddedNodes) -> Thought {
    let like = like(state, added);
    let known = like.and_then(|id| state.node(id));
    let mut labels = known.map(|node| node.description.labels.clone()).unwrap_or_default();
    labels.extend(added.labels.clone());
    let host = known.and_then(|node| node.description.host);
    let cpu = added.cpu.or(host.map(|host| host.cpu));
    let memory = added.memory.or(host.map(|host| host.memory));
    let host = cpu.zip(memory).map(|(cpu, memory)| HostCapacity { cpu, memory });
    let numbered = (0u32..).zip(&added.cards).map(|(index, card)| CardDescription { index, ..card.clone() });
    let mut cards: Vec<CardDescription> = numbered.collect();
    if let Some(like) = like {
        link_like(state, like, &mut cards);
    }
    Thought { cards, labels, host }
}

/// Links the cards as those of a node are: of each model the first is taken for the first there, and so on.
fn link_like(state: &State, like: NodeId, cards: &mut [CardDescription]) {
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    let mut twins: BTreeMap<u32, &Card> = BTreeMap::new();
    for card in cards.iter() {
        let mut there = state.cards_of(like).filter(|(_, twin)| twin.description.model == card.model);
        if let Some((id, twin)) = there.find(|(id, _)| !taken.contains(&id.index)) {
            taken.insert(id.index);
            twins.insert(card.index, twin);
        }
    }
    let here: BTreeMap<u32, u32> = twins.iter().map(|(index, twin)| (twin.description.index, *index)).collect();
    for card in cards {
        let links = twins.get(&card.index).into_iter().flat_map(|twin| &twin.description.links);
        card.links =
            links.filter_map(|link| Some(Link { peer_index: *here.get(&link.peer_index)?, ..*link })).collect();
    }
}

impl Thought {
    /// A node of the rehearsal, under a name that no node has.
    pub(crate) fn register(&self, state: &State, number: u32) -> Command {
        let mut name = format!("what-if-{number}");
        while state.node_by_name(&name).is_some() {
            name.push('\'');
        }
        let node = NodeDescription {
            uid: name.clone(),
            incarnation: 1,
            agent_version: String::new(),
            address: String::new(),
            worker_host: name.clone(),
            labels: self.labels.clone(),
            host: self.host,
            cached: BTreeSet::new(),
            start: tessera_ledger::AgentStart::default(),
            containment: tessera_ledger::Containment::Whole,
            name,
        };
        Command::RegisterNode { node, cards: self.cards.clone() }
    }
}
