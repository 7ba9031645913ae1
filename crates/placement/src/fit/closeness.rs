//! How close cards are to one another, as agents report it: fabric, PCIe switch, NUMA node, node, and beyond the node.

use tessera_ledger::{CardId, LinkKind};

use crate::index::Index;

/// The most cards among which every one is tried as the first; a node has rarely more.
const SEEDS: usize = 16;

/// Distance of two cards; less is closer.
pub(crate) fn distance(index: &Index, one: CardId, other: CardId) -> u32 {
    if one.node != other.node {
        return 4;
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

/// Distance of a card to several others together.
pub(crate) fn distance_to_all(index: &Index, card: CardId, others: &[CardId]) -> u32 {
    others.iter().fold(0, |sum, other| sum.saturating_add(distance(index, card, *other)))
}

/// `count` of the cards that are as close together as a greedy search from each of them finds; in order of block numbers where
/// that leaves a choice.
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
