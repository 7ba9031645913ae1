//! Cards kept free during a round of decisions, for a few jobs that have waited long enough for capacity: the first of
//! their queues, or next to those that may wait for ever.
//!
//! A reservation comes into force when the order of jobs passes its holder, and then holds for all jobs behind it. A
//! job behind it may use the cards all the same if by its time limit it is over before everything that holds them now:
//! it delays nobody.
//!
//! Queues take turns, and whoever comes first takes its pick of the cards to keep; a large job could miss some in every
//! round. So whoever has waited longest of all, and very long, does not wait for its turn: its reservation is in force
//! from the start of the round, for all but those of other queues who have a guarantee to recall.
//!
//! Whoever has waited very long for jobs without a time limit may wait for ever. It does not stand for those behind it:
//! room is kept for the next one as well, for as many as there may be reservations.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{LogTime, State, UNKNOWN};

use crate::index::Index;
use crate::limits::Limits;
use crate::line::shape::{Block, LineId, Shape, ShapeId};
use crate::pool::Pool;
use crate::request::Request;
use crate::reserve::{self, Kept};

/// So many times as long as anybody must wait before cards are kept for it must one wait before that is done whoever's
/// turn it is.
const VERY_LONG: u32 = 8;
/// How many jobs of a queue that could never be held are passed over in search of one to keep cards for.
const IMPOSSIBLE_PASSED_OVER: usize = 4;
/// The least time that passes.
const TICK: Duration = Duration::from_millis(1);

/// Cards kept for a job from all jobs behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The job.
    pub(crate) holder: WaitingKey,
    /// Its shape.
    pub(crate) shape: ShapeId,
    /// What it asks for.
    pub(crate) request: Arc<Request>,
    /// The line of its queue.
    pub(crate) line: LineId,
    /// What is kept.
    pub(crate) kept: Kept,
    /// Whether it is in force from the start of the round.
    pub(crate) out_of_turn: bool,
}

impl Reservation {
    /// Whether it keeps its cards from a job, once it is in force for that one; `recalls`: whether the job's queue has a
    /// guarantee to recall. Whoever is over before the cards are free delays nobody.
    pub(crate) fn binds(&self, job: &Request, recalls: bool, now: LogTime) -> bool {
        let in_time = job.over_by(now).is_some_and(|over| self.kept.free_by.is_some_and(|free| over <= free));
        let recalls = self.out_of_turn && self.request.queue != job.queue && recalls;
        *self.request != *job && !in_time && !recalls
    }

    /// Since when the holder waits for the same jobs without a time limit; `None` when it waits for none.
    fn stuck_since(&self, state: &State) -> Option<LogTime> {
        let waits = waits_since(state, self.holder).filter(|_| self.kept.free_by.is_none())?;
        Some(waits.max(self.kept.endless_since))
    }

    /// Whether nothing is kept for those behind the holder in its queue. Jobs without a time limit for which the holder
    /// waits may never end: once they have had time enough it must not stand for all others. Before, every further
    /// reservation would cost all others more.
    fn is_enough(&self, state: &State, now: LogTime, limits: &Limits) -> bool {
        self.stuck_since(state).is_none_or(|since| now.since(since) <= limits.stuck_after)
    }
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
    /// The next job of a queue that waits for something, behind those that were passed. Where there are guarantees,
    /// all are passed, each at its turn, because those behind it come after it; else only as long as cards may be kept
    /// for one.
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
        for (reservation, hidden) in &mut self.in_force {
            reservation.kept.change(index, hidden, hide);
        }
    }
}

impl Pool {
    /// Begins a round. Jobs of other queues may come before a holder this time, and are tried again.
    pub(crate) fn begin_keeping(&mut self, state: &State, now: LogTime, limits: &Limits) -> Keeping {
        let before = std::mem::take(&mut self.reservations);
        let mut keeping = Keeping::default();
        let firsts = self.keep_for_oldest(&mut keeping, state, now, limits);
        // What is in force for everybody, as it was in the round before, keeps away whom it kept away then.
        for old in before.iter().filter(|old| !firsts.contains(old)) {
            let line = self.line.shapes.line(old.line);
            let waits = line.short_after(None).is_some_and(|(first, _)| first <= old.holder);
            self.wake_for_kept(&old.kept, &Kept::default(), (waits && !old.out_of_turn).then_some(old.line));
            // Who has started out of turn can be made to give way by those that it came before.
            let started = state.job(old.holder.job).filter(|_| old.out_of_turn).and_then(|job| job.allocation);
            if let Some(standing) = started.and_then(|id| self.victims.standing(id)) {
                self.line.shapes.preemptible_appeared(standing, &self.queues);
            }
        }
        // Their cards may have been kept for others until now. They are hidden before those are released, and so do not
        // wake them.
        firsts.iter().filter(|first| !before.contains(first)).for_each(|first| self.line.shapes.try_again(first.shape));
        keeping.before = before;
        firsts.into_iter().for_each(|first| self.put_in_force(&mut keeping, first, now));
        keeping
    }

    /// The first jobs of queues, as far as they have waited very long, the one that has waited longest first.
    fn oldest(&self, state: &State, now: LogTime, limits: &Limits) -> Vec<(WaitingKey, ShapeId, LineId)> {
        if limits.reservations == 0 {
            return Vec::new();
        }
        let mut oldest: Vec<_> = self.firsts().collect();
        oldest.retain(|(holder, ..)| has_waited_long(state, *holder, now, limits));
        oldest.sort_unstable_by_key(|(holder, ..)| (Reverse(waited(state, *holder, now)), holder.job));
        oldest.truncate(IMPOSSIBLE_PASSED_OVER);
        oldest
    }

    /// The first jobs of all queues, as many of each as may be passed over in search of one to keep cards for.
    fn firsts(&self) -> impl Iterator<Item = (WaitingKey, ShapeId, LineId)> {
        self.line.shapes.lines().flat_map(move |line| {
            let next = move |after| self.line.shapes.line(line).any_after(after);
            let firsts = std::iter::successors(next(None), move |(key, _)| next(Some(*key)));
            firsts.take(IMPOSSIBLE_PASSED_OVER).map(move |(holder, id)| (holder, id, line))
        })
    }

    /// When the next of the first jobs that wait for capacity will have waited so long that cards are kept for it, or
    /// that it does not wait for its turn any more, or does not stand for its queue. By that others may be told to
    /// wait, or not to any more, though nothing else happens.
    pub(crate) fn next_out_of_patience(&self, state: &State, now: LogTime, limits: &Limits) -> Option<LogTime> {
        if limits.reservations == 0 {
            return None;
        }
        let is_short = |id| {
            let shape = self.line.shapes.get(id);
            shape.is_some_and(|shape| matches!(shape.block, Some(Block::Capacity { .. })))
        };
        let since = self.firsts().filter(|(_, id, _)| is_short(*id)).filter_map(|(key, ..)| waits_since(state, key));
        let patience = [limits.reserve_after, very_long(limits).saturating_add(TICK)];
        let stuck = self.reservations.iter().filter_map(|kept| kept.stuck_since(state));
        let stuck = stuck.map(|since| since.after(limits.stuck_after.saturating_add(TICK)));
        let patience = since.flat_map(|since| patience.map(|long| since.after(long)));
        patience.chain(stuck).filter(|at| *at > now).min()
    }

    /// What to keep for those who have waited longest of those that could ever be held: for the first, and as long as
    /// that one waits for jobs without a time limit for the next as well.
    fn keep_for_oldest(
        &mut self,
        keeping: &mut Keeping,
        state: &State,
        now: LogTime,
        limits: &Limits,
    ) -> Vec<Reservation> {
        for (holder, shape, line) in self.oldest(state, now, limits) {
            let admitted = self.line.shapes.get(shape).is_some_and(|shape| self.admits_least(shape));
            let fresh = if admitted { self.keep_for(keeping, holder, shape, line, state) } else { None };
            let Some(fresh) = fresh else { continue };
            let is_last = fresh.is_enough(state, now, limits) || keeping.in_force.len() + 1 >= limits.reservations;
            fresh.kept.set_hidden(&mut self.index, true);
            keeping.in_force.push((Reservation { out_of_turn: true, ..fresh }, true));
            if is_last {
                break;
            }
        }
        keeping.set_hidden(&mut self.index, false);
        std::mem::take(&mut keeping.in_force).into_iter().map(|(first, _)| first).collect()
    }

    /// Cards to keep for a job at its turn, if there are any.
    fn keep_for(
        &mut self,
        keeping: &mut Keeping,
        holder: WaitingKey,
        shape: ShapeId,
        line: LineId,
        state: &State,
    ) -> Option<Reservation> {
        let kept = self.room_to_keep(keeping, shape, state)?;
        let request = Arc::clone(&self.line.shapes.get(shape)?.one.request);
        Some(Reservation { holder, shape, request, line, kept, out_of_turn: false })
    }

    /// Passes the next job of a queue that waits for something: if it needs capacity and has waited long enough, cards
    /// are kept for it from now on.
    pub(crate) fn pass(&mut self, keeping: &mut Keeping, line: LineId, state: &State, now: LogTime, limits: &Limits) {
        let Some((holder, id)) = keeping.next_blocked(self, line) else { return };
        // What those before this one do not keep any more may be enough for it: it is tried before anything is kept
        // for it.
        if self.release(keeping, |old| old.line == line && old.holder < holder) {
            return;
        }
        let mut search = keeping.searches.get(&line).copied().unwrap_or_default();
        search.after = Some(holder);
        let known = keeping.in_force.iter().find(|(kept, _)| kept.holder == holder);
        let (is_kept, enough) = known.map_or((false, false), |(kept, _)| (true, kept.is_enough(state, now, limits)));
        search.over |= enough;
        let Some(shape) = self.line.shapes.get(id) else { return };
        let short = matches!(shape.block, Some(Block::Capacity { .. }));
        // What its queue would not let start is not worth keeping cards for.
        if short && !search.over && !is_kept && self.admits_least(shape) {
            let patient = waited(state, holder, now).is_some_and(|waited| waited >= limits.reserve_after);
            search.over = !patient || keeping.in_force.len() >= limits.reservations;
            if !search.over {
                match self.keep_for(keeping, holder, id, line, state) {
                    Some(fresh) => {
                        search.over = fresh.is_enough(state, now, limits);
                        self.put_in_force(keeping, fresh, now);
                    }
                    None => {
                        search.impossible += 1;
                        search.over = search.impossible >= IMPOSSIBLE_PASSED_OVER;
                    }
                }
            }
        }
        if search.over || self.line.shapes.line(line).short_after(search.after).is_none() {
            self.release(keeping, |old| old.line == line);
        }
        keeping.searches.insert(line, search);
    }

    /// What to keep for a shape beside what is kept already. That the pool has nothing is remembered until it changes.
    fn room_to_keep(&mut self, keeping: &mut Keeping, id: ShapeId, state: &State) -> Option<Kept> {
        let shape = self.line.shapes.get(id).filter(|shape| shape.hopeless_at != Some(self.index.prospects()))?;
        let demand = &Arc::clone(&shape.one).least;
        keeping.set_hidden(&mut self.index, true);
        let mut seek = |index: &mut Index| {
            self.work.reservations_sought += 1;
            reserve::find(index, &mut self.remembered, state, demand)
        };
        let found = seek(&mut self.index);
        if found.is_some() {
            return found;
        }
        if !keeping.in_force.is_empty() {
            // With what is kept for others there might be some: then this one is only to wait for its turn.
            keeping.set_hidden(&mut self.index, false);
            let with_all = seek(&mut self.index);
            keeping.set_hidden(&mut self.index, true);
            with_all.is_none().then(|| self.line.shapes.has_no_cards(id, self.index.prospects()));
        } else {
            self.line.shapes.has_no_cards(id, self.index.prospects());
        }
        None
    }

    fn put_in_force(&mut self, keeping: &mut Keeping, fresh: Reservation, now: LogTime) {
        let old =
            keeping.before.iter().position(|old| old.holder == fresh.holder).map(|place| keeping.before.remove(place));
        if let Some(old) = old {
            // Kept for longer than was known: whoever was kept away is tried again.
            let (until, longer) = (fresh.kept.free_by, old.kept.free_by < fresh.kept.free_by);
            let anew = longer && until > Some(now);
            let still = if anew { &Kept::default() } else { &fresh.kept };
            self.wake_for_kept(&old.kept, still, None);
        }
        fresh.kept.set_hidden(&mut self.index, true);
        keeping.in_force.push((fresh, true));
    }

    /// What these have kept since the round before, and do not any more, may be used. Answers whether that
    /// was anything.
    pub(crate) fn release(&mut self, keeping: &mut Keeping, is_over: impl Fn(&Reservation) -> bool) -> bool {
        let over: Vec<Reservation> = keeping.before.extract_if(.., |old| is_over(old)).collect();
        over.iter().for_each(|old| self.wake_for_kept(&old.kept, &Kept::default(), None));
        !over.is_empty()
    }

    /// What was kept may be used as far as it is not kept still; those of the line `but` know it already.
    fn wake_for_kept(&mut self, old: &Kept, still: &Kept, but: Option<LineId>) {
        if old == still {
            return;
        }
        let cards = old.beyond(&self.index, still);
        self.wake_for_cards(&cards, but);
    }

    /// Shows the kept cards that a job may use, and hides the others.
    pub(crate) fn show_to(&mut self, keeping: &mut Keeping, id: ShapeId, now: LogTime) {
        let Some(job) = self.line.shapes.get(id).map(|shape| &shape.one.request) else { return };
        let recalls = self.queues.may_recall(&job.queue);
        // Who has a reservation is not hindered by later ones: they may keep more of a host than is free beside the
        // first now.
        let own = keeping.in_force.iter().position(|(reservation, _)| reservation.shape == id).unwrap_or(usize::MAX);
        for (number, (reservation, hidden)) in keeping.in_force.iter_mut().enumerate() {
            reservation.kept.change(&mut self.index, hidden, number < own && reservation.binds(job, recalls, now));
        }
    }

    /// Ends a round: the reservations are remembered for the next one.
    pub(crate) fn end_keeping(&mut self, keeping: Keeping) {
        for (reservation, mut hidden) in keeping.in_force {
            reservation.kept.change(&mut self.index, &mut hidden, false);
            self.reservations.push(reservation);
        }
        self.reservations.extend(keeping.before);
    }

    /// Whether the queue of a shape can take the least that such a job could be granted.
    pub(crate) fn admits_least(&self, shape: &Shape) -> bool {
        self.queues.admit(shape.one.queue(), shape.one.amount, &[]).is_ok()
    }
}

/// Since when a job waits for its grant.
fn waits_since(state: &State, holder: WaitingKey) -> Option<LogTime> {
    let job = state.job(holder.job)?;
    let closed_until = Some(state.job_closed_until(job)).filter(|until| *until != UNKNOWN);
    Some(job.waiting_since().max(job.not_before).max(closed_until.unwrap_or_default()))
}

/// How long a job has waited for its grant.
fn waited(state: &State, holder: WaitingKey, now: LogTime) -> Option<Duration> {
    Some(now.since(waits_since(state, holder)?))
}

/// How long a job must have waited not to wait for its turn any more.
fn very_long(limits: &Limits) -> Duration {
    limits.reserve_after.saturating_mul(VERY_LONG)
}

/// Whether a job has waited so long that it does not wait for its turn any more.
fn has_waited_long(state: &State, holder: WaitingKey, now: LogTime, limits: &Limits) -> bool {
    waited(state, holder, now).is_some_and(|waited| waited > very_long(limits))
}
