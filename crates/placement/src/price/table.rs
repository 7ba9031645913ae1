//! The worth of what is left on a card: the best that requests of the observed mix could make of it, at their
//! present prices.

use super::bids::{Bids, Rivals};
use super::grid::Grid;
use super::knapsack::Knapsack;
use super::lanes::{self, LANES, Lanes, MOST_OF_CARD};

/// All nodes that can serve a request for several whole cards only when it is worth this part more than what else could
/// be made of the cards; the less more it is worth, the fewer of them. If it were all or none, its price would swing
/// around the one at which as many are served as shall be.
const INDIFFERENCE: i32 = 25;

/// The use that a request makes of a card of some class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    None,
    /// A part of one card, in steps of the class's grids.
    Part {
        compute: usize,
        memory: usize,
    },
    /// A number of whole cards of one node.
    Whole(usize),
}

/// The tables of all classes whose cards are of equal size and equally useful to every request of the mix.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) compute_grid: Grid,
    pub(crate) memory_grid: Grid,
    /// The best use of compute, memory left out of account.
    pub(crate) by_compute: Knapsack,
    /// The best use of memory, compute left out of account; `None` when no request asks for memory.
    pub(crate) by_memory: Option<Knapsack>,
    /// The best use of so many empty cards of one node: whole ones for requests that need several, the others one
    /// by one.
    empty: Vec<Lanes>,
    /// Requests for so many whole cards.
    wholes: Vec<Rivals>,
}

impl Table {
    /// A table that is not filled yet, for nodes with up to `cards` cards, of which each item takes so much.
    pub(crate) fn new(
        (compute_grid, memory_grid): (Grid, Grid),
        memory_matters: bool,
        cards: usize,
        uses: &[Use],
    ) -> Self {
        let items = || (0u16..).zip(uses);
        let parts = |dimension: fn(usize, usize) -> usize| {
            items().filter_map(move |(item, used)| match used {
                Use::Part { compute, memory } => Some((item, dimension(*compute, *memory))),
                Use::None | Use::Whole(_) => None,
            })
        };
        let wholes = items().filter_map(|(item, used)| match used {
            Use::Whole(size) => Some((item, *size)),
            Use::None | Use::Part { .. } => None,
        });
        Self {
            compute_grid,
            memory_grid,
            by_compute: Knapsack::new(compute_grid.steps(), parts(|compute, _| compute)),
            by_memory: memory_matters.then(|| Knapsack::new(memory_grid.steps(), parts(|_, memory| memory))),
            empty: vec![[0; LANES]; cards + 1],
            wholes: Rivals::by_size(wholes),
        }
    }

    pub(crate) fn fill(&mut self, bids: &Bids) {
        self.by_compute.fill(bids);
        if let Some(by_memory) = &mut self.by_memory {
            by_memory.fill(bids);
        }
        self.wholes.iter_mut().for_each(|whole| whole.bid(bids));
        let one = self.part(self.compute_grid.steps(), self.memory_grid.steps());
        for count in 1..self.empty.len() {
            let mut worth = self.empty[count - 1];
            lanes::add(&mut worth, &one);
            for whole in self.wholes.iter().filter(|whole| whole.size <= count) {
                let most = MOST_OF_CARD * i32::try_from(count).unwrap_or(1);
                let with = &self.empty[count - whole.size];
                for lane in 0..LANES {
                    worth[lane] = worth[lane].max((with[lane] + whole.worth[lane]).min(most));
                }
            }
            self.empty[count] = worth;
        }
    }

    /// The worth of a card that has so many steps left.
    pub(crate) fn part(&self, compute: usize, memory: usize) -> Lanes {
        let by_compute = self.by_compute.of(compute);
        self.by_memory.as_ref().map_or(*by_compute, |by_memory| lanes::least(by_compute, by_memory.of(memory)))
    }

    /// The worth of so many empty cards of one node.
    pub(crate) fn empty(&self, cards: usize) -> &Lanes {
        &self.empty[cards.min(self.empty.len() - 1)]
    }

    /// Most empty cards of one node that are told apart.
    pub(crate) fn most_empty(&self) -> usize {
        self.empty.len() - 1
    }

    /// Adds to `supply` what all cards are filled with: first the empty ones, of which some are filled in parts.
    pub(crate) fn empty_into(&self, rooms: &mut Rooms, bids: &Bids, supply: &mut [i64]) {
        let mut cards = std::mem::take(&mut rooms.empty);
        let (compute, memory) = (self.compute_grid.steps(), self.memory_grid.steps());
        let part = self.part(compute, memory);
        let mut got = vec![[0; LANES]; self.wholes.len()];
        for count in (1..cards.len()).rev() {
            for lane in 0..LANES {
                let weight = std::mem::take(&mut cards[count][lane]);
                if weight == 0 {
                    continue;
                }
                let parts = self.empty[count - 1][lane].wrapping_add(part[lane]);
                let whole = self.best_whole(count, lane).filter(|(_, worth)| *worth > parts);
                let mut taken = 0;
                if let Some((position, worth)) = whole {
                    let whole = &self.wholes[position];
                    let all_from = i64::from(whole.worth[lane] / INDIFFERENCE).max(1);
                    taken = weight * i64::from(worth - parts).min(all_from) / all_from;
                    got[position][lane] += taken;
                    cards[count - whole.size][lane] += taken;
                }
                if taken != weight {
                    self.fill_part(rooms, compute, memory, lane, weight - taken);
                    cards[count - 1][lane] += weight - taken;
                }
            }
        }
        self.wholes.iter().zip(&got).for_each(|(whole, got)| whole.divide(got, bids, supply));
        self.by_compute.empty_into(&mut rooms.compute, bids, supply);
        if let Some(by_memory) = &self.by_memory {
            by_memory.empty_into(&mut rooms.memory, bids, supply);
        }
    }

    /// The position of the requests for whole cards that make most of so many empty ones in a lane, and what they are
    /// all worth with one of them.
    fn best_whole(&self, count: usize, lane: usize) -> Option<(usize, i32)> {
        let fits = self.wholes.iter().take_while(|whole| whole.size <= count);
        let worth = |whole: &Rivals| self.empty[count - whole.size][lane].wrapping_add(whole.worth[lane]);
        let each = fits.enumerate().map(|(position, whole)| (position, worth(whole)));
        each.reduce(|best, other| if other.1 > best.1 { other } else { best })
    }

    /// Notes that a card with so much left is filled in a lane, in the dimension that is scarcer there.
    pub(crate) fn fill_part(&self, rooms: &mut Rooms, compute: usize, memory: usize, lane: usize, weight: i64) {
        let by_compute = self.by_compute.of(compute)[lane];
        match &self.by_memory {
            Some(by_memory) if by_memory.of(memory)[lane] < by_compute => rooms.memory[memory][lane] += weight,
            _ => rooms.compute[compute][lane] += weight,
        }
    }
}

/// Weights of cards by what they have left, for one table.
#[derive(Clone, Debug)]
pub(crate) struct Rooms {
    /// Cards whose compute is scarcer, by steps left.
    pub(crate) compute: Vec<[i64; LANES]>,
    /// Cards whose memory is scarcer.
    pub(crate) memory: Vec<[i64; LANES]>,
    /// Empty cards of one node, by their number.
    pub(crate) empty: Vec<[i64; LANES]>,
}

impl Rooms {
    pub(crate) fn new(table: &Table) -> Self {
        let memory = if table.by_memory.is_some() { table.memory_grid.steps() } else { 0 };
        let [compute, memory, empty] =
            [table.compute_grid.steps(), memory, table.most_empty()].map(|most| vec![[0; LANES]; most + 1]);
        Self { compute, memory, empty }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bids::rounded;
    use super::*;

    /// Two empty cards on each of 81 nodes; a request that takes one card and is worth 1,000, and one that takes both
    /// and is worth so much.
    fn supply(worth_of_both: i32) -> Vec<i64> {
        let uses = [Use::Part { compute: 10, memory: 0 }, Use::Whole(2)];
        let grids = (Grid::new(10, [10].into_iter()), Grid::new(0, [].into_iter()));
        let mut table = Table::new(grids, false, 2, &uses);
        let bids = Bids { worth: vec![[1_000; LANES], [worth_of_both; LANES]], weight: vec![1; 2] };
        table.fill(&bids);
        let (mut rooms, mut supply) = (Rooms::new(&table), vec![0; 2]);
        rooms.empty[2][0] = 81;
        table.empty_into(&mut rooms, &bids, &mut supply);
        rounded(supply)
    }

    #[test]
    fn the_more_a_request_for_whole_cards_is_worth_the_more_nodes_serve_it() {
        assert_eq!(supply(2_000), [162, 0], "as much as what else there is");
        assert_eq!(supply(2_040), [82, 40], "two in a hundred more");
        assert_eq!(supply(2_100), [0, 81]);
    }
}
