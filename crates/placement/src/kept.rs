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

mod reservation;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{LogTime, State, UNKNOWN};

use crate::decide::Limits;
use crate::demand::Applicant;
use crate::index::Index;
use crate::line::shapes::{LineId, Shape, ShapeId};
use crate::pool::{Moment, Pool};
use crate::queues::Turn;
use crate::reserve::{self, Kept};

pub use reservation::Reservation;

/// Multiple of [`Limits::reserve_after`]: once a job has waited longer than that, cards are kept for it, whoever's turn
/// it is.
const VERY_LONG: u32 = 8;
/// Most jobs of a queue that could never be held and are passed over in search of one to keep cards for.
const IMPOSSIBLE_PASSED_OVER: usize = 4;
/// The least time that passes.
const TICK: Duration = Duration::from_millis(1);

/// Progress of the search for a job to keep cards for in one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    after: Option<WaitingKey>,
    impossible: usize,
    over: bool,
}

/// Reservations in a round.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    at: Moment<'a>,
    limits: &'a Limits,
    in_force: Vec<Reservation>,
    searches: BTreeMap<LineId, Search>,
    /// Reservations of the round before, of queues that this one has not come to.
    before: Vec<Reservation>,
}

impl Keeping<'_> {
    /// The next job of a queue that waits for something, behind those that were passed. Where there are guarantees,
    /// all are passed, each at its turn, because those behind it come after it; else only as long as cards may be kept
    /// for one.
    pub(crate) fn next_blocked(&self, pool: &Pool, line: LineId) -> Option<(WaitingKey, ShapeId)> {
        let search = self.searches.get(&line).copied().unwrap_or_default();
        let line = pool.line.shapes.line(line);
        if pool.queues.lends {
            return line.blocked_after(search.after);
        }
        line.short_after(search.after).filter(|_| !search.over)
    }

    /// Hides all kept cards, or shows them.
    fn set_hidden(&mut self, index: &mut Index, hide: bool) {
        self.in_force.iter_mut().for_each(|reservation| reservation.kept.set_hidden(index, hide));
    }

    /// Returns whether nothing is to be kept for the jobs behind a holder. The holder may wait for jobs without a time
    /// limit, which may never end: after `Limits::stuck_after` it must not hold up all others any more. Until then,
    /// every further reservation would cost all others more.
    fn is_enough(&self, kept: &Reservation) -> bool {
        kept.stuck_since(self.at.state).is_none_or(|since| self.at.now.since(since) <= self.limits.stuck_after)
    }

    /// Returns whether a job has waited longer than `long` for its allocation. The place in line alone rules out most.
    fn has_waited(&self, holder: WaitingKey, long: Duration) -> bool {
        self.at.now.since(holder.began()) > long && self.waited(holder).is_some_and(|waited| waited > long)
    }

    /// The time that a job has waited for its allocation.
    fn waited(&self, holder: WaitingKey) -> Option<Duration> {
        Some(self.at.now.since(waits_since(self.at.state, holder)?))
    }
}

impl Pool {
    /// Begins a round. Jobs of other queues may come before a holder this time, and are tried again: but not by a round
    /// that goes on with one that was cut short, or it would be cut short at the same jobs for ever.
    pub(crate) fn begin_keeping<'a>(&mut self, at: Moment<'a>, limits: &'a Limits) -> Keeping<'a> {
        let before = std::mem::take(&mut self.reservations);
        let (in_force, searches) = (Vec::new(), BTreeMap::new());
        let mut keeping = Keeping { at, limits, in_force, searches, before: Vec::new() };
        let firsts = self.keep_for_oldest(&mut keeping);
        let goes_on = self.goes_on();
        // What is in force for everybody, as it was in the round before, keeps away whom it kept away then.
        for old in before.iter().filter(|old| !goes_on && !firsts.contains(old)) {
            let line = self.line.shapes.line(old.line);
            let waits = line.short_after(None).is_some_and(|(first, _)| first <= old.holder);
            self.wake_for_kept(&old.kept, &Kept::default(), (waits && !old.out_of_turn).then_some(old.line));
            // Who has started out of turn can be made to give way by those that it came before.
            let started = at.state.job(old.holder.job).filter(|_| old.out_of_turn).and_then(|job| job.allocation);
            if let Some(standing) = started.and_then(|id| self.victims.standing(id)) {
                self.line.shapes.preemptible_appeared(standing, &self.queues);
            }
        }
        // Their cards may have been kept for others until now. They are hidden before those are released, and so do not
        // wake them.
        firsts.iter().filter(|first| !before.contains(first)).for_each(|first| self.line.shapes.try_again(first.shape));
        keeping.before = before;
        firsts.into_iter().for_each(|first| self.put_in_force(&mut keeping, first));
        keeping
    }

    /// Returns whether this round goes on with one that was cut short.
    const fn goes_on(&self) -> bool {
        self.cut_short_at.is_some()
    }

    /// The first jobs of all queues, as many of each as may be passed over in search of one to keep cards for.
    fn firsts(&self) -> impl Iterator<Item = (WaitingKey, ShapeId, LineId)> {
        self.line.shapes.lines().flat_map(move |line| {
            let firsts = self.line.shapes.line(line).all().take(IMPOSSIBLE_PASSED_OVER);
            firsts.map(move |(holder, id)| (holder, id, line))
        })
    }

    /// The next time at which one of the first jobs that wait for capacity has waited so long that cards are kept for
    /// it, or that it does not wait for its turn any more, or at which a holder no longer stands for its queue. From
    /// then on others may have to wait, or not any more, though nothing else happens.
    pub(crate) fn next_out_of_patience(&self, at: Moment<'_>, limits: &Limits) -> Option<LogTime> {
        if limits.reservations == 0 {
            return None;
        }
        let is_short = |id| self.line.shapes.get(id).is_some_and(Shape::is_short);
        let since = self.firsts().filter(|(_, id, _)| is_short(*id)).filter_map(|(key, ..)| waits_since(at.state, key));
        let patience = [limits.reserve_after, very_long(limits).saturating_add(TICK)];
        let stuck = self.reservations.iter().filter_map(|kept| kept.stuck_since(at.state));
        let stuck = stuck.map(|since| since.after(limits.stuck_after.saturating_add(TICK)));
        let patience = since.flat_map(|since| patience.map(|long| since.after(long)));
        patience.chain(stuck).filter(|over| *over > at.now).min()
    }

    /// Finds reservations for the jobs that have waited very long, and longest of those that could ever be held: for
    /// the first, and as long as that one waits for jobs without a time limit for the next as well.
    fn keep_for_oldest(&mut self, keeping: &mut Keeping<'_>) -> Vec<Reservation> {
        let limits = keeping.limits;
        if limits.reservations == 0 {
            return Vec::new();
        }
        let mut oldest: Vec<_> = self.firsts().collect();
        let has_waited = |holder| keeping.has_waited(holder, very_long(limits));
        oldest.retain(|(holder, ..)| may_be_kept_for(keeping.at.state, *holder) && has_waited(*holder));
        oldest.sort_unstable_by_key(|(holder, ..)| (Reverse(keeping.waited(*holder)), holder.job));
        for (holder, shape, line) in oldest.into_iter().take(IMPOSSIBLE_PASSED_OVER) {
            let admitted = self.line.shapes.get(shape).is_some_and(|shape| self.admits_least(shape));
            let fresh = if admitted { self.keep_for(keeping, holder, shape, line) } else { None };
            let Some(fresh) = fresh else { continue };
            let is_last = keeping.is_enough(&fresh) || keeping.in_force.len() + 1 >= limits.reservations;
            keeping.in_force.push(Reservation { out_of_turn: true, ..fresh });
            if is_last {
                break;
            }
        }
        keeping.set_hidden(&mut self.index, false);
        std::mem::take(&mut keeping.in_force)
    }

    /// Passes the next job of a queue that waits for something: if it needs capacity and has waited long enough, cards
    /// are kept for it from now on.
    pub(crate) fn pass(&mut self, keeping: &mut Keeping<'_>, line: LineId) {
        let Some((holder, id)) = keeping.next_blocked(self, line) else { return };
        // What those before this one do not keep any more may be enough for it: it is tried before anything is kept
        // for it.
        if self.release(keeping, |old| old.line == line && old.holder < holder) {
            return;
        }
        let mut search = keeping.searches.get(&line).copied().unwrap_or_default();
        search.after = Some(holder);
        let known = keeping.in_force.iter().find(|kept| kept.holder == holder);
        search.over |= known.is_some_and(|kept| keeping.is_enough(kept));
        let Some(shape) = self.line.shapes.get(id) else { return };
        // What its queue would not let start is not worth keeping cards for.
        if known.is_none() && shape.is_short() && !search.over && self.admits_least(shape) {
            let patient = keeping.waited(holder).is_some_and(|waited| waited >= keeping.limits.reserve_after);
            let patient = patient && may_be_kept_for(keeping.at.state, holder);
            search.over = !patient || keeping.in_force.len() >= keeping.limits.reservations;
            if !search.over {
                if let Some(fresh) = self.keep_for(keeping, holder, id, line) {
                    search.over = keeping.is_enough(&fresh);
                    self.put_in_force(keeping, fresh);
                } else {
                    search.impossible += 1;
                    search.over = search.impossible >= IMPOSSIBLE_PASSED_OVER;
                }
            }
        }
        if search.over || self.line.shapes.line(line).short_after(search.after).is_none() {
            self.release(keeping, |old| old.line == line);
        }
        keeping.searches.insert(line, search);
    }

    /// Finds cards to keep for a job, beside those that are kept already. If the pool would have none even with nothing
    /// else kept, that is remembered until its prospects change.
    fn keep_for(
        &mut self,
        keeping: &mut Keeping<'_>,
        holder: WaitingKey,
        id: ShapeId,
        line: LineId,
    ) -> Option<Reservation> {
        let prospects = self.index.prospects;
        let shape = self.line.shapes.get(id).filter(|shape| shape.hopeless_at != Some(prospects))?;
        let (request, demand, state) = (Arc::clone(&shape.one.request), Arc::clone(&shape.one.least), keeping.at.state);
        let mut seek = |index: &mut Index| {
            self.work.reservations_sought += 1;
            reserve::find(index, &mut self.remembered, state, &demand)
        };
        keeping.set_hidden(&mut self.index, true);
        if let Some(kept) = seek(&mut self.index) {
            return Some(Reservation { holder, shape: id, request, line, kept, out_of_turn: false });
        }
        // With what is kept for others there might be some: then this one is only to wait for its turn.
        let mut hopeless = true;
        if !keeping.in_force.is_empty() {
            keeping.set_hidden(&mut self.index, false);
            hopeless = seek(&mut self.index).is_none();
            keeping.set_hidden(&mut self.index, true);
        }
        if hopeless {
            self.line.shapes.has_no_cards(id, self.index.prospects);
        }
        None
    }

    fn put_in_force(&mut self, keeping: &mut Keeping<'_>, mut fresh: Reservation) {
        if let Some(place) = keeping.before.iter().position(|old| old.holder == fresh.holder) {
            let old = keeping.before.remove(place);
            // Kept for longer than was known: whoever was kept away is tried again.
            let (until, longer) = (fresh.kept.free_by, old.kept.free_by < fresh.kept.free_by);
            let anew = longer && until > Some(keeping.at.now);
            let still = if anew { &Kept::default() } else { &fresh.kept };
            self.wake_for_kept(&old.kept, still, None);
        } else if self.goes_on() {
            // What is kept for it now may have been kept from it by somebody who is gone.
            self.line.shapes.try_again(fresh.shape);
        }
        fresh.kept.set_hidden(&mut self.index, true);
        keeping.in_force.push(fresh);
    }

    /// Ends the reservations of the round before for which `is_over` holds: what they kept may be used. Returns whether
    /// there were any.
    pub(crate) fn release(&mut self, keeping: &mut Keeping<'_>, is_over: impl Fn(&Reservation) -> bool) -> bool {
        let over: Vec<Reservation> = keeping.before.extract_if(.., |old| is_over(old)).collect();
        over.iter().for_each(|old| self.wake_for_kept(&old.kept, &Kept::default(), None));
        !over.is_empty()
    }

    /// Tries the jobs again that could use what `old` kept and `still` does not; the line `but` knows it already.
    fn wake_for_kept(&mut self, old: &Kept, still: &Kept, but: Option<LineId>) {
        if old != still {
            let cards = old.beyond(&self.index, still);
            self.wake_for_cards(&cards, but);
            if !old.hosts.is_empty() {
                self.line.shapes.hosts_freed();
            }
        }
    }

    /// Shows the kept cards that a job may use, and hides the others.
    pub(crate) fn show_to(&mut self, keeping: &mut Keeping<'_>, id: ShapeId) {
        let Some(job) = self.line.shapes.get(id).map(|shape| &shape.one.request) else { return };
        let recalls = self.queues.may_recall(&job.queue);
        // Who has a reservation is not hindered by later ones: they may keep more of a host than is free beside the
        // first now.
        let own = keeping.in_force.iter().position(|reservation| reservation.shape == id).unwrap_or(usize::MAX);
        for (number, reservation) in keeping.in_force.iter_mut().enumerate() {
            let hide = number < own && reservation.binds(job, recalls, keeping.at.now);
            reservation.kept.set_hidden(&mut self.index, hide);
        }
    }

    /// Ends a round: the reservations are remembered for the next one.
    pub(crate) fn end_keeping(&mut self, mut keeping: Keeping<'_>) {
        keeping.set_hidden(&mut self.index, false);
        self.reservations.extend(keeping.in_force.into_iter().chain(keeping.before));
    }

    /// Returns whether the queue of a shape can take the least that such a job could be granted.
    pub(crate) fn admits_least(&self, shape: &Shape) -> bool {
        self.queues.admit(shape.one.queue(), shape.one.amount).is_ok()
    }

    /// Outside of a round: the reservations that the last one left, as far as the next one would keep their cards from
    /// a job which stands at `place` in its queue.
    pub(crate) fn binding(&self, at: Moment<'_>, job: &Applicant, place: WaitingKey) -> Vec<Reservation> {
        let recalls = self.queues.may_recall(job.queue());
        let in_force = |kept: &&Reservation| {
            let waits = at.state.job(kept.holder.job).is_some_and(|holder| holder.is_waiting());
            waits
                && kept.binds(&job.request, recalls, at.now)
                && (kept.out_of_turn || self.goes_first(kept, job, place))
        };
        // Who has a reservation itself is not hindered by later ones.
        let before = self.reservations.iter().take_while(|kept| kept.request != job.request);
        before.filter(in_force).cloned().collect()
    }

    /// Returns whether a round comes to the holder of a reservation before it comes to this job.
    fn goes_first(&self, kept: &Reservation, job: &Applicant, place: WaitingKey) -> bool {
        if kept.request.queue == job.queue() {
            return kept.holder < place;
        }
        let holder = self.line.shapes.get(kept.shape).map(|shape| &shape.one);
        holder.is_some_and(|holder| self.turn_of(holder, kept.holder) < self.turn_of(job, place))
    }

    /// The point at which a round comes to a job, as queues stand now: when it has come to all before it in its queue.
    fn turn_of(&self, job: &Applicant, place: WaitingKey) -> (Turn, WaitingKey, Option<LineId>) {
        let shapes = &self.line.shapes;
        let line = shapes.line_of_queue(job.queue());
        let own = (self.queues.turn(job.queue(), job.amount), place);
        // Without guarantees all jobs of a queue have the same turn.
        let known = line.filter(|_| self.queues.lends).map(|line| shapes.line(line).all());
        let before = known.into_iter().flatten().take_while(|(key, _)| *key < place);
        let turns =
            before.filter_map(|(key, id)| Some((self.queues.turn(job.queue(), shapes.get(id)?.one.amount), key)));
        let (turn, key) = turns.fold(own, |latest, turn| latest.max(turn));
        (turn, key, line)
    }

    /// Does something while these cards are kept from everybody.
    pub(crate) fn beside<'a, T>(
        &mut self,
        kept: impl IntoIterator<Item = &'a Reservation>,
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut kept: Vec<Kept> = kept.into_iter().map(|other| other.kept.clone()).collect();
        kept.iter_mut().for_each(|other| other.set_hidden(&mut self.index, true));
        let done = act(self);
        kept.iter_mut().for_each(|other| other.set_hidden(&mut self.index, false));
        done
    }
}

/// Returns whether cards may be kept for a job: where the order is by attained service only for one that is guarded,
/// for the others get theirs from whoever has had more, and who is passed by for long becomes guarded.
fn may_be_kept_for(state: &State, holder: WaitingKey) -> bool {
    let order = state.job(holder.job).and_then(|job| state.order_of(&job.spec.queue));
    order.is_none() || holder.precedence.0.guarded
}

fn waits_since(state: &State, holder: WaitingKey) -> Option<LogTime> {
    let job = state.job(holder.job)?;
    let closed_until = Some(state.job_closed_until(job)).filter(|until| *until != UNKNOWN);
    Some(job.waiting_since().max(job.not_before).max(closed_until.unwrap_or_default()))
}

/// The time after which a job does not wait for its turn any more.
fn very_long(limits: &Limits) -> Duration {
    limits.reserve_after.saturating_mul(VERY_LONG)
}
