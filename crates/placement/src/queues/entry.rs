//! One queue of the tree: what it holds, what is for the jobs that name it, and what of that is on loan.

use tessera_ledger::{Queue, QueueAmount};

use super::recall::Giver;

/// A queue as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    pub(super) guaranteed: QueueAmount,
    pub(super) maximum: Option<QueueAmount>,
    pub(super) weight: u32,
    /// What its jobs hold, those that were told to stop included.
    pub(super) used: QueueAmount,
    pub(super) leaving: QueueAmount,
    pub(super) firm: QueueAmount,
    /// What the plan being made grants it, and as far as that is firm: nothing of that can be recalled by the
    /// same plan.
    pub(super) planned: QueueAmount,
    pub(super) planned_firm: QueueAmount,
    /// What it has held on average, as of the present decision.
    pub(super) mean: QueueAmount,
    /// Whether there are queues below it, and the sums over these.
    pub(super) has_below: bool,
    pub(super) below: Below,
}

/// What is held, as far as it is firm, and what is guaranteed of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub(super) all: QueueAmount,
    pub(super) firm: QueueAmount,
    pub(super) guaranteed: QueueAmount,
}

impl Holding {
    pub(super) fn lends_more_than(self, before: Self) -> bool {
        let guaranteed = (before.guaranteed, self.guaranteed);
        is_more_lent(before.all, self.all, guaranteed) || is_more_lent(before.firm, self.firm, guaranteed)
    }

    /// Without what gives way before.
    pub(super) fn without(self, all: QueueAmount, firm: QueueAmount) -> Self {
        Self { all: self.all.minus(all), firm: self.firm.minus(firm), ..self }
    }

    /// Whether something of it is on loan, in a resource that the giver holds, and of that which is not preemptible if
    /// the giver is not.
    pub(super) fn is_lent(self, giver: Giver<'_>) -> bool {
        let is_lent = |held: QueueAmount| held.is_above_with(self.guaranteed, giver.amount);
        is_lent(self.all) && (giver.preemptible || is_lent(self.firm))
    }
}

/// Sums over the queues directly below one: what is left of the queue's own numbers is for the jobs that name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Below {
    pub(super) guaranteed: QueueAmount,
    /// Without what is leaving.
    pub(super) standing: QueueAmount,
    pub(super) firm: QueueAmount,
    pub(super) planned: QueueAmount,
    pub(super) planned_firm: QueueAmount,
    pub(super) mean: QueueAmount,
}

impl Entry {
    pub(super) fn of(queue: &Queue) -> Self {
        let (settings, nothing) = (&queue.settings, QueueAmount::default());
        Self {
            name: settings.name.clone(),
            parent: None,
            guaranteed: settings.guaranteed,
            maximum: settings.maximum,
            weight: settings.weight.max(1),
            used: queue.used,
            leaving: queue.leaving,
            firm: queue.firm,
            planned: nothing,
            planned_firm: nothing,
            mean: nothing,
            has_below: false,
            below: Below::default(),
        }
    }

    pub(super) fn standing(&self) -> QueueAmount {
        self.used.minus(self.leaving)
    }

    /// Whether it holds less than as `before`, or the jobs do that name it: of what is guaranteed there may be more to
    /// be had.
    pub(super) fn holds_less_than(&self, before: &Self) -> bool {
        let own = |queue: &Self| queue.standing().minus(queue.below.standing);
        !before.standing().within(self.standing()) || !own(before).within(own(self))
    }

    /// Whether more of what it holds may be recalled than as `before`, where a plan that was not confirmed counted for
    /// nothing; in all, or of the jobs that name it.
    pub(super) fn lends_more_than(&self, before: &Self) -> bool {
        self.own_part().lends_more_than(before.own_part()) || self.whole().lends_more_than(before.whole())
    }

    /// All that it holds and that can be recalled if it is on loan: not what the plan being made grants it.
    pub(super) fn whole(&self) -> Holding {
        Holding {
            all: self.standing().minus(self.planned),
            firm: self.firm.minus(self.planned_firm),
            guaranteed: self.guaranteed,
        }
    }

    /// What is for the jobs that name it, beside the queues below it, and can be recalled if it is on loan.
    pub(super) fn own_part(&self) -> Holding {
        let below = &self.below;
        let planned = self.planned.minus(below.planned);
        let planned_firm = self.planned_firm.minus(below.planned_firm);
        Holding {
            all: self.standing().minus(below.standing).minus(planned),
            firm: self.firm.minus(below.firm).minus(planned_firm),
            guaranteed: self.guaranteed.minus(below.guaranteed),
        }
    }

    /// Whether any of what it is guaranteed is left.
    pub(super) fn has_room(&self) -> bool {
        !self.guaranteed.within(self.standing())
    }

    /// Whether it could take something more within its guarantee.
    pub(super) fn is_under(&self) -> bool {
        self.standing().compute < self.guaranteed.compute && self.standing().memory <= self.guaranteed.memory
    }
}

/// Whether more of `held` is above `guaranteed` than was of `before`, in any resource.
fn is_more_lent(before: QueueAmount, held: QueueAmount, guaranteed: (QueueAmount, QueueAmount)) -> bool {
    let (was, is) = guaranteed;
    !held.within(is) && (!held.within(before) || !was.within(is))
}
