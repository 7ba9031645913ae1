//! Retries: a request that did not start is left alone until something happens that could let it start. What that may
//! be follows from why it did not start, and is said in one place: its *hopes*. Whatever happens fulfils some hopes;
//! what had one of them is tried again.
//!
//! | it did not start because | and hopes for |
//! |---|---|
//! | the round was cut short, or forbade it | the next round |
//! | its queue is full | room in queues; somebody who may give way for it |
//! | too little is free | a card with more room; somebody who may give way for it |
//! | and its program may be on any host | a host with more room |
//! | and whoever would give way is protected for now | the end of that as well |
//! | and its queue would be too full in any case | room in queues as well |
//! | and its jobs gave way before, so that no loan may grow for them | a guarantee with more room as well |
//!
//! Hopes for cards are kept by class and by the blocks that a card must have ([`Shapes::freed`]), because cards become
//! free more often than all else happens.

use tessera_ledger::LogTime;

use super::shapes::{Block, LineId, Shape, ShapeId, Shapes};
use crate::queues::{Queues, Recallable};
use crate::victims::Standing;

/// An event that could let a request start, beside a card with more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hope {
    /// The next round.
    Round,
    At(LogTime),
    QueueRoom,
    /// A guarantee with more room.
    Growth,
    /// A host with more room, whatever cards it has.
    HostRoom,
    /// Somebody more who may give way for the jobs of this line.
    Victims(LineId),
}

impl Shape {
    /// The events that could let it start while it is blocked by `block`.
    pub(super) fn hopes(&self, block: Block) -> impl Iterator<Item = Hope> + use<> {
        let victims = Some(Hope::Victims(self.line));
        let hopes = match block {
            Block::Round { .. } => [Some(Hope::Round), None, None, None, None],
            Block::Queue => [Some(Hope::QueueRoom), victims, None, None, None],
            Block::Capacity { retry_at, in_queue, over_maximum, .. } => [
                (in_queue || over_maximum).then_some(Hope::QueueRoom),
                victims,
                retry_at.map(Hope::At),
                self.one.request.gave_way.then_some(Hope::Growth),
                self.one.request.program.map(|_| Hope::HostRoom),
            ],
        };
        hopes.into_iter().flatten()
    }
}

impl Shapes {
    /// A round begins: what hoped for that is tried again, and what hoped for a time that has come.
    pub(super) fn advance(&mut self, now: LogTime) {
        self.fulfil(Hope::Round, Hope::At(now), |_| true);
    }

    /// The time at which the next shape is to be tried again for the passing of time.
    pub(super) fn next_retry(&self) -> Option<LogTime> {
        self.hoping(Hope::At(LogTime(0)), Hope::At(LogTime(u64::MAX))).find_map(|(hope, _)| match hope {
            Hope::At(time) => Some(time),
            _ => None,
        })
    }

    /// Some queue has more room.
    pub(crate) fn queues_freed(&mut self) {
        self.fulfil(Hope::QueueRoom, Hope::QueueRoom, |_| true);
    }

    /// Some host has more room than before.
    pub(crate) fn hosts_freed(&mut self) {
        self.fulfil(Hope::HostRoom, Hope::HostRoom, |_| true);
    }

    /// A grant that could not give way can now, or to more: for higher precedences of its queue, and if that has lent
    /// anything for whoever may recall.
    pub(crate) fn preemptible_appeared(&mut self, standing: &Standing, queues: &Queues) {
        if let Some(line) = self.line_of_queue(&standing.queue).filter(|_| standing.preemptible) {
            let is_higher = |shape: &Shape| shape.one.request.precedence > standing.precedence;
            self.fulfil(Hope::Victims(line), Hope::Victims(line), is_higher);
        }
        if queues.has_lent(&standing.queue) {
            self.recall_changed(queues, &Recallable::of_all());
        }
    }

    /// More may be recalled than before: by the queues that gain by it. And where a guarantee has more room, those that
    /// gave way before may start without more on loan.
    pub(crate) fn recall_changed(&mut self, queues: &Queues, changed: &Recallable) {
        if changed.is_nothing() {
            return;
        }
        for line in self.lines().filter(|line| queues.gains(&self.line(*line).queue, changed)).collect::<Vec<_>>() {
            self.fulfil(Hope::Victims(line), Hope::Victims(line), |_| true);
        }
        self.fulfil(Hope::Growth, Hope::Growth, |shape| queues.may_grow(shape.one.queue(), changed));
    }

    /// Prices were made anew. What a gang counts for in its queue, and whom it could replace, depends on the cards that
    /// prices choose.
    pub(crate) fn prices_changed(&mut self) {
        self.fulfil(Hope::QueueRoom, Hope::Growth, |shape| shape.one.demand.gang > 1 && shape.is_short());
    }

    /// Returns whether anything hopes for somebody to give way, or for room: then cards matter.
    pub(crate) fn is_anything_short(&self) -> bool {
        self.hoping(Hope::Victims(LineId(0)), Hope::Victims(LineId(usize::MAX))).next().is_some()
    }

    /// The hopes between two, and who has them.
    fn hoping(&self, from: Hope, to: Hope) -> impl Iterator<Item = (Hope, ShapeId)> {
        self.hopes.range((from, ShapeId(0))..=(to, ShapeId(usize::MAX))).copied()
    }

    /// Tries those again that had one of the hopes between two, as far as it is fulfilled for them.
    fn fulfil(&mut self, from: Hope, to: Hope, which: impl Fn(&Shape) -> bool) {
        let had = self.hoping(from, to).map(|(_, id)| id).filter(|id| self.get(*id).is_some_and(&which));
        let woken: Vec<ShapeId> = had.collect();
        woken.into_iter().for_each(|id| self.try_again(id));
    }
}
