//! Where jobs could go instead, and which of them must go so that a waiting job fits.

use std::collections::BTreeSet;

use tessera_ledger::capacity::CardClass;
use tessera_ledger::{CardId, Job, JobId, Span, State};

use super::view::{CardView, Largest, Movable, Piece, View};
use super::{Found, Only};
use crate::pool::Pool;
use crate::why::WaitCode;

/// Cards of one class that are looked at as targets of one piece, and as the place for a waiting job.
const TRIED: usize = 64;

/// Whether something has become smaller that fits. What a node has of memory does not count: cards whose compute is used up take
/// nobody, so that their memory would be missed by every move that fills a card, which is what moves are for.
pub(super) fn is_worse(before: &Largest, after: &Largest) -> bool {
    before.iter().any(|(kind, before)| {
        let after = after.get(kind).copied().unwrap_or_default();
        before.iter().zip(after).any(|(before, after)| after < *before)
    })
}

/// Moves every piece of a job, in the view alone, to the fullest card of its class that takes it; `None`, and nothing changed,
/// when one finds no place. `keep` refuses cards.
pub(super) fn relocate(
    view: &mut View,
    state: &State,
    job: &Movable,
    only: Only,
    keep: impl Fn(CardId, (&CardView, &Piece)) -> bool,
) -> Option<Vec<CardId>> {
    let sources: BTreeSet<CardId> = job.pieces.iter().map(|piece| piece.card).collect();
    let labels = &state.job(job.id)?.spec.node_labels;
    let mut targets = Vec::with_capacity(job.pieces.len());
    for piece in &job.pieces {
        let target = view.cards.get(&piece.card).map(|card| card.class).and_then(|class| {
            let first = CardId { node: tessera_ledger::NodeId(0), index: 0 };
            let last = CardId { node: tessera_ledger::NodeId(u32::MAX), index: u32::MAX };
            let fitting = view.by_free.range((class, piece.blocks, first)..=(class, u32::MAX, last));
            let accepted = |id: &CardId| {
                !sources.contains(id)
                    && only.is_none_or(|node| node == id.node)
                    && view.cards.get(id).is_some_and(|card| card.takes(piece) && keep(*id, (card, piece)))
                    && state.node(id.node).is_some_and(|node| {
                        labels.iter().all(|(key, value)| node.description.labels.get(key) == Some(value))
                    })
            };
            let tried = if only.is_some() { usize::MAX } else { TRIED };
            fitting.map(|(.., id)| *id).take(tried).find(accepted)
        });
        let Some(target) = target else {
            for (piece, target) in job.pieces.iter().zip(&targets) {
                view.shift(*target, piece, false);
            }
            return None;
        };
        view.shift(target, piece, true);
        targets.push(target);
    }
    job.pieces.iter().for_each(|piece| view.shift(piece.card, piece, false));
    Some(targets)
}

/// Undoes [`relocate`].
pub(super) fn put_back(view: &mut View, job: &Movable, targets: &[CardId]) {
    for (piece, target) in job.pieces.iter().zip(targets) {
        view.shift(piece.card, piece, true);
        view.shift(*target, piece, false);
    }
}

/// Whether a waiting job is one that moves could help: enough is free in all, but not together on one card.
pub(super) fn is_scattered(pool: &mut Pool, state: &State, job: &Job) -> bool {
    job.spec.virtual_card.span == Span::Card && pool.explain(state, job, state.time()).code == WaitCode::Fragmented
}

/// What a waiting job asks of each card.
struct Need<'a> {
    state: &'a State,
    job: &'a Job,
}

impl Need<'_> {
    /// Blocks that it needs of a card; `None` when it does not take the card.
    fn blocks(&self, id: CardId) -> Option<u32> {
        let (card, node) = (self.state.card(id)?, self.state.node(id.node)?);
        let spec = &self.job.spec;
        let labelled = spec.node_labels.iter().all(|(key, value)| node.description.labels.get(key) == Some(value));
        let request = &spec.virtual_card;
        let precision = request.precision.unwrap_or(self.state.config().reference_precision);
        let blocks = card.blocks_for(request.compute, precision)?.0.max(1);
        (labelled && blocks <= card.blocks.0 && CardClass::of(card).is_accepted_by(spec)).then_some(blocks)
    }

    /// How many of its virtual cards a card could back now.
    fn rooms(&self, id: CardId, card: &CardView) -> u32 {
        let Some(blocks) = self.blocks(id) else { return 0 };
        let memory = card.memory.checked_div(self.job.spec.virtual_card.memory_on_one_card().0).unwrap_or(u64::MAX);
        (card.reach / blocks).min(u32::try_from(memory).unwrap_or(u32::MAX)).min(card.slices_left)
    }
}

/// Finds the fewest moves, at most `most`, after which every virtual card of a waiting job has a place. The view is left as if they were
/// made; when there are none, as it was.
pub(super) fn make_room(view: &mut View, state: &State, job: &Job, most: u32) -> Option<Vec<Found>> {
    let need = Need { state, job };
    let rooms: u64 = view.cards.iter().map(|(id, card)| u64::from(need.rooms(*id, card))).sum();
    let missing = u64::from(job.spec.gang).checked_sub(rooms).filter(|missing| *missing > 0)?;
    let largest = view.largest();
    let mut steps: Vec<Found> = Vec::new();
    for _ in 0..missing {
        let left = most.saturating_sub(u32::try_from(steps.len()).unwrap_or(u32::MAX));
        let Some(cleared) = clear_best(view, &need, &steps, left) else {
            undo(view, &steps);
            return None;
        };
        steps.extend(cleared);
    }
    if is_worse(&largest, &view.largest()) {
        undo(view, &steps);
        return None;
    }
    // Written down one by one, each from what is really there.
    undo(view, &steps);
    Some(steps)
}

fn undo(view: &mut View, steps: &[Found]) {
    for step in steps.iter().rev() {
        put_back(view, &step.job, &step.targets);
    }
}

/// Clears, on the card where that costs least, room for one more virtual card.
fn clear_best(view: &mut View, need: &Need<'_>, before: &[Found], most: u32) -> Option<Vec<Found>> {
    let gone: BTreeSet<JobId> = before.iter().map(|step| step.job.id).collect();
    let mut best: Option<((usize, u64, CardId), Vec<Found>)> = None;
    for id in places(view, need) {
        let Some(steps) = clear(view, need, id, &gone) else { continue };
        undo(view, &steps);
        let lost = steps.iter().map(|step| step.job.loss.tflops_seconds()).sum();
        let key = (steps.len(), lost, id);
        if steps.len() <= most as usize && best.as_ref().is_none_or(|(known, _)| key < *known) {
            best = Some((key, steps));
        }
    }
    let (_, steps) = best?;
    for step in &steps {
        for (piece, target) in step.job.pieces.iter().zip(&step.targets) {
            view.shift(*target, piece, true);
            view.shift(piece.card, piece, false);
        }
    }
    Some(steps)
}

/// Cards that the job takes, those with most free room first, class by class.
fn places(view: &View, need: &Need<'_>) -> Vec<CardId> {
    let mut tried: std::collections::BTreeMap<usize, usize> = Default::default();
    let mut places = Vec::new();
    for (class, _, id) in view.by_free.iter().rev() {
        let count = tried.entry(*class).or_default();
        if *count < TRIED && need.blocks(*id).is_some() {
            *count += 1;
            places.push(*id);
        }
    }
    places
}

/// Moves jobs from a card until it has room for one more virtual card than now; undone when that cannot be.
fn clear(view: &mut View, need: &Need<'_>, id: CardId, gone: &BTreeSet<JobId>) -> Option<Vec<Found>> {
    let rooms = view.cards.get(&id).map(|card| need.rooms(id, card))?;
    let mut holders: Vec<Movable> = view
        .on_card
        .get(&id)?
        .iter()
        .filter(|job| !gone.contains(job))
        .filter_map(|job| view.jobs.get(job).cloned())
        .collect();
    let on_card = |job: &Movable| -> u32 { job.pieces.iter().filter(|p| p.card == id).map(|p| p.blocks).sum() };
    // Whoever loses nothing goes first, then whoever gives most room at once.
    holders.sort_by_key(|job| (job.loss.tflops_seconds(), std::cmp::Reverse(on_card(job)), job.id));
    let mut steps: Vec<Found> = Vec::new();
    for job in holders {
        // The places that the waiting job has elsewhere stay.
        let keep = |target: CardId, (card, piece): (&CardView, &Piece)| {
            let mut less = *card;
            (less.reach, less.memory) = (less.reach - piece.blocks, less.memory - piece.memory);
            less.slices_left -= 1;
            target != id && need.rooms(target, &less) >= need.rooms(target, card)
        };
        let Some(targets) = relocate(view, need.state, &job, None, keep) else { continue };
        steps.push(Found { job, targets });
        if view.cards.get(&id).is_some_and(|card| need.rooms(id, card) > rooms) {
            return Some(spare(view, need, id, rooms, steps));
        }
    }
    undo(view, &steps);
    None
}

/// Leaves out the moves without which there is room too.
fn spare(view: &mut View, need: &Need<'_>, id: CardId, rooms: u32, mut steps: Vec<Found>) -> Vec<Found> {
    let mut place = 0;
    while place < steps.len() {
        let step = steps[place].clone();
        put_back(view, &step.job, &step.targets);
        if view.cards.get(&id).is_some_and(|card| need.rooms(id, card) > rooms) {
            steps.remove(place);
            continue;
        }
        for (piece, target) in step.job.pieces.iter().zip(&step.targets) {
            view.shift(*target, piece, true);
            view.shift(piece.card, piece, false);
        }
        place += 1;
    }
    steps
}
