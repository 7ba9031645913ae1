//! Which cards are kept from a job, asked outside of a round of decisions: the reservations that the last round left,
//! as far as the next one would hold the job to them.

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{LogTime, State};

use crate::applicant::Applicant;
use crate::kept::Reservation;
use crate::line::shape::LineId;
use crate::pool::Pool;
use crate::queues::Turn;

impl Pool {
    /// The reservations that keep their cards from a job which stands at `place` in its queue.
    pub(crate) fn binding(&self, state: &State, job: &Applicant, place: WaitingKey, now: LogTime) -> Vec<Reservation> {
        let own = self.reservations.iter().position(|kept| kept.request == job.request);
        let own = own.unwrap_or(self.reservations.len());
        let recalls = self.queues.may_recall(job.queue());
        let in_force = |kept: &&Reservation| {
            let waits = state.job(kept.holder.job).is_some_and(|holder| holder.is_waiting());
            waits && kept.binds(&job.request, recalls, now) && (kept.out_of_turn || self.goes_first(kept, job, place))
        };
        // Who has a reservation itself is not hindered by later ones.
        self.reservations[..own].iter().filter(in_force).cloned().collect()
    }

    /// Whether a round comes to the holder of a reservation before it comes to this job.
    fn goes_first(&self, kept: &Reservation, job: &Applicant, place: WaitingKey) -> bool {
        if kept.request.queue == job.queue() {
            return kept.holder < place;
        }
        let holder = self.line.shapes.get(kept.shape).map(|shape| &shape.one);
        holder.is_some_and(|holder| self.turn_of(holder, kept.holder) < self.turn_of(job, place))
    }

    /// When a round comes to a job, as queues stand now: when it has come to all before it in its queue.
    fn turn_of(&self, job: &Applicant, place: WaitingKey) -> (Turn, WaitingKey, Option<LineId>) {
        let shapes = &self.line.shapes;
        let line = shapes.line_of_queue(job.queue());
        let own = (self.queues.turn(job.queue(), job.amount), place);
        // Without guarantees all jobs of a queue have the same turn.
        let known = line.filter(|_| self.queues.lends()).map(|line| shapes.line(line));
        let next = |after| known.and_then(|line| line.any_after(after));
        let earlier = std::iter::successors(next(None), |(key, _)| next(Some(*key)));
        let before = earlier.take_while(|(key, _)| *key < place);
        let turns =
            before.filter_map(|(key, id)| Some((self.queues.turn(job.queue(), shapes.get(id)?.one.amount), key)));
        let (turn, key) = turns.fold(own, |latest, turn| latest.max(turn));
        (turn, key, line)
    }

    /// Does something while these cards are kept from everybody.
    pub(crate) fn beside<T>(&mut self, kept: &[Reservation], act: impl FnOnce(&mut Self) -> T) -> T {
        kept.iter().for_each(|other| other.kept.set_hidden(&mut self.index, true));
        let done = act(self);
        kept.iter().for_each(|other| other.kept.set_hidden(&mut self.index, false));
        done
    }
}
