//! One queue of the tree: what it holds, what is for the jobs that name it, and what of that is on loan.

use tessera_ledger::standing::Held;
use tessera_ledger::{LogTime, Queue, QueueAmount};

/// A queue as placement sees it. What is left of its sums without those of the queues below it is for the jobs that
/// name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    pub(super) maximum: Option<QueueAmount>,
    /// It gets nothing before this time, by its windows.
    pub(super) closed_until: LogTime,
    /// True if that is yet to come.
    pub(super) closed: bool,
    pub(super) weight: u32,
    pub(super) has_below: bool,
    /// With those below it.
    pub(super) whole: Sums,
    /// Sums of the queues directly below it together.
    pub(super) below: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) guaranteed: QueueAmount,
    /// The amount that its jobs hold, those that were told to stop included.
    pub(super) used: QueueAmount,
    /// Without those: what guarantees are compared with.
    pub(super) standing: QueueAmount,
    /// The part of that which jobs hold that are not preemptible.
    pub(super) firm: QueueAmount,
    /// The amount that the plan being made grants it, and the part of that which is firm: nothing of it can be recalled
    /// by the same plan.
    pub(super) planned: QueueAmount,
    pub(super) planned_firm: QueueAmount,
    /// The average that it has held, as of the present decision.
    pub(super) mean: QueueAmount,
}

impl Sums {
    fn each(self, other: Self, by: fn(QueueAmount, QueueAmount) -> QueueAmount) -> Self {
        Self {
            guaranteed: by(self.guaranteed, other.guaranteed),
            used: by(self.used, other.used),
            standing: by(self.standing, other.standing),
            firm: by(self.firm, other.firm),
            planned: by(self.planned, other.planned),
            planned_firm: by(self.planned_firm, other.planned_firm),
            mean: by(self.mean, other.mean),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.each(other, QueueAmount::plus)
    }

    /// The amounts that can be recalled of it if they are on loan: not those that the plan being made grants it.
    pub(super) fn held(self) -> Held {
        let (all, firm) = (self.standing.minus(self.planned), self.firm.minus(self.planned_firm));
        Held { all, firm, guaranteed: self.guaranteed }
    }
}

impl Entry {
    pub(super) fn of(queue: &Queue, parent: Option<usize>, mean: QueueAmount, now: LogTime) -> Self {
        let settings = &queue.settings;
        let whole = Sums {
            guaranteed: settings.guaranteed,
            used: queue.used,
            standing: queue.standing(),
            firm: queue.firm,
            mean,
            ..Sums::default()
        };
        let (name, maximum, weight) = (settings.name.clone(), settings.maximum, settings.weight.max(1));
        let (closed_until, closed) = (queue.closed_until, queue.closed_until > now);
        let below = Sums::default();
        Self { name, parent, maximum, closed_until, closed, weight, has_below: false, whole, below }
    }

    /// The most that its jobs may hold now; `None`: no bound but the pool.
    pub(super) fn maximum(&self) -> Option<QueueAmount> {
        if self.closed { Some(QueueAmount::default()) } else { self.maximum }
    }

    /// The sums for the jobs that name it, without the queues below it.
    pub(super) fn own(&self) -> Sums {
        self.whole.each(self.below, QueueAmount::minus)
    }

    /// Returns whether it holds less than as `before`, or the jobs do that name it: more of what is guaranteed may be
    /// available.
    pub(super) fn holds_less_than(&self, before: &Self) -> bool {
        let less = |(was, is): (Sums, Sums)| !was.standing.within(is.standing);
        less((before.whole, self.whole)) || less((before.own(), self.own()))
    }

    /// Returns whether more of what it holds may be recalled than as `before`, where a plan that was not confirmed
    /// counted for nothing; in all, or of the jobs that name it.
    pub(super) fn lends_more_than(&self, before: &Self) -> bool {
        let more = |(was, is): (Held, Held)| {
            let of = |before: QueueAmount, held: QueueAmount| {
                !held.within(is.guaranteed) && (!held.within(before) || !was.guaranteed.within(is.guaranteed))
            };
            of(was.all, is.all) || of(was.firm, is.firm)
        };
        more((before.own().held(), self.own().held())) || more((before.whole.held(), self.whole.held()))
    }

    /// Returns whether it could take something more within its guarantee.
    pub(super) fn is_under(&self) -> bool {
        let Sums { guaranteed, standing, .. } = self.whole;
        standing.compute < guaranteed.compute && standing.memory <= guaranteed.memory
    }
}
