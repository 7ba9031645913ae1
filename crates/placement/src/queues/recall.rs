//! Recalls: who may be made to give way for one grant, and whose right to that has grown.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::standing::{Held, may_recall};
use tessera_ledger::{Allocation, Job, MilliTflops, QueueAmount};

use super::Queues;
use super::entry::Sums;
use crate::victims::unstopped_slices;

/// A job that gives back what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Giver<'a> {
    pub(crate) queue: &'a str,
    pub(crate) amount: QueueAmount,
    /// True if it may be preempted by its own queue.
    pub(crate) preemptible: bool,
}

impl<'a> Giver<'a> {
    /// A job with its allocation, as the ledger counts what it gives back when it is told to stop.
    pub(crate) fn of(job: &'a Job, allocation: &Allocation, block_size: MilliTflops) -> Self {
        let amount = super::amount_of(unstopped_slices(allocation), block_size);
        Self { queue: &job.spec.queue, amount, preemptible: job.is_preemptible() }
    }
}

/// Queues of which more may be recalled than before, or by which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recallable {
    /// Some queue holds more on loan than before, or other jobs of it: whoever may recall anything may find something.
    pub(crate) lent: bool,
    /// Queues that hold less than before, and all where any guarantee is another: they may take back more, and those
    /// below them may too.
    pub(super) claims: BTreeSet<usize>,
}

impl Recallable {
    /// Something on loan can give way that could not: whoever may recall anything may recall it.
    pub(crate) fn of_all() -> Self {
        Self { lent: true, ..Self::default() }
    }

    /// Returns whether nobody can recall anything that was out of reach before.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.lent && self.claims.is_empty()
    }
}

/// Recalls for one grant: which further job may be made to give way, given those before it.
#[derive(Clone, Debug)]
pub(crate) struct Recall<'a> {
    pub(super) queues: &'a Queues,
    pub(super) mine: Vec<usize>,
    pub(super) asked: QueueAmount,
    /// The amounts given back, by queue.
    pub(super) back: BTreeMap<usize, Back>,
}

/// The amounts that jobs of a queue give back: in all, and by those that are not preemptible.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back {
    all: QueueAmount,
    firm: QueueAmount,
    /// The amounts of jobs that name the queue, not one below it.
    own: QueueAmount,
    own_firm: QueueAmount,
}

impl Recall<'_> {
    /// Returns whether a job of another queue may be made to give way, by the ledger's rule.
    pub(crate) fn allows(&self, giver: Giver<'_>) -> bool {
        let theirs: Vec<usize> = self.queues.line(giver.queue).collect();
        let entry = |id: usize| &self.queues.entries[id];
        let branch = self.mine.iter().take_while(|id| !theirs.contains(id)).last();
        let branch = branch.map(|id| {
            let Sums { standing, firm, guaranteed, .. } = entry(*id).whole;
            Held { all: standing.minus(self.back(*id).all), firm, guaranteed }
        });
        let own = theirs.first().map(|id| {
            let back = self.back(*id);
            entry(*id).own().held().without(back.own, back.own_firm)
        });
        // Of a queue that nobody knows nothing is on loan.
        let own = own.unwrap_or_default();
        let apart = theirs.iter().take_while(|id| !self.mine.contains(id));
        let apart = apart.map(|id| entry(*id).whole.held().without(self.back(*id).all, self.back(*id).firm));
        let lenders = std::iter::once(own).chain(apart);
        may_recall(self.asked, branch, lenders, giver.amount, giver.preemptible).is_ok()
    }

    /// Returns whether the grant raises what is on loan in a queue to which all who give way belong; together they give
    /// `all`. A queue is left out if one of them is elsewhere: what was on loan there is held within a guarantee now.
    pub(super) fn raises_a_loan(&self, all: QueueAmount) -> bool {
        let raises = |held: QueueAmount, guaranteed: QueueAmount| {
            let after = held.minus(all).plus(self.asked);
            !after.minus(guaranteed).within(held.minus(guaranteed))
        };
        let raises_whole = |id: &usize| {
            let queue = &self.queues.entries[*id];
            self.back(*id).all == all && raises(queue.whole.standing, queue.whole.guaranteed)
        };
        let raises_own = self.mine.first().is_some_and(|id| {
            let own = self.queues.entries[*id].own();
            self.back(*id).own == all && raises(own.standing, own.guaranteed)
        });
        raises_own || self.mine.iter().any(raises_whole)
    }

    fn back(&self, id: usize) -> Back {
        self.back.get(&id).copied().unwrap_or_default()
    }

    /// Counts a job in that gives way.
    pub(crate) fn add(&mut self, giver: Giver<'_>) {
        self.change(giver, QueueAmount::plus);
    }

    /// Counts a job out again that stays.
    pub(crate) fn remove(&mut self, giver: Giver<'_>) {
        self.change(giver, QueueAmount::minus);
    }

    fn change(&mut self, giver: Giver<'_>, by: impl Fn(QueueAmount, QueueAmount) -> QueueAmount) {
        let firm = if giver.preemptible { QueueAmount::default() } else { giver.amount };
        for (place, id) in self.queues.line(giver.queue).enumerate() {
            let back = self.back.entry(id).or_default();
            (back.all, back.firm) = (by(back.all, giver.amount), by(back.firm, firm));
            if place == 0 {
                (back.own, back.own_firm) = (by(back.own, giver.amount), by(back.own_firm, firm));
            }
        }
    }
}
