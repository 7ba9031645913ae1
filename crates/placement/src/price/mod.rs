//! Prices: what free room is worth, judged by the requests that the pool sees.
//!
//! The question behind every placement is what the room could have been used for instead. Imagine that requests keep
//! coming in the observed mix until the pool is full. How much of the mix can be held at most is a linear program over
//! all ways to fill each node; its dual gives every request a price. A card with some room left is worth the best set
//! of requests that fits the room, at these prices ([`table`]), a node what its cards are worth given how much of its
//! host is left ([`lanes`]), and a placement costs what the node is worth less afterwards. So a remainder that nobody
//! asks for is worth nothing, a card model that some requests depend on is dear to all others, and whole nodes stay
//! whole as far as there is demand for them.
//!
//! The dual is solved approximately, by a fixed number of multiplicative steps on integers: [`solve`]. Prices follow
//! from the free room and the mix alone, and are the same on every machine.

mod bids;
mod grid;
mod knapsack;
pub(crate) mod lanes;
mod shelves;
mod solve;
mod table;

use tessera_ledger::HostRequest;

use crate::index::class::ClassId;
use lanes::{HostPrices, Lanes};
use table::Table;

pub(crate) use solve::prices;

/// Worth of the largest card of the pool, so that all sums fit 32 bits.
const LARGEST_CARD: u64 = 1 << 15;

#[derive(Clone, Debug, Default)]
pub(crate) struct Prices {
    host: HostPrices,
    tables: Vec<Table>,
    of_class: Vec<usize>,
    /// Differences of cost that are too small to be told apart.
    quantum: i32,
}

impl Prices {
    /// The table by which cards of a class are judged; `None` for classes that came up after the prices.
    fn table(&self, class: ClassId) -> Option<&Table> {
        self.tables.get(*self.of_class.get(class.0)?)
    }

    pub(crate) fn knows(&self, class: ClassId) -> bool {
        self.table(class).is_some()
    }

    /// The worth of a card of the class that is partly used.
    pub(crate) fn card(&self, class: ClassId, blocks: u32, memory: u64) -> Option<Lanes> {
        let table = self.table(class)?;
        let memory = if table.by_memory.is_some() { table.memory_grid.left(memory) } else { 0 };
        Some(table.part(table.compute_grid.left(u64::from(blocks)), memory))
    }

    /// The worth of so many empty cards of the class on one node.
    pub(crate) fn empty(&self, class: ClassId, cards: usize) -> Option<&Lanes> {
        Some(self.table(class)?.empty(cards))
    }

    /// The cost of a part of a host in every lane.
    pub(crate) fn host(&self, part: HostRequest) -> Lanes {
        self.host.of(part)
    }

    /// A cost without the differences that are too small to count.
    pub(crate) fn rounded(&self, cost: i32) -> i32 {
        cost / self.quantum.max(1)
    }
}
