//! Closeness of cards: fabric, PCIe switch, NUMA node and node as agents report it, then the rack, then the pool.

use tessera_ledger::{CardId, LinkKind};

use crate::index::Index;

/// The label that says in which rack a node is. Nodes without it are in no rack with any other.
pub(crate) const RACK_KEY: &str = "rack";

/// The most cards among which every one is tried as the first; a node has rarely more.
const SEEDS: usize = 16;

/// Distance of two cards; less is closer.
pub(crate) fn distance(index: &Index, one: CardId, other: CardId) -> u32 {
    if one.node != other.node {
        let rack = |card: CardId| index.label(card.node, RACK_KEY);
        return if rack(one).is_some() && rack(one) == rack(other) { 4 } else { 5 };
    }
    let link = |from: CardId, to: CardId| {
        let links = &index.card(from)?.links;
        links.iter().filter(|(peer, _)| *peer == to.index).map(|(_, kind)| *kind).min()
    };
    match link(one, other).into_iter().chain(link(other, one)).min() {
        Some(LinkKind::Fabric) => 0,
        Some(LinkKind::PcieSwitch) => 1,
        Some(LinkKind::Numa) => 2,
        Some(LinkKind::Node) | None => 3,
    }
}

pub(crate) fn distance_to_all<'a>(index: &Index, card: CardId, others: impl IntoIterator<Item = &'a CardId>) -> u32 {
    others.into_iter().fold(0, |sum, other| sum.saturating_add(distance(index, card, *other)))
}

/// `count` of the cards that are as close together as a greedy search from each of them finds; in order of block
/// numbers where that leaves a choice.
pub(crate) fn closest(index: &Index, cards: &[CardId], count: usize) -> Vec<CardId> {
    let unlinked = |card: &CardId| index.card(*card).is_none_or(|card| card.links.is_empty());
    if count < 2 || count >= cards.len() || cards.iter().all(unlinked) {
        return cards.iter().copied().take(count).collect();
    }
    let from_seed = |seed: CardId| {
        let mut chosen = vec![seed];
        let mut total = 0;
        while chosen.len() < count {
            let left = cards.iter().filter(|card| !chosen.contains(card));
            let nearest = left.map(|card| (distance_to_all(index, *card, &chosen), *card)).min();
            let Some((further, card)) = nearest else { break };
            total += further;
            chosen.push(card);
        }
        chosen.sort_unstable();
        (total, chosen)
    };
    cards.iter().take(SEEDS).map(|seed| from_seed(*seed)).min().map(|(_, chosen)| chosen).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tessera_ledger::*;

    use super::*;

    fn node(name: &str, rack: Option<&str>) -> NodeDescription {
        let labels = rack.map(|rack| (RACK_KEY.to_owned(), rack.to_owned())).into_iter().collect();
        NodeDescription { labels, ..tessera_testkit::node(name) }
    }

    fn card(index: u32, links: &[(u32, LinkKind)]) -> CardDescription {
        let link = |(peer_index, kind): &(u32, LinkKind)| Link {
            peer_index: *peer_index,
            kind: *kind,
            megabytes_per_second: 0,
        };
        let links = links.iter().map(link).collect();
        CardDescription { index, links, ..tessera_testkit::card(CardKind::Gpu, 1, 1) }
    }

    #[test]
    fn each_step_away_is_further() {
        let mut state = State::new();
        let links = [(1, LinkKind::Fabric), (2, LinkKind::PcieSwitch), (3, LinkKind::Numa), (4, LinkKind::Node)];
        let cards: Vec<CardDescription> =
            (0..6).map(|index| card(index, if index == 0 { &links } else { &[] })).collect();
        let nodes = [("a", Some("r")), ("b", Some("r")), ("c", Some("other")), ("d", None), ("e", None)];
        let register = |(name, rack)| Command::RegisterNode { node: node(name, rack), cards: cards.clone() };
        let requests: Vec<Request> = nodes.map(|of_node| tessera_testkit::request(register(of_node))).into();
        state.apply(EntryPosition { revision: Revision(1), time: LogTime(1) }, &requests);
        let mut index = Index::default();
        (0..5).map(NodeId).for_each(|id| drop(index.read_node(&state, id)));
        let at = |node, index| CardId { node: NodeId(node), index };
        let to = |other| [distance(&index, at(0, 0), other), distance(&index, other, at(0, 0))];
        let same_node: Vec<[u32; 2]> = (1..6).map(|index| to(at(0, index))).collect();
        assert_eq!(same_node, [[0; 2], [1; 2], [2; 2], [3; 2], [3; 2]]);
        assert_eq!([to(at(1, 0)), to(at(2, 0)), to(at(3, 0))], [[4; 2], [5; 2], [5; 2]]);
        assert_eq!(distance(&index, at(3, 0), at(4, 0)), 5, "two nodes without the label are in no rack together");
    }
}
