//! Cards kept free during a round of decisions, for the first jobs of a few queues that have waited long enough for capacity.
//!
//! A reservation comes into force when the order of jobs passes its holder, and then holds for all jobs behind it. A job behind it may
//! use the cards all the same if by its time limit it is over before everything that holds them now: it delays nobody.
//!
//! Queues take turns, and whoever comes first takes its pick of the cards to keep; a large job could miss some in every round. So whoever has waited
//! longest of all, and very long, does not wait for its turn: its reservation is in force from the start of the round, for all but those
//! of other queues who have a guarantee to recall.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{CardId, HostCapacity, LogTime, NodeId, State};

use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::class::ClassId;
use crate::limits::Limits;
use crate::line::shape::{Block, LineId, Shape, ShapeId};
use crate::pool::Pool;
use crate::reserve;

/// So many times as long as anybody must wait before cards are kept for it must one wait before that is done whoever's turn it is.
const VERY_LONG: u32 = 8;
/// How many jobs of a queue that could never be held are passed over in search of one to keep cards for.
const IMPOSSIBLE_PASSED_OVER: usize = 4;
/// Time for stopping a job whose time limit is over.
const STOPPING: Duration = Duration::from_secs(30);

/// Cards kept for a job from all jobs behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The job.
    pub(crate) holder: WaitingKey,
    /// Its shape.
    shape: ShapeId,
    /// The line of its queue.
    line: LineId,
    /// The cards.
    pub(crate) cards: Vec<CardId>,
    /// By when what holds them now is over, if that is known.
    pub(crate) free_by: Option<LogTime>,
    /// Whether it is in force from the start of the round.
    out_of_turn: bool,
}

/// How far the search for a job to keep cards for has come in one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    after: Option<WaitingKey>,
    impossible: usize,
    over: bool,
}

/// Reservations in a round.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// In force, and whether the cards are hidden now.
    in_force: Vec<(Reservation, bool)>,
    searches: BTreeMap<LineId, Search>,
    /// Reservations of the round before, of queues that this one has not come to.
    before: Vec<Reservation>,
}

impl Keeping {
    /// The next job of a queue that waits for something, behind those that were passed. Where there are guarantees, all are passed,
    /// each at its turn, because those behind it come after it; else only as long as cards may be kept for one.
    pub(crate) fn next_blocked(&self, pool: &Pool, line: LineId) -> Option<(WaitingKey, ShapeId)> {
        let search = self.searches.get(&line).copied().unwrap_or_default();
        let line = pool.line.shapes.line(line);
        if pool.queues.lends() {
            return line.blocked_after(search.after);
        }
        line.short_after(search.after).filter(|_| !search.over)
    }

    /// Hides all kept cards, or shows them.
    fn set_hidden(&mut self, index: &mut Index, hide: bool) {
        for (kept, hidden) in &mut self.in_force {
            if *hidden != hide {
                index.set_hidden(&kept.cards, hide);
                *hidden = hide;
            }
        }
    }
}

/// What of a card decides whether it could be kept for a job: not what is free of it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prospect {
    id: CardId,
    class: ClassId,
    usable: bool,
    recoverable: u32,
    memory: u64,
    max_slices: u32,
}

/// What a card could be kept for.
pub(crate) fn prospect_of_card(card: &CardEntry) -> Prospect {
    let CardEntry { id, class, usable, recoverable, memory, max_slices, .. } = *card;
    Prospect { id, class, usable, recoverable, memory, max_slices }
}

/// What the cards of a node could be kept for: the ledger's node, as far as jobs can tell, and each card.
pub(crate) fn prospects_of_node(index: &Index, id: NodeId) -> Option<(NodeProspect, Vec<Prospect>)> {
    let (node, entry) = (index.ledger_node(id)?, index.node(id)?);
    let terms = NodeProspect { labels: node.description.labels.clone(), host: node.description.host };
    Some((terms, entry.cards.iter().map(prospect_of_card).collect()))
}

/// What jobs can tell of a node beside its cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeProspect {
    labels: BTreeMap<String, String>,
    host: Option<HostCapacity>,
}

impl Pool {
    /// Begins a round. Jobs of other queues may come before a holder this time, and are tried again.
    pub(crate) fn begin_keeping(&mut self, state: &State, now: LogTime, limits: &Limits) -> Keeping {
        let before = std::mem::take(&mut self.reservations);
        let mut keeping = Keeping::default();
        let first = self.keep_for_oldest(&mut keeping, state, now, limits);
        // What is in force for everybody, as it was in the round before, keeps away whom it kept away then.
        for kept in before.iter().filter(|kept| first.as_ref() != Some(*kept)) {
            let line = self.line.shapes.line(kept.line);
            let waits = line.short_after(None).is_some_and(|(first, _)| first <= kept.holder);
            self.wake_for_cards(&kept.cards, (waits && !kept.out_of_turn).then_some(kept.line));
        }
        // Its cards may have been kept for others until now. They are hidden before those are released, and so do not wake it.
        let anew = first.as_ref().filter(|first| !before.contains(first)).map(|first| first.shape);
        anew.into_iter().for_each(|shape| self.line.shapes.try_again(shape));
        keeping.before = before;
        if let Some(first) = first {
            self.put_in_force(&mut keeping, first);
        }
        keeping
    }

    /// The first jobs of queues, as far as they have waited very long, the one that has waited longest first.
    fn oldest(&self, state: &State, now: LogTime, limits: &Limits) -> Vec<(WaitingKey, ShapeId, LineId)> {
        if limits.reservations == 0 {
            return Vec::new();
        }
        let firsts = |line| {
            let next = move |after| self.line.shapes.line(line).any_after(after);
            let firsts = std::iter::successors(next(None), move |(key, _)| next(Some(*key)));
            firsts.take(IMPOSSIBLE_PASSED_OVER).map(move |(holder, id)| (holder, id, line))
        };
        let waited = |holder| waited(state, holder, now).unwrap_or_default();
        let mut oldest: Vec<_> = self.line.shapes.lines().flat_map(firsts).collect();
        oldest.retain(|(holder, ..)| waited(*holder) > limits.reserve_after.saturating_mul(VERY_LONG));
        oldest.sort_unstable_by_key(|(holder, ..)| (Reverse(waited(*holder)), holder.job));
        oldest.truncate(IMPOSSIBLE_PASSED_OVER);
        oldest
    }

    /// The cards to keep for whoever has waited longest of those that could ever be held.
    fn keep_for_oldest(
        &mut self,
        keeping: &mut Keeping,
        state: &State,
        now: LogTime,
        limits: &Limits,
    ) -> Option<Reservation> {
        self.oldest(state, now, limits).into_iter().find_map(|(holder, shape, line)| {
            let admitted = self.line.shapes.get(shape).is_some_and(|shape| self.admits_least(state, shape));
            let fresh = if admitted { self.keep_for(keeping, holder, shape, line, state, now) } else { None }?;
            Some(Reservation { out_of_turn: true, ..fresh })
        })
    }

    /// Cards to keep for a job at its turn, if there are any.
    fn keep_for(
        &mut self,
        keeping: &mut Keeping,
        holder: WaitingKey,
        shape: ShapeId,
        line: LineId,
        state: &State,
        now: LogTime,
    ) -> Option<Reservation> {
        let cards = self.cards_to_keep(keeping, shape)?;
        let free_by = reserve::free_by(&self.index, state, &cards, now);
        Some(Reservation { holder, shape, line, cards, free_by, out_of_turn: false })
    }

    /// Passes the next job of a queue that waits for something: if it needs capacity and has waited long enough, cards are kept for it from now on.
    pub(crate) fn pass(&mut self, keeping: &mut Keeping, line: LineId, state: &State, now: LogTime, limits: &Limits) {
        let Some((holder, id)) = keeping.next_blocked(self, line) else { return };
        let mut search = keeping.searches.get(&line).copied().unwrap_or_default();
        search.after = Some(holder);
        search.over |= keeping.in_force.iter().any(|(kept, _)| kept.holder == holder);
        let Some(shape) = self.line.shapes.get(id) else { return };
        let short = matches!(shape.block, Some(Block::Capacity { .. }));
        // What its queue would not let start is not worth keeping cards for.
        if short && !search.over && self.admits_least(state, shape) {
            let patient = waited(state, holder, now).is_some_and(|waited| waited >= limits.reserve_after);
            search.over = !patient || keeping.in_force.len() >= limits.reservations;
            if !search.over {
                match self.keep_for(keeping, holder, id, line, state, now) {
                    Some(fresh) => {
                        search.over = true;
                        self.put_in_force(keeping, fresh);
                    }
                    None => {
                        search.impossible += 1;
                        search.over = search.impossible >= IMPOSSIBLE_PASSED_OVER;
                    }
                }
            }
        }
        if search.over || self.line.shapes.line(line).short_after(search.after).is_none() {
            self.release_before(keeping, line);
        }
        keeping.searches.insert(line, search);
    }

    /// The cards to keep for a shape beside those that are kept already. That the pool has none is remembered until it changes.
    fn cards_to_keep(&mut self, keeping: &mut Keeping, id: ShapeId) -> Option<Vec<CardId>> {
        let shape = self.line.shapes.get(id).filter(|shape| shape.hopeless_at != Some(self.prospects))?;
        let demand = shape.demand.of_gang(shape.demand.gang_min);
        keeping.set_hidden(&mut self.index, true);
        let mut seek = |index: &Index| {
            self.work.reservations_sought += 1;
            reserve::cards_for(index, &demand)
        };
        let found = seek(&self.index);
        if found.is_some() {
            return found;
        }
        if !keeping.in_force.is_empty() {
            // With what is kept for others there might be some: then this one is only to wait for its turn.
            keeping.set_hidden(&mut self.index, false);
            let with_all = seek(&self.index);
            keeping.set_hidden(&mut self.index, true);
            with_all.is_none().then(|| self.line.shapes.has_no_cards(id, self.prospects));
        } else {
            self.line.shapes.has_no_cards(id, self.prospects);
        }
        None
    }

    fn put_in_force(&mut self, keeping: &mut Keeping, fresh: Reservation) {
        let old =
            keeping.before.iter().position(|old| old.line == fresh.line).map(|place| keeping.before.remove(place));
        if let Some(old) = old {
            // Kept for another job until now, or for longer than was known: whoever was kept away is tried again.
            let anew = old.holder != fresh.holder || old.free_by < fresh.free_by;
            let released = old.cards.iter().copied().filter(|card| anew || !fresh.cards.contains(card));
            self.wake_for_cards(&released.collect::<Vec<_>>(), None);
        }
        self.index.set_hidden(&fresh.cards, true);
        keeping.in_force.push((fresh, true));
    }

    /// What was kept for a queue in the round before, and is not any more, may be used.
    fn release_before(&mut self, keeping: &mut Keeping, line: LineId) {
        while let Some(place) = keeping.before.iter().position(|old| old.line == line) {
            let old = keeping.before.remove(place);
            self.wake_for_cards(&old.cards, None);
        }
    }

    /// Nothing is left to be tried: whatever was kept before and is not any more may be used. Answers whether that was anything.
    pub(crate) fn release_rest(&mut self, keeping: &mut Keeping) -> bool {
        let rest = std::mem::take(&mut keeping.before);
        rest.iter().for_each(|old| self.wake_for_cards(&old.cards, None));
        !rest.is_empty()
    }

    /// Shows the kept cards that a job may use, and hides the others.
    pub(crate) fn show_to(&mut self, keeping: &mut Keeping, id: ShapeId, now: LogTime) {
        let Some(shape) = self.line.shapes.get(id) else { return };
        let (key, line) = (Arc::clone(&shape.key), shape.line);
        let (shape_limit, recalls) = (key.limit(), self.queues.may_recall(&key.queue));
        for (kept, hidden) in &mut keeping.in_force {
            let over_by = shape_limit.map(|limit| now.after(limit.saturating_add(STOPPING)));
            let in_time = over_by.is_some_and(|over| kept.free_by.is_some_and(|free| over <= free));
            let recalls = kept.out_of_turn && kept.line != line && recalls;
            let hide = kept.shape != id && !in_time && !recalls;
            if *hidden != hide {
                self.index.set_hidden(&kept.cards, hide);
                *hidden = hide;
            }
        }
    }

    /// Ends a round: the reservations are remembered for the next one.
    pub(crate) fn end_keeping(&mut self, keeping: Keeping) {
        for (kept, hidden) in keeping.in_force {
            if hidden {
                self.index.set_hidden(&kept.cards, false);
            }
            self.reservations.push(kept);
        }
        self.reservations.extend(keeping.before);
    }

    /// Whether the queue of a shape can take the least that such a job could be granted.
    pub(crate) fn admits_least(&self, state: &State, shape: &Shape) -> bool {
        self.queues.admit(&shape.spec.queue, shape.least(state.config().block_size), &[]).is_ok()
    }
}

/// How long a job has waited for its grant.
fn waited(state: &State, holder: WaitingKey, now: LogTime) -> Option<Duration> {
    let job = state.job(holder.job)?;
    Some(now.since(job.waiting_since().max(job.not_before)))
}
