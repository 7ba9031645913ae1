//! Which cards are kept from a job, asked outside of a round of decisions: the reservations that the last round left,
//! as far as the next one would hold the job to them.

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{JobSpec, LogTime, State};

use crate::kept::{Applicant, Reservation, over_by};
use crate::line::shape::{LineId, ShapeKey};
use crate::pool::Pool;
use crate::queues::Turn;
use crate::verdict::Candidate;

impl Pool {
    /// The reservations that keep their cards from a job.
    pub(crate) fn binding(&self, state: &State, job: &Candidate<'_>, now: LogTime) -> Vec<Reservation> {
        let (spec, place) = (job.spec, job.place);
        let shape = ShapeKey::of(spec, job.gave_way);
        let alike = |kept: &Reservation| self.line.shapes.get(kept.shape).is_some_and(|held| *held.key == shape);
        let own = self.reservations.iter().position(alike).unwrap_or(self.reservations.len());
        let job = Applicant {
            shape: self.reservations.get(own).map(|kept| kept.shape),
            line: self.line.shapes.lines().find(|line| self.line.shapes.line(*line).queue == spec.queue),
            over_by: over_by(&shape, now),
            recalls: self.queues.may_recall(&spec.queue),
        };
        let in_force = |kept: &&Reservation| {
            let waits = state.job(kept.holder.job).is_some_and(|holder| holder.is_waiting());
            waits && kept.binds(&job) && (kept.out_of_turn || self.goes_first(state, kept, spec, job.line, place))
        };
        // Who has a reservation itself is not hindered by later ones.
        self.reservations[..own].iter().filter(in_force).cloned().collect()
    }

    /// Whether a round comes to the holder of a reservation before it comes to this job.
    fn goes_first(
        &self,
        state: &State,
        kept: &Reservation,
        spec: &JobSpec,
        line: Option<LineId>,
        place: WaitingKey,
    ) -> bool {
        if line == Some(kept.line) {
            return kept.holder < place;
        }
        let holder = state.job(kept.holder.job).map(|job| &job.spec);
        holder.is_some_and(|holder| {
            self.turn_of(state, holder, Some(kept.line), kept.holder) < self.turn_of(state, spec, line, place)
        })
    }

    /// When a round comes to a job, as queues stand now: when it has come to all before it in its queue.
    fn turn_of(
        &self,
        state: &State,
        spec: &JobSpec,
        line: Option<LineId>,
        place: WaitingKey,
    ) -> (Turn, WaitingKey, Option<LineId>) {
        let block_size = state.config().block_size;
        let shapes = &self.line.shapes;
        let least = crate::demand::Demand::compile(spec, &self.index.classes, state.config()).least(block_size);
        let own = (self.queues.turn(&spec.queue, least), place);
        // Without guarantees all jobs of a queue have the same turn.
        let known = line.filter(|_| self.queues.lends()).map(|line| shapes.line(line));
        let next = |after| known.and_then(|line| line.any_after(after));
        let earlier = std::iter::successors(next(None), |(key, _)| next(Some(*key)));
        let before = earlier.take_while(|(key, _)| *key < place);
        let turns = before
            .filter_map(|(key, id)| Some((self.queues.turn(&spec.queue, shapes.get(id)?.least(block_size)), key)));
        let (turn, key) = turns.fold(own.clone(), |latest, turn| latest.max(turn));
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
