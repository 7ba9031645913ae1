//! Fit: where a gang goes, given what is free (P1, P5c, P9). Everything is decided on the index, in one trial that is
//! undone when not all of the gang fits.

pub(crate) mod affinity;
mod closeness;
mod program;
mod racks;
pub(crate) mod seats;
pub(crate) mod share;
mod shortlist;
mod spread;

use std::collections::BTreeSet;

use tessera_ledger::{BlockCount, CardId, CardKind, Mebibytes, NodeId, PlannedWorker, Slice, Span};

use crate::demand::{Demand, Offer};
use crate::index::node::{Host, NodeEntry};
use crate::index::run::Run;
use crate::index::{Index, Mark};
use closeness::distance_to_all;

pub(crate) use share::Share;

/// Most nodes of a class with enough free blocks that are tried for a whole gang; if none of them holds it, it goes to
/// several nodes.
const NODES_TRIED: usize = 512;

/// The workers of a gang on their cards, and the renumbering that they need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Its workers in order of rank.
    pub(crate) workers: Vec<PlannedWorker>,
    /// Cards that must be renumbered first.
    pub(crate) renumbered: BTreeSet<CardId>,
}

impl Placement {
    pub(crate) fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.workers.iter().flat_map(|worker| &worker.slices)
    }
}

struct Trial<'index> {
    index: &'index mut Index,
    mark: Mark,
    placement: Placement,
}

/// A gang that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// Virtual cards for which there is no room; not more than really have none.
    pub(crate) missing: u32,
}

/// Places a whole gang, or changes nothing. What it took is in the index's journal.
pub(crate) fn place(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    // What is left may be too little even if it could be divided at will.
    let (compute, memory) = demand.left_in(&index.classes);
    let by_compute = compute / u128::from(demand.compute.max(1));
    let by_memory = memory.checked_div(u128::from(demand.memory)).unwrap_or(u128::MAX);
    let possible = u32::try_from(by_compute.min(by_memory)).unwrap_or(u32::MAX);
    if possible < demand.gang {
        return Err(Short { missing: demand.gang - possible });
    }
    if demand.span == Span::Card {
        return place_well(index, demand);
    }
    // Virtual cards that spread could be divided in many ways, of which not all leave room for the next. Whether there
    // is one that does must not depend on prices, nor on what is known of places when it is asked.
    let seats = seats::free_now(index, demand)?;
    place_well(index, demand).or_else(|_| seats::take(index, demand, &seats))
}

/// Returns the placement that a gang would take now, if it fits; changes nothing.
pub(crate) fn would_take(index: &mut Index, demand: &Demand) -> Option<Placement> {
    index.try_out(|index| place(index, demand)).ok()
}

/// Returns whether a gang fits now; changes nothing.
pub(crate) fn fits(index: &mut Index, demand: &Demand) -> bool {
    would_take(index, demand).is_some()
}

/// Places a whole gang where it is worth most, card by card without going back, or changes nothing.
fn place_well(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    let restricted = demand.within.is_some();
    if restricted || demand.goes_by_wishes(index) {
        let placed = affinity::place(index, demand);
        if placed.is_ok() || restricted || demand.has_hard_wishes() {
            return placed;
        }
    }
    if demand.gang > 1 {
        if let Some(node) = node_for_all(index, demand)
            && let Ok(placement) = place_within(index, demand, Some(node))
        {
            return Ok(placement);
        }
        if let Ok(placement) = racks::place(index, demand) {
            return Ok(placement);
        }
    }
    place_within(index, demand, None)
}

/// A node whose cards of one class can hold the whole gang; the one with the least left afterwards. Where virtual cards
/// take several cards each, it may turn out that they cannot be divided so.
fn node_for_all(index: &Index, demand: &Demand) -> Option<NodeId> {
    let of_class = |offer: &Offer| {
        let all = offer.need.saturating_mul(demand.gang);
        let mut nodes = by_room(index, demand, offer, all).take(NODES_TRIED);
        let holds_all = |node: &NodeEntry| demand.fits_node(node, demand.gang) && holds_gang(node, demand, offer);
        let (free, id) = nodes.find(|(_, id)| index.node(*id).is_some_and(holds_all))?;
        Some((offer.kind == CardKind::Cpu, free - all, id))
    };
    demand.offers.iter().filter(|offer| may_hold_one(demand, offer)).filter_map(of_class).min().map(|(.., node)| node)
}

/// Returns whether cards of a class on one node may hold one virtual card.
fn may_hold_one(demand: &Demand, offer: &Offer) -> bool {
    demand.span != Span::Card || demand.fits_one_card(offer)
}

/// The nodes that may carry the labels asked for and have so many free blocks of a class at least, those with the least
/// first. Where few carry the rarest label, the many that do not are not looked at.
fn by_room<'a>(
    index: &'a Index,
    demand: &Demand,
    offer: &Offer,
    least: u32,
) -> impl Iterator<Item = (u32, NodeId)> + use<'a> {
    let class = offer.class;
    let few = index.carriers.of_rarest(&demand.node_labels).filter(|nodes| nodes.len() <= NODES_TRIED);
    let few = few.map(|carriers| {
        let free = |id: &NodeId| Some((index.node(*id)?.total(class)?.free, *id));
        let enough: BTreeSet<_> = carriers.iter().filter_map(free).filter(|(free, _)| *free >= least).collect();
        enough
    });
    let all = few.is_none().then(|| index.classes.get(class).nodes_with(least));
    few.into_iter().flatten().chain(all.into_iter().flatten())
}

/// Returns whether the cards of a class on a node have room for the whole gang.
fn holds_gang(node: &NodeEntry, demand: &Demand, offer: &Offer) -> bool {
    let gang = u64::from(demand.gang);
    let cards = demand.cards_of_class(node, offer);
    if demand.fits_one_card(offer) {
        return cards.map(|card| u64::from(card.room_for(offer.need, demand.memory))).sum::<u64>() >= gang;
    }
    let (blocks, memory) =
        cards.fold((0, 0), |(blocks, memory), card| (blocks + u64::from(card.offered()), memory + card.memory_free));
    blocks >= u64::from(offer.need) * gang && memory >= demand.memory.saturating_mul(gang)
}

/// Places a gang card by card, or changes nothing; `next` finds the shares that back the next one.
fn place_each(
    index: &mut Index,
    demand: &Demand,
    mut next: impl FnMut(&mut Trial<'_>, u32) -> Option<Vec<Share>>,
) -> Result<Placement, Short> {
    index.all_or_nothing(|index| {
        let mut trial = Trial::on(index);
        for virtual_card in 0..demand.gang {
            let placed = next(&mut trial, virtual_card).and_then(|shares| trial.take(demand, virtual_card, &shares));
            placed.ok_or(Short { missing: demand.gang - virtual_card })?;
        }
        Ok(trial.placement)
    })
}

fn place_within(index: &mut Index, demand: &Demand, node: Option<NodeId>) -> Result<Placement, Short> {
    place_each(index, demand, |trial, _| shares_of_one(trial, demand, node))
}

/// The shares that back one virtual card: on one card if possible, else on one node if the job lets it spread.
fn shares_of_one(trial: &mut Trial<'_>, demand: &Demand, node: Option<NodeId>) -> Option<Vec<Share>> {
    if let Some(share) = best_card(trial, demand, node) {
        return Some(vec![share]);
    }
    if demand.span == Span::Card {
        return None;
    }
    let index = &mut *trial.index;
    match node {
        Some(node) => spread::on_node(index, demand, node),
        None if demand.whole_cards => index.cheapest(demand).and_then(|card| spread::on_node(index, demand, card.node)),
        None => spread::on_best_node(index, demand),
    }
}

/// The best card for one virtual card: on any node the one where it costs least, on a given node the fullest near cards
/// that the gang has there.
fn best_card(trial: &mut Trial<'_>, demand: &Demand, node: Option<NodeId>) -> Option<Share> {
    let mut offers = demand.on_one_card();
    let (card, blocks) = if let Some(node) = node {
        let near = trial.cards_on(node);
        let best = |offer: &Offer| Some((best_on_node(trial.index, demand, offer, node, &near)?, offer.need));
        offers.filter_map(best).min().map(|((.., card), blocks)| (card, blocks))?
    } else {
        let index = &mut *trial.index;
        let most = |offer: &Offer| index.classes.get(offer.class).cards.last().map_or(0, |(free, ..)| *free);
        offers.find(|offer| most(offer) >= offer.need)?;
        let card = index.cheapest(demand)?;
        let offer = demand.offer_of(index.card(card)?.class).filter(|offer| demand.fits_one_card(offer))?;
        (card, offer.need)
    };
    Some(Share { card, blocks, memory: demand.memory })
}

/// Score of a card of a given node; less is better. A processor of the host is the last resort, a card that need not be
/// renumbered goes before one that must be, then the card goes first that has the least left afterwards (the most for a
/// job that is to be spread), then the one that is closest to the gang's others.
type Score = (bool, bool, u64, u32, CardId);

fn best_on_node(index: &Index, demand: &Demand, offer: &Offer, node: NodeId, near: &BTreeSet<CardId>) -> Option<Score> {
    let node = index.node(node).filter(|node| demand.fits_host(node, 1))?;
    let spread = demand.spreads(index);
    let with_room = demand.cards_of_class(node, offer).filter(|card| card.room_for(offer.need, demand.memory) > 0);
    let scores = with_room.map(|card| {
        let left = u64::from(card.offered() - offer.need) * 1_000_000 / u64::from(offer.blocks.max(1));
        let left = if spread { u64::MAX - left } else { left };
        let renumber = card.free.largest() < offer.need;
        (offer.kind == CardKind::Cpu, renumber, left, distance_to_all(index, card.id, near), card.id)
    });
    scores.min()
}

impl<'index> Trial<'index> {
    fn on(index: &'index mut Index) -> Self {
        let mark = index.mark();
        Self { index, mark, placement: Placement::default() }
    }

    /// The cards of a node on which the gang has something, if it makes a difference how close others are to them.
    fn cards_on(&self, node: NodeId) -> BTreeSet<CardId> {
        let cards = self.index.node(node).into_iter().flat_map(|node| &node.cards);
        if cards.map(|card| card.links.len()).sum::<usize>() == 0 {
            return BTreeSet::new();
        }
        self.placement.slices().map(|slice| slice.card).filter(|card| card.node == node).collect()
    }

    /// Takes the shares of one virtual card from the index and writes its workers down, one per node and
    /// where it takes one, one for its program.
    fn take(&mut self, demand: &Demand, virtual_card: u32, shares: &[Share]) -> Option<()> {
        let mut workers: Vec<PlannedWorker> = Vec::new();
        let mut compute = 0u64;
        for share in shares {
            let offer = demand.offer_of(self.index.card(share.card)?.class).copied()?;
            self.make_contiguous(share);
            let runs = self.index.take(share.card, share.blocks, share.memory);
            compute = runs.iter().fold(compute, |sum, run| sum.saturating_add(offer.compute_of(run.length.0)));
            let node = share.card.node;
            let position = workers.iter().position(|worker| worker.node == node).unwrap_or_else(|| {
                self.index.change_host(node, demand.host, Host::less);
                workers.push(PlannedWorker { virtual_card, node, slices: Vec::new() });
                workers.len() - 1
            });
            workers[position].slices.extend(slices_of(share, &runs, demand));
        }
        workers.sort_unstable_by_key(|worker| worker.node);
        program::put_first(self.index, demand, &mut workers)?;
        self.placement.workers.extend(workers);
        // Several slices on one card may lose a fraction of a block each to rounding.
        (compute >= demand.compute).then_some(())
    }

    /// Renumbers the card of a share when it has enough free blocks, but not in one run.
    fn make_contiguous(&mut self, share: &Share) {
        let Some(card) = self.index.card(share.card) else { return };
        if card.pinned || card.free.largest() >= share.blocks {
            return;
        }
        self.index.renumber(share.card);
        self.placement.renumbered.insert(share.card);
        // The card is renumbered before the grant: what this trial took on it comes behind everything older.
        let mut next = self.index.card_at(self.mark, share.card).map_or(0, |card| card.used);
        let workers = self.placement.workers.iter_mut();
        for slice in workers.flat_map(|worker| &mut worker.slices).filter(|slice| slice.card == share.card) {
            slice.start.0 = next;
            next = next.saturating_add(slice.length.0);
        }
    }
}

/// The slices of a share: one per run, the memory in proportion.
fn slices_of(share: &Share, runs: &[Run], demand: &Demand) -> Vec<Slice> {
    let total: u64 = runs.iter().map(|run| u64::from(run.length.0)).sum();
    let (mut blocks_left, mut memory_left) = (total, share.memory);
    let mut slices = Vec::with_capacity(runs.len());
    for run in runs {
        let blocks = u64::from(run.length.0);
        let part = u128::from(memory_left) * u128::from(blocks) / u128::from(blocks_left.max(1));
        let part = u64::try_from(part).unwrap_or(memory_left);
        blocks_left -= blocks;
        memory_left -= part;
        slices.push(Slice {
            card: share.card,
            start: run.start,
            length: BlockCount(run.length.0),
            memory: Mebibytes(part),
            isolation: demand.isolation,
        });
    }
    slices
}
