//! The tariff: when prices are made anew. Between two times they stay, so that a decision costs no more than looking
//! them up.

use tessera_ledger::{JobSpec, State};

use crate::pool::Pool;
use crate::price;

/// Prices are made anew when as many virtual cards were placed or freed as this part of the cards that were free when
/// they were made: the less there is left, the sooner it is different from what the prices were made for.
const TURNOVER: usize = 4;

/// But at most for so small a part of all cards as free.
const LEAST_FREE: usize = 8;

/// But not for fewer changes than these.
const LEAST_CHANGES: usize = 16;

/// Or when so many times as many requests were seen, or one of so many are left.
const MIX_GROWTH: u64 = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tariff {
    /// The figures that the prices were made from, if there are any prices.
    made: Option<Made>,
    /// Grants and cards freed since.
    changes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    /// Virtual cards that jobs in the ledger asked for.
    seen: u64,
    classes: usize,
    /// Cards' worth of free blocks, at least a [`LEAST_FREE`]th of all cards.
    free: usize,
}

impl Tariff {
    /// Counts grants, or cards that were freed.
    pub(crate) fn changed(&mut self, count: usize) {
        self.changes += count;
    }

    fn is_due(&self, seen: u64, classes: usize) -> bool {
        self.made.is_none_or(|made| {
            classes != made.classes
                || seen >= made.seen.saturating_mul(MIX_GROWTH)
                || seen <= made.seen / MIX_GROWTH
                || self.changes >= (made.free / TURNOVER).max(LEAST_CHANGES)
        })
    }
}

impl Pool {
    /// Makes prices anew if enough has changed. They follow from the free room and the mix of requests at that moment.
    pub fn reprice_if_due(&mut self, state: &State) {
        if self.tariff.is_due(self.mix.counted(), self.index.classes.len()) {
            self.reprice(state);
        }
    }

    /// Makes prices anew from what is free now and the requests seen so far.
    fn reprice(&mut self, state: &State) {
        self.mix.compile(&self.index.classes, state.config());
        self.index.settle_outlines();
        let prices = price::prices(&self.index, self.mix.demands());
        self.index.reprice(prices);
        self.line.shapes.prices_changed();
        let cards: usize = self.index.nodes().map(|(_, node)| node.cards.len()).sum();
        let classes = self.index.classes.in_order();
        let free: u64 = classes.map(|(key, id)| self.index.classes.get(id).free / u64::from(key.blocks.max(1))).sum();
        let free = usize::try_from(free).unwrap_or(usize::MAX).max(cards / LEAST_FREE);
        let made = Made { seen: self.mix.counted(), classes: self.index.classes.len(), free };
        self.tariff = Tariff { made: Some(made), changes: 0 };
    }

    /// Forgets the prices of room: the next decision makes them anew, as it does by itself when enough has changed. Two
    /// pools of equal states that were told the same past decide alike after this.
    pub fn forget_prices(&mut self) {
        self.tariff.made = None;
    }

    /// Counts `weight` requests like `spec` as seen in the past, beside the jobs in the ledger: where the mix of
    /// requests is known before the first ones arrive, room is kept for them from the start.
    pub fn observe(&mut self, spec: &JobSpec, weight: u64) {
        self.mix.tell(spec, weight);
    }
}
