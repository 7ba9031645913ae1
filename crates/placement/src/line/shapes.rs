//! Shapes: jobs that ask for the same. If one of a shape does not fit, none of it does, and it is left alone until
//! something it could use is freed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{Job, LogTime, PoolConfig, Span, State};

use super::retry::Hope;
use crate::demand::Applicant;
use crate::index::card::CardEntry;
use crate::index::class::{ClassId, Classes};
use crate::index::{Index, put};
use crate::queues::Queues;
use crate::request::Request;
use crate::victims::{Standing, Victims};

/// Most shapes that are remembered without a job, because another such job often follows soon.
const MOST_IDLE: usize = 1024;

/// Number of a shape in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeId(pub(crate) usize);

/// Number of a queue's line in one index; carries no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) usize);

/// The reason why the first job of a shape could not start when it was tried last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Nothing free is large enough, and nobody may be made to give way for it.
    Capacity {
        /// The earliest time at which a job that is protected now can be preempted again.
        retry_at: Option<LogTime>,
        /// True if room in its queue would help as well.
        in_queue: bool,
        /// True if victims were passed over because its queue, or one above it, would hold more than its maximum.
        over_maximum: bool,
        /// Virtual cards for which there was no room: so many must find some before another try makes sense.
        missing: u32,
    },
    /// Its queue, or one above it, cannot take even the least that the job could be granted.
    Queue,
    /// Something in the present round forbids it; it is tried again in the next.
    Round {
        /// True if only the round's limits, or its plan so far, forbid it: then another round follows.
        cut_short: bool,
    },
}

/// Jobs that ask for the same.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Any one of them, against the present classes: they are alike in all that matters here.
    pub(crate) one: Arc<Applicant>,
    pub(crate) line: LineId,
    /// Jobs that may start now, in line order.
    pub(crate) jobs: BTreeSet<WaitingKey>,
    /// Jobs of this shape that wait for their backoff or were granted in an unconfirmed plan, beside `jobs`.
    pub(crate) others: usize,
    /// The reason why the first one cannot start; `None`: to be tried.
    pub(crate) block: Option<Block>,
    /// The pool's count of prospects when it had no cards that could be kept for the shape, even if everything on
    /// them ended.
    pub(crate) hopeless_at: Option<u64>,
}

impl Shape {
    /// The first job in line.
    fn head(&self) -> Option<WaitingKey> {
        self.jobs.first().copied()
    }

    /// Returns whether it waits for capacity.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.block, Some(Block::Capacity { .. }))
    }
}

/// The shapes of one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueLine {
    pub(crate) queue: String,
    /// First jobs of the shapes that are to be tried.
    ready: BTreeSet<(WaitingKey, ShapeId)>,
    /// First jobs of the shapes that wait for capacity.
    short: BTreeSet<(WaitingKey, ShapeId)>,
    /// First jobs of the shapes that wait for room in the queue.
    full: BTreeSet<(WaitingKey, ShapeId)>,
}

impl QueueLine {
    /// The first job to be tried.
    pub(crate) fn first_ready(&self) -> Option<(WaitingKey, ShapeId)> {
        self.ready.first().copied()
    }

    /// The first job behind `after` that waits for capacity.
    pub(crate) fn short_after(&self, after: Option<WaitingKey>) -> Option<(WaitingKey, ShapeId)> {
        first_after(&self.short, after)
    }

    /// The first job behind `after` that waits for anything.
    pub(crate) fn blocked_after(&self, after: Option<WaitingKey>) -> Option<(WaitingKey, ShapeId)> {
        first_after(&self.short, after).into_iter().chain(first_after(&self.full, after)).min()
    }

    /// The first jobs of all shapes that are to be tried or wait for anything.
    pub(crate) fn all(&self) -> impl Iterator<Item = (WaitingKey, ShapeId)> {
        let next = |after| first_after(&self.ready, after).into_iter().chain(self.blocked_after(after)).min();
        std::iter::successors(next(None), move |(key, _)| next(Some(*key)))
    }
}

fn first_after(set: &BTreeSet<(WaitingKey, ShapeId)>, after: Option<WaitingKey>) -> Option<(WaitingKey, ShapeId)> {
    let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded((key, ShapeId(usize::MAX))));
    set.range((from, Bound::Unbounded)).next().copied()
}

/// All shapes, each in the sets that its first job and its block call for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes {
    table: Vec<Option<Shape>>,
    unused: Vec<ShapeId>,
    ids: BTreeMap<Arc<Request>, ShapeId>,
    /// Shapes that have no job now; they are in no list by class.
    idle: BTreeSet<ShapeId>,
    lines: Vec<QueueLine>,
    line_ids: BTreeMap<String, LineId>,
    /// Lines whose first jobs have changed.
    changed: BTreeSet<LineId>,
    /// Hopes of the shapes that did not start.
    pub(super) hopes: BTreeSet<(Hope, ShapeId)>,
    /// All shapes by the classes that they accept and the blocks that a card must have for one virtual card; none where
    /// it may spread.
    by_need: BTreeMap<ClassId, BTreeSet<(u32, ShapeId)>>,
    /// Number of classes that the demands were compiled against.
    classes: usize,
}

impl Shapes {
    /// The shape of a job; it may be forgotten again when the last job has left it.
    pub(super) fn intern(&mut self, state: &State, job: &Job, classes: &Classes) -> ShapeId {
        let request = Request::of(&job.spec, state.precedence_of(job, state.time()), job.gave_way());
        if let Some(id) = self.ids.get(&request).copied() {
            if self.idle.remove(&id) {
                self.list(id, true);
            }
            return id;
        }
        let one = Arc::new(Applicant::with(&job.spec, Arc::new(request), classes, state.config()));
        let (request, line) = (Arc::clone(&one.request), self.enter_line(one.queue()));
        let shape = Shape { one, line, jobs: BTreeSet::new(), others: 0, block: None, hopeless_at: None };
        let id = self.unused.pop().unwrap_or(ShapeId(self.table.len()));
        if id.0 == self.table.len() {
            self.table.push(Some(shape));
        } else {
            self.table[id.0] = Some(shape);
        }
        self.ids.insert(request, id);
        self.list(id, true);
        id
    }

    fn enter_line(&mut self, queue: &str) -> LineId {
        if let Some(id) = self.line_ids.get(queue) {
            return *id;
        }
        let id = LineId(self.lines.len());
        self.lines.push(QueueLine { queue: queue.to_owned(), ..QueueLine::default() });
        self.line_ids.insert(queue.to_owned(), id);
        id
    }

    /// The line of a queue, if anybody ever waited in it.
    pub(crate) fn line_of_queue(&self, queue: &str) -> Option<LineId> {
        self.line_ids.get(queue).copied()
    }

    pub(crate) fn line(&self, id: LineId) -> &QueueLine {
        &self.lines[id.0]
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = LineId> + use<> {
        (0..self.lines.len()).map(LineId)
    }

    /// The lines whose first jobs have changed since this was asked last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<LineId> {
        std::mem::take(&mut self.changed)
    }

    /// Enters a shape into the lists by class, or takes it out.
    fn list(&mut self, id: ShapeId, enter: bool) {
        let Some(Some(shape)) = self.table.get(id.0) else { return };
        for offer in &shape.one.demand.offers {
            let need = if shape.one.demand.span == Span::Card { offer.need } else { 0 };
            put(self.by_need.entry(offer.class).or_default(), (need, id), enter);
        }
    }

    /// Counts a job in its shape, or takes it out; `key`: where it stands, if it is in line. Where others of the shape
    /// do not fit, it does not either.
    pub(super) fn count(&mut self, id: ShapeId, key: Option<WaitingKey>, enter: bool) {
        self.change(id, |shape| match key {
            Some(key) => put(&mut shape.jobs, key, enter),
            None if enter => shape.others += 1,
            None => shape.others -= 1,
        });
        // Without a job in line nothing is kept track of: the next one is tried.
        if self.get(id).is_some_and(|shape| shape.jobs.is_empty()) {
            self.try_again(id);
        }
        self.rest_if_empty(id);
    }

    /// Takes a shape without jobs out of the lists by class; forgets one when there are too many such.
    fn rest_if_empty(&mut self, id: ShapeId) {
        if self.get(id).is_some_and(|shape| shape.jobs.is_empty() && shape.others == 0) {
            self.list(id, false);
            self.idle.insert(id);
        }
        while self.idle.len() > MOST_IDLE
            && let Some(id) = self.idle.pop_first()
            && let Some(shape) = self.table[id.0].take()
        {
            self.ids.remove(&shape.one.request);
            self.unused.push(id);
        }
    }

    /// Changes a shape and keeps it in the right sets.
    fn change(&mut self, id: ShapeId, change: impl FnOnce(&mut Shape)) {
        let Some(Some(shape)) = self.table.get_mut(id.0) else { return };
        let before = (shape.head(), shape.block);
        change(shape);
        let after = (shape.head(), shape.block);
        if after != before {
            self.file(id, before, false);
            self.file(id, after, true);
        }
    }

    /// Enters a shape into the sets that its head and block call for, or takes it out of them.
    fn file(&mut self, id: ShapeId, (head, block): (Option<WaitingKey>, Option<Block>), enter: bool) {
        let Some(Some(shape)) = self.table.get(id.0) else { return };
        let line = &mut self.lines[shape.line.0];
        let set = match block {
            None => Some(&mut line.ready),
            Some(Block::Capacity { .. }) => Some(&mut line.short),
            Some(Block::Queue) => Some(&mut line.full),
            Some(Block::Round { .. }) => None,
        };
        if let (Some(set), Some(head)) = (set, head) {
            put(set, (head, id), enter);
        }
        self.changed.insert(shape.line);
        block.into_iter().flat_map(|block| shape.hopes(block)).for_each(|hope| put(&mut self.hopes, (hope, id), enter));
    }

    pub(crate) fn get(&self, id: ShapeId) -> Option<&Shape> {
        self.table.get(id.0)?.as_ref()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Shape> {
        self.table.iter().flatten()
    }

    pub(crate) fn block(&mut self, id: ShapeId, block: Block) {
        self.change(id, |shape| shape.block = Some(block));
    }

    /// Notes that the pool has no cards that could be kept for a shape, until its count of prospects is another.
    pub(crate) fn has_no_cards(&mut self, id: ShapeId, prospects: u64) {
        if let Some(Some(shape)) = self.table.get_mut(id.0) {
            shape.hopeless_at = Some(prospects);
        }
    }

    pub(crate) fn try_again(&mut self, id: ShapeId) {
        self.change(id, |shape| shape.block = None);
    }

    /// A card has more room: the shapes that could use it, be it by making what else is on it give way, are tried
    /// again; not those of the line `but`.
    pub(crate) fn freed(&mut self, card: &CardEntry, victims: &Victims, queues: &Queues, but: Option<LineId>) {
        if !self.is_anything_short() {
            return;
        }
        let held = card.holders.iter().filter_map(|(holder, blocks)| Some((victims.standing(*holder)?, *blocks)));
        let held: Vec<(&Standing, u32)> = held.collect();
        let reach = |shape: &Shape| {
            let (queue, free) = (shape.one.queue(), card.free.total());
            let gives = |standing: &Standing| match &*standing.queue == queue {
                true => standing.preemptible && standing.precedence < shape.one.request.precedence,
                false => queues.may_recall(queue),
            };
            held.iter().filter(|(holder, _)| gives(holder)).fold(free, |sum, (_, blocks)| sum.saturating_add(*blocks))
        };
        // For how many virtual cards of the shape the card has room now; any number where they may spread.
        let rooms = |need: u32, shape: &Shape| {
            let free = card.room_for(need, shape.one.demand.memory);
            match need {
                0 => u32::MAX,
                _ if held.is_empty() => free,
                need => free.max(reach(shape) / need),
            }
        };
        let all = held.iter().fold(card.free.total(), |sum, (_, blocks)| sum.saturating_add(*blocks));
        let most = card.offered().max(all).saturating_add(1);
        let waits = |id: &ShapeId| self.get(*id).filter(|shape| Some(shape.line) != but && shape.is_short());
        let could_use = self.by_need.get(&card.class).into_iter().flat_map(|set| set.range(..(most, ShapeId(0))));
        let woken = could_use.filter_map(|(need, id)| Some((*id, rooms(*need, waits(id)?))));
        let woken: Vec<(ShapeId, u32)> = woken.filter(|(_, rooms)| *rooms > 0).collect();
        for (id, rooms) in woken {
            self.change(id, |shape| match &mut shape.block {
                Some(Block::Capacity { missing, .. }) if *missing > rooms => *missing -= rooms,
                block => *block = None,
            });
        }
    }

    /// Compiles all requests anew when the index knows further classes.
    pub(crate) fn recompile(&mut self, index: &Index, config: &PoolConfig) {
        if self.classes == index.classes.len() {
            return;
        }
        self.classes = index.classes.len();
        for id in (0..self.table.len()).map(ShapeId) {
            self.try_again(id);
            self.list(id, false);
            if let Some(Some(shape)) = self.table.get_mut(id.0) {
                let request = Arc::clone(&shape.one.request);
                shape.one = Arc::new(Applicant::with(&shape.one.spec, request, &index.classes, config));
            }
            self.list(id, !self.idle.contains(&id));
        }
    }
}
