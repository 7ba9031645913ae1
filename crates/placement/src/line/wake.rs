//! What lets shapes be tried again that wait for more than free cards: others that may give way, room in queues,
//! and prices.

use std::collections::BTreeSet;

use super::shape::{Block, LineId, Shape, ShapeId};
use super::shapes::Shapes;
use crate::queues::{Queues, Recallable};
use crate::victims::Standing;

impl Shapes {
    /// A grant that could not give way can now: the shapes for which it might are tried again.
    pub(crate) fn preemptible_appeared(&mut self, standing: &Standing, queues: &Queues) {
        if standing.preemptible
            && let Some(line) = self.line_ids.get(&*standing.queue).copied()
        {
            self.try_line(line, |shape| shape.one.request.priority > standing.priority);
        }
        if queues.has_lent(&standing.queue) {
            self.recall_changed(queues, &Recallable::of_all());
        }
    }

    /// More may be recalled than before: the shapes of the queues that gain by it are tried again, and those of jobs
    /// that gave way before where a guarantee has more room: beyond it they get no more than what others give.
    pub(crate) fn recall_changed(&mut self, queues: &Queues, changed: &Recallable) {
        if changed.is_nothing() {
            return;
        }
        for line in self.lines() {
            if queues.gains(&self.lines[line.0].queue, changed) {
                self.try_line(line, |_| true);
            }
        }
        let may_grow = |id: &ShapeId| self.get(*id).is_some_and(|shape| queues.may_grow(shape.one.queue(), changed));
        let woken: Vec<ShapeId> = self.gave_way.iter().copied().filter(may_grow).collect();
        woken.into_iter().for_each(|id| self.try_again(id));
    }

    /// Tries the shapes of a queue again that wait for capacity or for room in it.
    fn try_line(&mut self, line: LineId, which: impl Fn(&Shape) -> bool) {
        let short = self.lines[line.0].short.iter().map(|(_, id)| *id);
        let in_queue = self.in_queue.iter().copied().filter(|id| self.get(*id).is_some_and(|shape| shape.line == line));
        let woken: BTreeSet<ShapeId> = short.chain(in_queue).collect();
        for id in woken {
            if self.get(id).is_some_and(&which) {
                self.try_again(id);
            }
        }
    }

    /// Some queue has more room: the shapes that wait for that are tried again.
    pub(crate) fn queues_freed(&mut self) {
        while let Some(id) = self.in_queue.first().copied() {
            self.try_again(id);
        }
    }

    /// Prices were made anew: gangs that lack room in their queues, although others could give way there, are tried
    /// again, and gangs that gave way before. What a gang counts for in its queue, and whom it could replace, depends
    /// on the cards that prices choose.
    pub(crate) fn prices_changed(&mut self) {
        let is_gang = |id: &ShapeId| {
            self.get(*id)
                .is_some_and(|shape| shape.one.demand.gang > 1 && matches!(shape.block, Some(Block::Capacity { .. })))
        };
        let gangs: BTreeSet<ShapeId> = self.in_queue.union(&self.gave_way).copied().filter(is_gang).collect();
        gangs.into_iter().for_each(|id| self.try_again(id));
    }
}
