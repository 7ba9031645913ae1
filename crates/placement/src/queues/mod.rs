//! The tree of queues, counted through everything that one plan grants and takes back: what queues may still take,
//! whose turn it is, and what may be recalled.
//!
//! Whose turn it is: a queue goes first whose next job is within what it is guaranteed. After those goes the queue that
//! has borrowed least for its weight: what it holds above its guarantee, and what it held above it in the past, as a
//! share of the pool in the resource of which that is more. In a tree this is compared from the top: first the top
//! queues, then those below the first.

mod entry;
mod recall;

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{FollowedUse, LogTime, Mebibytes, MilliTflops, Queue, QueueAmount, Slice, State, UNKNOWN};

use entry::{Entry, Sums};
pub(crate) use recall::{Giver, Recall, Recallable};

/// Most queues above one another; the ledger allows no more.
const DEPTH: usize = 16;
const WHOLE: u64 = 1_000_000_000_000;

/// A queue that an allocation would take above its maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverMaximum {
    /// The queue, or one above it.
    pub queue: String,
    pub used: QueueAmount,
    pub maximum: QueueAmount,
}

/// A guarantee that an allocation would exceed.
#[derive(Clone, Debug)]
pub(crate) struct Exceeded {
    pub(crate) queue: String,
    pub(crate) guaranteed: QueueAmount,
    pub(crate) holds: QueueAmount,
    /// All queues as they would be if that was enough.
    pub(crate) raised: Queues,
}

/// The position of a queue among all; the least is first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(Vec<(bool, u64)>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Some queue may take more than before.
    pub(crate) more: bool,
    /// More may be recalled than before.
    pub(crate) recall: Recallable,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    entries: Vec<Entry>,
    ids: BTreeMap<String, usize>,
    /// Past use of the queues, in the order of the entries.
    uses: Vec<FollowedUse>,
    capacity: QueueAmount,
    /// True if a plan that the ledger has not answered is counted in.
    stale: bool,
    limited: bool,
    /// Up to when windows have been looked at.
    now: LogTime,
    /// True if any queue is guaranteed anything.
    pub(crate) lends: bool,
}

impl Queues {
    pub(crate) fn read(&mut self, state: &State) -> Changed {
        self.now = self.now.max(state.time());
        let names = || state.queues().map(|queue| &queue.settings.name);
        let same = self.entries.iter().map(|queue| &queue.name).eq(names());
        if !same {
            self.ids = names().cloned().zip(0..).collect();
            self.uses = vec![FollowedUse::default(); self.ids.len()];
        }
        let known = |id: usize| self.entries.get(id).filter(|_| same);
        let entry = |(id, queue): (usize, &Arc<Queue>)| {
            let mean = known(id).map_or(QueueAmount::default(), |known| known.whole.mean);
            Entry::of(queue, self.ids.get(&queue.settings.parent).copied(), mean, self.now)
        };
        let mut fresh: Vec<Entry> = state.queues().enumerate().map(entry).collect();
        add_up(&mut fresh);
        let mut pairs = self.entries.iter().zip(&fresh);
        let other_tree = !same || pairs.clone().any(|(known, queue)| known.parent != queue.parent);
        let lent_before = self.lends;
        self.lends = fresh.iter().any(|queue| queue.whole.guaranteed != QueueAmount::default());
        let mut recall = Recallable::default();
        if self.lends || lent_before {
            let all =
                other_tree || pairs.clone().any(|(known, queue)| known.whole.guaranteed != queue.whole.guaranteed);
            let holds_less = |id: &usize| all || fresh[*id].holds_less_than(&self.entries[*id]);
            recall.lent = other_tree || pairs.clone().any(|(known, queue)| queue.lends_more_than(known));
            recall.claims = (0..fresh.len()).filter(holds_less).collect();
        }
        let takes_more = |(known, queue): (&Entry, &Entry)| {
            known.maximum() != queue.maximum() || !known.whole.used.within(queue.whole.used)
        };
        let changed = Changed { more: other_tree || pairs.any(takes_more), recall };
        self.limited = fresh.iter().any(|queue| queue.maximum().is_some());
        self.entries = fresh;
        self.capacity = state.capacity().amount(state.config().reference_precision);
        self.stale = false;
        changed
    }

    /// Reads the queues again if a plan is counted in.
    pub(crate) fn read_stale(&mut self, state: &State) -> Changed {
        if self.stale { self.read(state) } else { Changed::default() }
    }

    /// Takes over what the queues have held up to `now`, and opens those whose windows do. Says whether any did.
    pub(crate) fn settle(&mut self, state: &State, now: LogTime) -> bool {
        self.now = self.now.max(now);
        let mut opened = false;
        for queue in self.entries.iter_mut().filter(|queue| queue.closed && queue.closed_until <= now) {
            (queue.closed, opened) = (false, true);
        }
        for ((entry, followed), queue) in self.entries.iter_mut().zip(&mut self.uses).zip(state.queues()) {
            entry.whole.mean = followed.mean(queue, now, state.config());
        }
        add_up(&mut self.entries);
        opened
    }

    /// Returns whether a queue gets nothing now, by its windows or those of a queue above it.
    pub(crate) fn is_closed(&self, name: &str) -> bool {
        self.line(name).any(|id| self.entries[id].closed)
    }

    pub(crate) fn next_opening(&self) -> Option<LogTime> {
        let closed = self.entries.iter().filter(|queue| queue.closed && queue.closed_until != UNKNOWN);
        closed.map(|queue| queue.closed_until).min()
    }

    /// The number of times that the past use of a queue was counted anew from what the ledger had counted.
    pub(crate) fn uses_recounted(&self) -> u64 {
        self.uses.iter().map(FollowedUse::recounted).sum()
    }

    fn line_of(&self, id: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(id, |id| self.entries[*id].parent).take(DEPTH)
    }

    fn line(&self, name: &str) -> impl Iterator<Item = usize> {
        self.line_of(self.ids.get(name).copied())
    }

    /// Checks that a queue and those above it can take `amount` more.
    ///
    /// # Errors
    /// The lowest queue that would exceed its maximum.
    pub(crate) fn admit(&self, name: &str, amount: QueueAmount) -> Result<(), OverMaximum> {
        self.admit_without(name, amount, std::iter::empty())
    }

    /// The same once these have given back what they hold.
    pub(crate) fn admit_without<'a>(
        &self,
        name: &str,
        amount: QueueAmount,
        givers: impl Iterator<Item = Giver<'a>> + Clone,
    ) -> Result<(), OverMaximum> {
        if !self.limited {
            return Ok(());
        }
        for id in self.line(name) {
            let queue = &self.entries[id];
            let Some(maximum) = queue.maximum() else { continue };
            let below = givers.clone().filter(|giver| self.line(giver.queue).any(|above| above == id));
            let used = below.fold(queue.whole.used, |used, giver| used.minus(giver.amount));
            if !used.plus(amount).within(maximum) {
                return Err(OverMaximum { queue: queue.name.clone(), used: queue.whole.used, maximum });
            }
        }
        Ok(())
    }

    /// Changes what is counted of a queue and of those above it.
    fn change(&mut self, name: &str, change: impl Fn(&mut Sums)) {
        self.stale = true;
        let line: Vec<usize> = self.line(name).collect();
        for id in line {
            change(&mut self.entries[id].whole);
            if let Some(parent) = self.entries[id].parent {
                change(&mut self.entries[parent].below);
            }
        }
    }

    pub(crate) fn charge(&mut self, name: &str, amount: QueueAmount, preemptible: bool) {
        let firm = if preemptible { QueueAmount::default() } else { amount };
        self.change(name, |sums| {
            *sums = sums.plus(Sums {
                used: amount,
                standing: amount,
                firm,
                planned: amount,
                planned_firm: firm,
                ..Sums::default()
            });
        });
    }

    /// Counts in that a job was told to give back what it holds.
    pub(crate) fn take_back(&mut self, giver: Giver<'_>) {
        let firm = if giver.preemptible { QueueAmount::default() } else { giver.amount };
        self.change(giver.queue, |sums| {
            (sums.standing, sums.firm) = (sums.standing.minus(giver.amount), sums.firm.minus(firm));
        });
    }

    /// A share of the pool for a weight, in the resource of which it is more.
    fn share(&self, amount: QueueAmount, weight: u32) -> u64 {
        amount.dominant(self.capacity, WHOLE) / u64::from(weight)
    }

    /// The amount that a queue has borrowed, as a share of the pool for its weight; in millionths of a millionth.
    fn borrowed(&self, queue: &Entry) -> u64 {
        let above = |amount: QueueAmount| amount.minus(queue.whole.guaranteed);
        self.share(above(queue.whole.standing).plus(above(queue.whole.mean)), queue.weight)
    }

    /// The position of a job of a queue among all, if it is granted no less than `least`.
    pub(crate) fn turn(&self, name: &str, least: QueueAmount) -> Turn {
        let Some(id) = self.ids.get(name).copied() else { return Turn::default() };
        let mut levels = Vec::with_capacity(4);
        let own = &self.entries[id];
        if own.has_below {
            // Jobs that name a queue with queues below it compete with these like one more of weight 1.
            let own = own.own();
            levels.push((true, self.share(own.standing.plus(own.mean), 1)));
        }
        for id in self.line_of(Some(id)) {
            let queue = &self.entries[id];
            let within = queue.whole.standing.plus(least).within(queue.whole.guaranteed);
            levels.push((!within, self.borrowed(queue)));
        }
        levels.reverse();
        Turn(levels)
    }

    /// The amount that a queue has borrowed for its weight, in millionths of the pool.
    pub(crate) fn share_ppm(&self, name: &str) -> u64 {
        self.ids.get(name).map_or(0, |id| self.borrowed(&self.entries[*id]) / 1_000_000)
    }

    /// Returns whether the queue, or one above it for its sake, may recall anything that is lent out, from anybody.
    pub(crate) fn may_recall(&self, name: &str) -> bool {
        self.lends && self.line(name).any(|id| self.entries[id].is_under())
    }

    /// Returns whether a grant of `least` would keep the queue, or one above it, within its guarantee, so that it may
    /// recall for that grant without any job of its own giving way.
    pub(crate) fn may_recall_for(&self, name: &str, least: QueueAmount) -> bool {
        let fits = |queue: &Entry| queue.is_under() && queue.whole.standing.plus(least).within(queue.whole.guaranteed);
        self.lends && self.line(name).any(|id| fits(&self.entries[id]))
    }

    /// Returns whether what has changed lets the queue recall more than before.
    pub(crate) fn gains(&self, name: &str, changed: &Recallable) -> bool {
        self.may_recall(name) && (changed.lent || self.line(name).any(|id| changed.claims.contains(&id)))
    }

    /// Returns whether what has changed lets the queue, or one above it, hold more without more being on loan; always
    /// true where no queue is guaranteed anything.
    pub(crate) fn may_grow(&self, name: &str, changed: &Recallable) -> bool {
        let has_room = |id: usize| {
            let Sums { guaranteed, standing, .. } = self.entries[id].whole;
            changed.claims.contains(&id) && !guaranteed.within(standing)
        };
        !self.lends || self.line(name).any(has_room)
    }

    /// The claims that grow when jobs of these queues give way: less may be recalled than before, but by more queues.
    pub(crate) fn claims_of<'a>(&self, givers: impl Iterator<Item = &'a str>) -> Recallable {
        let guaranteed = givers.filter(|_| self.lends);
        Recallable { lent: false, claims: guaranteed.flat_map(|name| self.line(name)).collect() }
    }

    /// Returns whether the jobs that name the queue have anything on loan, so that a job of it that can give way may be
    /// recalled.
    pub(crate) fn has_lent(&self, name: &str) -> bool {
        let own = self.line(name).next().map(|id| self.entries[id].own().held());
        self.lends && own.is_some_and(|own| !own.all.within(own.guaranteed))
    }

    /// Returns whether a grant of `amount` for which `givers` give way raises what is on loan in the queue, in one
    /// above it, or with the jobs that name it. Each of these counts only if all the givers belong to it as well.
    pub(crate) fn lends_more_for<'a>(
        &self,
        name: &str,
        amount: QueueAmount,
        givers: impl Iterator<Item = Giver<'a>>,
    ) -> bool {
        let (mut recall, mut all) = (self.recall(name, amount), QueueAmount::default());
        for giver in givers {
            recall.add(giver);
            all = all.plus(giver.amount);
        }
        self.lends && recall.raises_a_loan(all)
    }

    /// The guarantees of a queue and of those above it, lowest first, that a grant of `least` would exceed.
    pub(crate) fn exceeded(&self, name: &str, least: QueueAmount) -> impl Iterator<Item = Exceeded> {
        self.line(name).filter_map(move |id| {
            let queue = &self.entries[id];
            let (guaranteed, holds) = (queue.whole.guaranteed, queue.whole.standing);
            let more = holds.plus(least).minus(guaranteed);
            let is_one = guaranteed != QueueAmount::default() && more != QueueAmount::default();
            is_one.then(|| {
                let mut raised = self.clone();
                raised.entries[id].whole.guaranteed = guaranteed.plus(more);
                if let Some(parent) = queue.parent {
                    let below = &mut raised.entries[parent].below;
                    below.guaranteed = below.guaranteed.plus(more);
                }
                Exceeded { queue: queue.name.clone(), guaranteed, holds, raised }
            })
        })
    }

    /// The recalls that a grant of `asked` to a job of the queue may make, one after the other.
    pub(crate) fn recall<'a>(&'a self, name: &str, asked: QueueAmount) -> Recall<'a> {
        Recall { queues: self, mine: self.line(name).collect(), asked, back: BTreeMap::new() }
    }
}

/// Adds up what is below each queue.
fn add_up(entries: &mut [Entry]) {
    entries.iter_mut().for_each(|queue| queue.below = Sums::default());
    for id in 0..entries.len() {
        if let Some(parent) = entries[id].parent {
            entries[parent].has_below = true;
            entries[parent].below = entries[parent].below.plus(entries[id].whole);
        }
    }
}

/// The amount that slices count for in a queue.
pub(crate) fn amount_of<'a>(slices: impl Iterator<Item = &'a Slice> + Clone, block_size: MilliTflops) -> QueueAmount {
    let blocks = slices.clone().map(|slice| u64::from(slice.length.0)).sum();
    amount(blocks, slices.map(|slice| slice.memory).sum(), block_size)
}

/// The amount that blocks and memory count for in a queue.
pub(crate) fn amount(blocks: u64, memory: Mebibytes, block_size: MilliTflops) -> QueueAmount {
    QueueAmount { compute: MilliTflops(blocks.saturating_mul(block_size.0)), memory }
}
