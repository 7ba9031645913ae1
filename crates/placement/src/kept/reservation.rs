//! A reservation: the room that is kept for one job, and the jobs that it is kept from.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{JobId, LogTime, NodeId, State};

use super::waits_since;
use crate::line::shapes::{LineId, ShapeId};
use crate::request::Request;
use crate::reserve::Kept;

/// Cards kept for a job from all jobs behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub(super) holder: WaitingKey,
    pub(super) shape: ShapeId,
    pub(super) request: Arc<Request>,
    pub(super) line: LineId,
    pub(super) kept: Kept,
    /// True if it is in force from the start of the round.
    pub(super) out_of_turn: bool,
}

impl Reservation {
    #[must_use]
    pub fn holder(&self) -> JobId {
        self.holder.job
    }

    #[must_use]
    pub fn cards(&self) -> usize {
        self.kept.cards.len()
    }

    /// The hosts of which something is kept.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> {
        self.kept.hosts.keys().copied()
    }

    /// By when all of it is free, if that is known.
    #[must_use]
    pub fn free_by(&self) -> Option<LogTime> {
        self.kept.free_by
    }

    /// Returns whether it is in force from the start of a round, whoever's turn it is.
    #[must_use]
    pub fn is_out_of_turn(&self) -> bool {
        self.out_of_turn
    }

    #[must_use]
    pub fn without_hosts(&self) -> Self {
        let mut without = self.clone();
        without.kept.hosts.clear();
        without
    }

    /// Returns whether it keeps its cards from a job, once it is in force for that job; `recalls`: whether the job's
    /// queue has a guarantee to recall. A job that is over before the cards are free delays nobody.
    pub(super) fn binds(&self, job: &Request, recalls: bool, now: LogTime) -> bool {
        let in_time = job.over_by(now).is_some_and(|over| self.kept.free_by.is_some_and(|free| over <= free));
        let recalls = self.out_of_turn && self.request.queue != job.queue && recalls;
        *self.request != *job && !in_time && !recalls
    }

    /// Since when the holder waits for the same jobs without a time limit; `None` when it waits for none.
    pub(super) fn stuck_since(&self, state: &State) -> Option<LogTime> {
        let waits = waits_since(state, self.holder).filter(|_| self.kept.free_by.is_none())?;
        Some(waits.max(self.kept.endless_since))
    }
}
