//! The cards as the search for moves sees them: what each has free, in order, and who could leave it. Only numbers:
//! where on a card a slice goes is settled when its move is written down.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::capacity::CardClass;
use tessera_ledger::{
    AllocationPhase, BlockState, Card, CardId, CardKind, Job, JobId, JobState, LogTime, NodeId, Slice, State,
    WorkerState,
};

use super::measure::free_on;
use super::relocate::is_worse;
use super::{CompactionOrder, PlannedMove};
use tessera_placement::Loss;
use tessera_placement::{Rules, has_company};

/// A card on which blocks may be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CardView {
    pub(super) class: usize,
    pub(super) kind: CardKind,
    pub(super) free: u32,
    pub(super) of: u32,
    /// The longest run that a slice could get; all that is free when the card can be renumbered.
    pub(super) reach: u32,
    pub(super) memory: u64,
    pub(super) of_memory: u64,
    pub(super) slices_left: u32,
    pub(super) used: u32,
}

/// The blocks and memory of one card that one worker of a job holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) virtual_card: u32,
    pub(super) card: CardId,
    pub(super) blocks: u32,
    pub(super) memory: u64,
}

/// A job that could be moved.
#[derive(Clone, Debug)]
pub(super) struct Movable {
    pub(super) id: JobId,
    pub(super) pieces: Vec<Piece>,
    pub(super) loss: Loss,
}

/// Everything that the search looks at.
pub(super) struct View {
    pub(super) cards: BTreeMap<CardId, CardView>,
    /// Cards by class and free blocks.
    pub(super) by_free: BTreeSet<(usize, u32, CardId)>,
    /// Jobs that could be moved.
    pub(super) jobs: BTreeMap<JobId, Movable>,
    /// The movable jobs that hold something of a card.
    pub(super) on_card: BTreeMap<CardId, BTreeSet<JobId>>,
    per_kind: BTreeMap<CardKind, Tops>,
    node_rooms: BTreeMap<(CardKind, NodeId), u64>,
}

/// The cards and nodes of a kind by what they have free.
#[derive(Clone, Debug, Default)]
struct Tops {
    card_blocks: BTreeSet<(u64, CardId)>,
    card_memory: BTreeSet<(u64, CardId)>,
    node_blocks: BTreeSet<(u64, NodeId)>,
    /// Free blocks of all cards.
    blocks: u64,
}

/// The largest that fits, by kind: blocks and memory of a card, blocks of a node and of the pool.
pub(super) type Largest = BTreeMap<CardKind, [u64; 4]>;

impl View {
    pub(super) fn new(state: &State, now: LogTime, order: &CompactionOrder) -> Self {
        let mut view = Self {
            cards: BTreeMap::new(),
            by_free: BTreeSet::new(),
            jobs: BTreeMap::new(),
            on_card: BTreeMap::new(),
            per_kind: BTreeMap::new(),
            node_rooms: BTreeMap::new(),
        };
        let mut classes: BTreeMap<(CardClass, u32), usize> = BTreeMap::new();
        for (id, card) in state.cards() {
            let next = classes.len();
            let class = *classes.entry((CardClass::of(card), card.blocks.0)).or_insert(next);
            if let Some(seen) = view_of(state, id, card, class) {
                view.put(id, seen);
            }
        }
        for allocation in state.allocations() {
            let Some(job) = state.job(allocation.job) else { continue };
            if let Some(pieces) = movable(state, job, now, order) {
                for piece in &pieces {
                    view.on_card.entry(piece.card).or_default().insert(job.id);
                }
                view.jobs.insert(job.id, Movable { id: job.id, pieces, loss: Loss::of(state, job, now) });
            }
        }
        view
    }

    /// Reads a card again.
    pub(super) fn read(&mut self, state: &State, id: CardId) {
        let fresh = state.card(id).zip(self.cards.get(&id)).and_then(|(card, old)| view_of(state, id, card, old.class));
        if let Some(fresh) = fresh {
            self.put(id, fresh);
        }
    }

    /// Leaves a job where it is.
    pub(super) fn settle(&mut self, job: JobId) {
        let Some(settled) = self.jobs.remove(&job) else { return };
        for piece in settled.pieces {
            if let Some(holders) = self.on_card.get_mut(&piece.card) {
                holders.remove(&job);
            }
        }
    }

    fn put(&mut self, id: CardId, card: CardView) {
        if let Some(old) = self.cards.insert(id, card) {
            self.link(id, old, false);
        }
        self.link(id, card, true);
    }

    fn link(&mut self, id: CardId, card: CardView, add: bool) {
        let (blocks, memory) = if card.free > 0 { (u64::from(card.free), card.memory) } else { (0, 0) };
        let room = self.node_rooms.entry((card.kind, id.node)).or_default();
        let before = *room;
        *room = if add { before + blocks } else { before - blocks };
        let after = *room;
        let tops = self.per_kind.entry(card.kind).or_default();
        tops.node_blocks.remove(&(before, id.node));
        tops.node_blocks.insert((after, id.node));
        tops.blocks = if add { tops.blocks + blocks } else { tops.blocks - blocks };
        if add {
            tops.card_blocks.insert((blocks, id));
            tops.card_memory.insert((memory, id));
            self.by_free.insert((card.class, card.free, id));
        } else {
            tops.card_blocks.remove(&(blocks, id));
            tops.card_memory.remove(&(memory, id));
            self.by_free.remove(&(card.class, card.free, id));
        }
    }

    pub(super) fn largest(&self) -> Largest {
        let of = |tops: &Tops| {
            let card = |set: &BTreeSet<(u64, CardId)>| set.last().map_or(0, |(room, _)| *room);
            let node = |set: &BTreeSet<(u64, NodeId)>| set.last().map_or(0, |(room, _)| *room);
            [card(&tops.card_blocks), card(&tops.card_memory), node(&tops.node_blocks), tops.blocks]
        };
        self.per_kind.iter().map(|(kind, tops)| (*kind, of(tops))).collect()
    }

    /// True if these moves would make one of the largest sizes that fit smaller.
    pub(super) fn would_be_worse(&mut self, moves: &[PlannedMove]) -> bool {
        let before = self.largest();
        let taken = moves.iter().flat_map(|planned| planned.workers.iter().flat_map(|worker| &worker.slices));
        let left = moves.iter().flat_map(|planned| &planned.from);
        let changes: Vec<(Slice, bool)> =
            taken.map(|slice| (*slice, true)).chain(left.map(|slice| (*slice, false))).collect();
        let touched: BTreeSet<CardId> = changes.iter().map(|(slice, _)| slice.card).collect();
        let known: Vec<(CardId, CardView)> =
            touched.into_iter().filter_map(|card| Some((card, *self.cards.get(&card)?))).collect();
        for (slice, take) in changes {
            let piece = Piece { virtual_card: 0, card: slice.card, blocks: slice.length.0, memory: slice.memory.0 };
            self.shift(slice.card, &piece, take);
        }
        let worse = is_worse(&before, &self.largest());
        known.into_iter().for_each(|(card, seen)| self.put(card, seen));
        worse
    }

    /// Takes, or gives back, what a piece holds on a card; a card of which nothing may be granted is left alone.
    pub(super) fn shift(&mut self, card: CardId, piece: &Piece, take: bool) {
        let Some(old) = self.cards.get(&card).copied() else { return };
        let mut new = old;
        if take {
            new.free = old.free.saturating_sub(piece.blocks);
            new.reach = old.reach.saturating_sub(piece.blocks);
            new.memory = old.memory.saturating_sub(piece.memory);
            new.slices_left = old.slices_left.saturating_sub(1);
            new.used = old.used.saturating_add(piece.blocks);
        } else {
            new.free = old.free.saturating_add(piece.blocks);
            new.reach = old.reach.saturating_add(piece.blocks);
            new.memory = old.memory.saturating_add(piece.memory);
            new.slices_left = old.slices_left.saturating_add(1);
            new.used = old.used.saturating_sub(piece.blocks);
        }
        self.put(card, new);
    }
}

impl CardView {
    /// True if a piece could come here now.
    pub(super) fn takes(&self, piece: &Piece) -> bool {
        self.reach >= piece.blocks && self.memory >= piece.memory && self.slices_left > 0
    }

    /// The value of this card's free room lying together: the squares of its shares, in millionths.
    pub(super) fn worth(&self) -> u64 {
        let share = |free: u64, of: u64| (free * 1_000).checked_div(of).unwrap_or(0);
        let (blocks, memory) = (share(u64::from(self.free), u64::from(self.of)), share(self.memory, self.of_memory));
        blocks * blocks + memory * memory
    }
}

fn view_of(state: &State, id: CardId, card: &Card, class: usize) -> Option<CardView> {
    let free = free_on(state, id)?;
    let longest = card.extents.as_slice().iter().filter(|extent| extent.state == BlockState::Free);
    let longest = longest.map(|extent| extent.length.0).max().unwrap_or(0);
    let limit = card.description.max_slices;
    Some(CardView {
        class,
        kind: card.description.kind,
        free: free.blocks,
        of: free.of,
        reach: if can_renumber(card) { free.blocks } else { longest },
        memory: free.memory,
        of_memory: free.of_memory,
        slices_left: if limit == 0 { u32::MAX / 2 } else { limit.saturating_sub(card.slices) },
        used: card.extents.as_slice().iter().filter(|extent| extent.state.owner().is_some()).map(|e| e.length.0).sum(),
    })
}

/// True if the ledger would renumber the card now (P7).
pub(super) fn can_renumber(card: &Card) -> bool {
    card.memory_promised.0 == 0
        && card.extents.as_slice().iter().all(|extent| match extent.state {
            BlockState::Held(_) | BlockState::Running(_) | BlockState::Free => true,
            BlockState::Draining { next, .. } => next.is_none(),
            BlockState::Offline => extent.end() == card.extents.length().0,
            BlockState::Lost(_) => false,
        })
}

/// The pieces of a job, if it may be moved.
fn movable(state: &State, job: &Job, now: LogTime, order: &CompactionOrder) -> Option<Vec<Piece>> {
    let rules = Rules { order, now, stay: &BTreeSet::new() };
    if has_company(job) || job.spec.virtual_card.whole_cards || !rules.allow(job) {
        return None;
    }
    pieces_of(state, job)
}

/// The pieces of a running job; `None` unless each worker holds one card and each virtual card has one worker.
fn pieces_of(state: &State, job: &Job) -> Option<Vec<Piece>> {
    let allocation = state.allocation(job.allocation?)?;
    let in_force = job.state == JobState::Running && allocation.phase == AllocationPhase::Active;
    if !in_force || allocation.workers.iter().any(|worker| worker.state != WorkerState::Running) {
        return None;
    }
    let mut pieces: Vec<Piece> = Vec::with_capacity(allocation.workers.len());
    for worker in allocation.workers.iter() {
        let first = worker.slices.first()?;
        let alone = worker.slices.iter().all(|slice| slice.card == first.card);
        if !alone || pieces.last().is_some_and(|last| last.virtual_card == worker.virtual_card) {
            return None;
        }
        let blocks = worker.slices.iter().map(|slice| slice.length.0).sum();
        let memory = worker.slices.iter().map(|slice| slice.memory.0).sum();
        pieces.push(Piece { virtual_card: worker.virtual_card, card: first.card, blocks, memory });
    }
    Some(pieces)
}
