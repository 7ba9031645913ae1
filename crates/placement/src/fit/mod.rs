//! Fit: where a gang goes, given what is free (P1, P5c, P9). Everything is decided on the index, in one trial that is
//! undone when not all of the gang fits.

pub(crate) mod affinity;
mod card;
mod closeness;
pub(crate) mod elastic;
mod member;
mod racks;
pub(crate) mod seats;
pub(crate) mod share;
mod shortlist;
mod spread;
pub(crate) mod sums;

use std::collections::BTreeSet;

use tessera_ledger::{BlockCount, CardId, Mebibytes, NodeId, PlannedWorker, Slice, Span};

use crate::demand::Demand;
use crate::index::run::Run;
use crate::index::{Index, Mark};

pub(crate) use share::Share;

/// Where a gang goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Its workers in order of rank.
    pub(crate) workers: Vec<PlannedWorker>,
    /// Cards that must be renumbered first.
    pub(crate) renumbered: BTreeSet<CardId>,
}

impl Placement {
    /// All slices.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.workers.iter().flat_map(|worker| &worker.slices)
    }
}

/// A trial in progress.
pub(crate) struct Trial<'index> {
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
    let possible = upper_bound(index, demand);
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

/// Whether a gang fits now; changes nothing.
pub(crate) fn fits(index: &mut Index, demand: &Demand) -> bool {
    would_take(index, demand).is_some()
}

/// What a gang would take now; changes nothing.
pub(crate) fn would_take(index: &mut Index, demand: &Demand) -> Option<Placement> {
    let mark = index.mark();
    let placement = place(index, demand);
    index.undo_to(mark);
    placement.ok()
}

/// Places a whole gang where it is worth most, member by member without going back, or changes nothing.
fn place_well(index: &mut Index, demand: &Demand) -> Result<Placement, Short> {
    let restricted = demand.within.is_some();
    if restricted || demand.goes_by_wishes(index) {
        let placed = affinity::place(index, demand);
        if placed.is_ok() || restricted || demand.has_hard_wishes() {
            return placed;
        }
    }
    let mark = index.mark();
    if demand.gang > 1
        && let Some(node) = member::node_for_all(index, demand)
        && let Ok(placement) = place_within(index, demand, Some(node))
    {
        return Ok(placement);
    }
    index.undo_to(mark);
    if demand.gang > 1
        && let Some(placement) = racks::place(index, demand)
    {
        return Ok(placement);
    }
    place_within(index, demand, None).inspect_err(|_| index.undo_to(mark))
}

/// Places one virtual card on a given card.
pub(crate) fn place_on(index: &mut Index, demand: &Demand, card: CardId) -> Option<Placement> {
    let entry = index.card(card)?;
    let blocks = demand.offer_of(entry.class)?.need;
    let node = index.node(card.node)?;
    if entry.room_for(blocks, demand.memory) == 0 || (demand.whole && !entry.is_empty()) || !demand.fits_host(node, 1) {
        return None;
    }
    let mut trial = Trial::on(index);
    trial.take(demand, 0, &[Share { card, blocks, memory: demand.memory }])?;
    Some(trial.placement)
}

/// How many virtual cards what is left would give if it could be divided at will.
fn upper_bound(index: &Index, demand: &Demand) -> u32 {
    let (compute, memory) = demand.left_in(&index.classes);
    let by_compute = compute / u128::from(demand.compute.max(1));
    let by_memory = memory.checked_div(u128::from(demand.memory)).unwrap_or(u128::MAX);
    u32::try_from(by_compute.min(by_memory)).unwrap_or(u32::MAX)
}

fn place_within(index: &mut Index, demand: &Demand, node: Option<NodeId>) -> Result<Placement, Short> {
    let mut trial = Trial::on(index);
    for member in 0..demand.gang {
        let near = if node.is_some() { trial.cards() } else { Vec::new() };
        let shares = shares_of_one(trial.index, demand, node, &near);
        let placed = shares.and_then(|shares| trial.take(demand, member, &shares));
        placed.ok_or(Short { missing: demand.gang - member })?;
    }
    Ok(trial.placement)
}

/// The shares that back one virtual card: on one card if possible, else on one node, else on as few nodes as possible,
/// as far as the job lets it spread.
fn shares_of_one(index: &mut Index, demand: &Demand, node: Option<NodeId>, near: &[CardId]) -> Option<Vec<Share>> {
    if let Some(share) = card::best(index, demand, node, near) {
        return Some(vec![share]);
    }
    if demand.span == Span::Card {
        return None;
    }
    let on_one_node = match node {
        Some(node) => spread::on_node(index, demand, node),
        None if demand.whole => index.cheapest(demand).and_then(|card| spread::on_node(index, demand, card.node)),
        None => spread::on_best_node(index, demand),
    };
    if on_one_node.is_some() || demand.span == Span::Node || node.is_some() {
        return on_one_node;
    }
    spread::over_nodes(index, demand)
}

impl<'index> Trial<'index> {
    fn on(index: &'index mut Index) -> Self {
        let mark = index.mark();
        Self { index, mark, placement: Placement::default() }
    }

    /// The cards taken so far.
    fn cards(&self) -> Vec<CardId> {
        let mut cards: Vec<CardId> = self.placement.slices().map(|slice| slice.card).collect();
        cards.sort_unstable();
        cards.dedup();
        cards
    }

    /// Takes the shares of one virtual card from the index and writes its workers down, one per node.
    fn take(&mut self, demand: &Demand, member: u32, shares: &[Share]) -> Option<()> {
        let mut workers: Vec<PlannedWorker> = Vec::new();
        let mut compute = 0u64;
        for share in shares {
            let offer = demand.offer_of(self.index.card(share.card)?.class).copied()?;
            self.make_contiguous(share);
            let runs = self.index.take(share.card, share.blocks, share.memory);
            compute = runs.iter().fold(compute, |sum, run| sum.saturating_add(offer.compute_of(run.length.0)));
            let node = share.card.node;
            let position = workers.iter().position(|worker| worker.node == node).unwrap_or_else(|| {
                self.index.take_host(node, demand.host);
                workers.push(PlannedWorker { member, node, slices: Vec::new() });
                workers.len() - 1
            });
            workers[position].slices.extend(slices_of(share, &runs, demand));
        }
        workers.sort_unstable_by_key(|worker| worker.node);
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
