//! Moves jobs to other cards of the same classes, and back, in the view alone.

use std::collections::BTreeSet;

use tessera_ledger::{CardId, NodeId, State};

use super::view::{Largest, Movable, View};

/// Cards of one class that are looked at as targets of one piece.
const TRIED: usize = 64;

/// True if one of the largest sizes that fit has become smaller. Memory of a node does not count: cards whose compute
/// is used up take nobody, so that their memory would be missed by every move that fills a card, which is what moves
/// are for.
pub(super) fn is_worse(before: &Largest, after: &Largest) -> bool {
    before.iter().any(|(kind, before)| {
        let after = after.get(kind).copied().unwrap_or_default();
        before.iter().zip(after).any(|(before, after)| after < *before)
    })
}

/// Moves every piece of a job, in the view alone, to the fullest card of its class that takes it; `None`, and nothing
/// changed, when one finds no place.
pub(super) fn relocate(view: &mut View, state: &State, job: &Movable) -> Option<Vec<CardId>> {
    let sources: BTreeSet<CardId> = job.pieces.iter().map(|piece| piece.card).collect();
    let labels = &state.job(job.id)?.spec.node_labels;
    let mut targets = Vec::with_capacity(job.pieces.len());
    for piece in &job.pieces {
        let target = view.cards.get(&piece.card).map(|card| card.class).and_then(|class| {
            let first = CardId { node: NodeId(0), index: 0 };
            let last = CardId { node: NodeId(u32::MAX), index: u32::MAX };
            let fitting = view.by_free.range((class, piece.blocks, first)..=(class, u32::MAX, last));
            let accepted = |id: &CardId| {
                !sources.contains(id)
                    && view.cards.get(id).is_some_and(|card| card.takes(piece))
                    && state.node(id.node).is_some_and(|node| node.description.carries(labels))
            };
            fitting.map(|(.., id)| *id).take(TRIED).find(accepted)
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
