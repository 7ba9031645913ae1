//! Recalls: who may be made to give way for one grant, and whose right to that has grown.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::QueueAmount;

use super::Queues;

/// A job that gives back what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Giver<'a> {
    /// Its queue.
    pub(crate) queue: &'a str,
    /// What it holds.
    pub(crate) amount: QueueAmount,
    /// Whether it may be preempted by its own queue.
    pub(crate) preemptible: bool,
}

/// Of whom more may be recalled than before, or by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recallable {
    /// Some queue holds more on loan than before, or other jobs of it: whoever may recall anything may find something.
    pub(crate) lent: bool,
    /// Queues that may take back more of what they are guaranteed than before; those below them may too.
    pub(super) claims: BTreeSet<usize>,
}

impl Recallable {
    /// Something on loan can give way that could not: whoever may recall anything may recall it.
    pub(crate) fn of_all() -> Self {
        Self { lent: true, ..Self::default() }
    }

    /// Whether nobody can recall anything that was out of reach before.
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
    /// What is given back by queue.
    pub(super) back: BTreeMap<usize, Back>,
}

/// What jobs of a queue give back: in all, and as far as they are not preemptible.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Back {
    all: QueueAmount,
    firm: QueueAmount,
    /// Of jobs that name the queue, not one below it.
    own: QueueAmount,
    own_firm: QueueAmount,
}

impl Recall<'_> {
    /// Whether a job of another queue may be made to give way: the beneficiary stays within its guarantees, and the giver's
    /// queues hold more than theirs; so do the jobs that name the giver's queue, which are guaranteed what the guarantees of the queues
    /// below leave of that one's. As the ledger judges.
    pub(crate) fn allows(&self, giver: Giver<'_>) -> bool {
        let theirs: Vec<usize> = self.queues.line(giver.queue).collect();
        let mut mine = self.mine.iter().take_while(|id| !theirs.contains(id)).peekable();
        if mine.peek().is_none() {
            return false;
        }
        let within = mine.all(|id| {
            let queue = &self.queues.entries[*id];
            queue.standing().minus(self.back(*id).all).plus(self.asked).within(queue.guaranteed)
        });
        within
            && theirs.first().is_some_and(|id| self.is_own_part_lent(*id, giver))
            && theirs.iter().take_while(|id| !self.mine.contains(id)).all(|id| {
                let back = self.back(*id);
                self.queues.entries[*id].whole().without(back.all, back.firm).is_lent(giver)
            })
    }

    /// Whether the jobs that name a queue hold more than its guarantee leaves them.
    fn is_own_part_lent(&self, id: usize, giver: Giver<'_>) -> bool {
        let back = self.back(id);
        self.queues.entries[id].own_part().without(back.own, back.own_firm).is_lent(giver)
    }

    fn back(&self, id: usize) -> Back {
        self.back.get(&id).copied().unwrap_or_default()
    }

    /// Counts a job in that gives way.
    pub(crate) fn add(&mut self, giver: Giver<'_>) {
        let firm = if giver.preemptible { QueueAmount::default() } else { giver.amount };
        for (place, id) in self.queues.line(giver.queue).enumerate() {
            let back = self.back.entry(id).or_default();
            back.all = back.all.plus(giver.amount);
            back.firm = back.firm.plus(firm);
            if place == 0 {
                back.own = back.own.plus(giver.amount);
                back.own_firm = back.own_firm.plus(firm);
            }
        }
    }
}
