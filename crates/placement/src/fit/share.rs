//! Shares: how one virtual card is divided over cards that are given.

use tessera_ledger::{CardId, CardKind};

use super::closeness;
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;

/// The part of one card that backs one virtual card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) card: CardId,
    pub(crate) blocks: u32,
    /// MiB.
    pub(crate) memory: u64,
}

/// A card that could give a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) card: CardId,
    /// The offer of its class to the job.
    pub(crate) offer: Offer,
    pub(crate) free: u32,
    /// Free MiB.
    pub(crate) memory: u64,
    pub(crate) shares: u32,
}

impl Candidate {
    /// Returns the candidate after a share of it is taken; `None`: it could not give another one.
    pub(crate) fn less(self, share: &Share, demand: &Demand) -> Option<Self> {
        let (free, memory) = (self.free - share.blocks, self.memory - share.memory);
        let usable = !demand.whole_cards && free > 0 && self.shares > 1 && memory >= demand.slice_memory;
        usable.then_some(Self { free, memory, shares: self.shares - 1, ..self })
    }

    /// Compute of its free blocks, in thousandths of a TFLOPS.
    pub(super) fn compute(&self) -> u64 {
        self.offer.compute_of(self.free)
    }
}

/// The cards of a node that could give a share out of `offers`, in order of block numbers: those with memory enough for
/// one, and if whole cards are asked for only those that could be given whole.
pub(crate) fn candidates(node: &NodeEntry, offers: &[Offer], demand: &Demand) -> Vec<Candidate> {
    let candidate = |card: &CardEntry| {
        let offer = *offers.iter().find(|offer| offer.class == card.class)?;
        let free = card.offered();
        // Of a card that cannot be renumbered one share may take several slices.
        let several = card.max_slices > 0 && card.pinned && card.free.largest() < free;
        let shares = if several { 1 } else { card.slices_left() };
        (free > 0).then_some(Candidate { card: card.id, offer, free, memory: card.memory_free, shares })
    };
    let is_enough =
        |card: &&CardEntry| (!demand.whole_cards || card.is_empty()) && card.memory_free >= demand.slice_memory;
    node.cards.iter().filter(is_enough).filter_map(candidate).collect()
}

/// Divides one virtual card over some of the candidates: kinds in the order gpu, npu, fpga, cpu (P9), within a kind
/// over as few cards as possible, in order of block numbers where that leaves a choice. `None` when they have too
/// little together.
pub(crate) fn divide(index: &Index, mut candidates: Vec<Candidate>, demand: &Demand) -> Option<Vec<Share>> {
    let compute: u128 = candidates.iter().map(|card| u128::from(card.compute())).sum();
    let memory: u128 = candidates.iter().map(|card| u128::from(card.memory)).sum();
    if compute < u128::from(demand.compute) || memory < u128::from(demand.memory) {
        return None;
    }
    candidates.sort_by_key(|candidate| candidate.offer.kind);
    let (mut chosen, mut unused): (Vec<(Candidate, u32)>, Vec<Candidate>) = (Vec::new(), Vec::new());
    let mut missing = demand.compute;
    for of_kind in candidates.chunk_by(|left, right| left.offer.kind == right.offer.kind) {
        unused.extend(take_compute(index, of_kind, &mut missing, &mut chosen));
    }
    take_memory(unused, demand.memory, &mut chosen);
    if demand.whole_cards {
        for (card, blocks) in &mut chosen {
            *blocks = card.free;
        }
    }
    let shares = share_memory(&chosen, demand);
    (missing == 0).then_some(shares)
}

/// Takes compute from cards of one kind; answers the cards that were not needed.
fn take_compute(
    index: &Index,
    cards: &[Candidate],
    missing: &mut u64,
    chosen: &mut Vec<(Candidate, u32)>,
) -> Vec<Candidate> {
    let all: u128 = cards.iter().map(|card| u128::from(card.compute())).sum();
    let is_choice = *missing > 0 && all > u128::from(*missing);
    let order = if is_choice { fewest(index, cards.to_vec(), *missing) } else { cards.to_vec() };
    let mut unused = Vec::new();
    for card in order {
        if *missing == 0 {
            unused.push(card);
            continue;
        }
        let blocks = card.offer.blocks_for(*missing).clamp(1, card.free);
        *missing = missing.saturating_sub(card.offer.compute_of(blocks));
        chosen.push((card, blocks));
    }
    unused
}

/// Orders cards so that as few as possible give `missing`: the largest first, but where one card gives all that is
/// left, the smallest such card. Among equals those go first that are close to one another, then those first in order
/// of block numbers.
fn fewest(index: &Index, mut cards: Vec<Candidate>, missing: u64) -> Vec<Candidate> {
    cards.sort_by_key(|card| (std::cmp::Reverse(card.compute()), card.card));
    let (large, left) = largest_below(cards.iter().map(Candidate::compute), missing);
    let Some(smallest) = cards[large..].iter().rfind(|card| card.compute() >= left).map(Candidate::compute) else {
        return cards;
    };
    let mut first = choose_among_equals(index, &cards, large);
    let others = cards.iter().filter(|card| card.compute() == smallest && !first.contains(&card.card));
    let last = others.map(|card| (closeness::distance_to_all(index, card.card, &first), card.card)).min();
    first.extend(last.map(|(_, card)| card));
    let place = |card: &Candidate| first.iter().position(|chosen| *chosen == card.card).unwrap_or(usize::MAX);
    cards.sort_by_key(place);
    cards
}

/// Counts the largest values to take until the next one alone covers the rest; returns the count, and the rest.
pub(super) fn largest_below(largest_first: impl Iterator<Item = u64>, missing: u64) -> (usize, u64) {
    let (mut count, mut left) = (0, missing);
    for compute in largest_first {
        if compute >= left {
            break;
        }
        (count, left) = (count + 1, left - compute);
    }
    (count, left)
}

/// The `count` largest cards, of those equally large as the last one the closest, in order of block numbers.
fn choose_among_equals(index: &Index, cards: &[Candidate], count: usize) -> Vec<CardId> {
    let Some(least) = count.checked_sub(1).and_then(|last| cards.get(last)).map(Candidate::compute) else {
        return Vec::new();
    };
    let larger = cards.iter().take_while(|card| card.compute() > least).map(|card| card.card);
    let mut chosen: Vec<CardId> = larger.collect();
    let equal: Vec<CardId> = cards.iter().filter(|card| card.compute() == least).map(|card| card.card).collect();
    chosen.extend(closeness::closest(index, &equal, count - chosen.len()));
    chosen.sort_unstable();
    chosen
}

/// Adds cards with one block each until their memory is enough, those with the most first.
fn take_memory(mut unused: Vec<Candidate>, memory: u64, chosen: &mut Vec<(Candidate, u32)>) {
    let mut have: u128 = chosen.iter().map(|(card, _)| u128::from(card.memory)).sum();
    let kinds: Vec<CardKind> = chosen.iter().map(|(card, _)| card.offer.kind).collect();
    unused.sort_by_key(|card| (!kinds.contains(&card.offer.kind), std::cmp::Reverse(card.memory), card.card));
    for card in unused {
        if have >= u128::from(memory) {
            return;
        }
        have += u128::from(card.memory);
        chosen.push((card, 1));
    }
}

/// Divides memory in proportion to compute, rounded up, within what each card has and not below what each must give;
/// what does not fit so goes where there is room.
fn share_memory(chosen: &[(Candidate, u32)], demand: &Demand) -> Vec<Share> {
    let memory = demand.memory;
    let weight = |(card, blocks): &(Candidate, u32)| u128::from(card.offer.compute_of(*blocks)).max(1);
    let weights: u128 = chosen.iter().map(weight).sum();
    let mut left = memory;
    let mut shares: Vec<Share> = chosen
        .iter()
        .map(|entry| {
            let proportion = (u128::from(memory) * weight(entry)).div_ceil(weights.max(1));
            let part = u64::try_from(proportion).unwrap_or(u64::MAX).max(demand.slice_memory).min(entry.0.memory);
            left = left.saturating_sub(part);
            Share { card: entry.0.card, blocks: entry.1, memory: part }
        })
        .collect();
    for (share, (card, _)) in shares.iter_mut().zip(chosen) {
        let more = left.min(card.memory - share.memory);
        share.memory += more;
        left -= more;
    }
    shares
}
