//! The worth of what is left on a card: the best that requests of the observed mix could make of it, at their present prices.

use super::grid::Grid;
use super::lanes::{self, LANES, Lanes, MOST_OF_CARD};

/// All nodes that can serve a request for several whole cards only when it is worth this part more than what else could be made of the
/// cards; the less more it is worth, the fewer of them. If it were all or none, its price would swing around the one at which
/// as many are served as shall be.
const INDIFFERENCE: i32 = 25;

/// What a request takes of a card of some class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// It does not take such cards.
    None,
    /// A part of one card, in steps of the class's grids.
    Part {
        /// Compute.
        compute: usize,
        /// Memory.
        memory: usize,
    },
    /// So many whole cards of one node.
    Whole(usize),
}

/// The best request of one size in every lane.
#[derive(Clone, Copy, Debug)]
struct Best {
    size: usize,
    worth: Lanes,
    item: [u16; LANES],
}

/// The best use of one dimension of a card: unbounded knapsacks, one for each lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knapsack {
    worth: Vec<Lanes>,
    sizes: Vec<Best>,
}

impl Knapsack {
    /// Fills the table for rooms of up to `steps`; `requests` are item, size and worth.
    pub(crate) fn fill(&mut self, steps: usize, requests: impl Iterator<Item = (u16, usize, Lanes)>) {
        self.sizes.clear();
        for (item, size, worth) in requests.filter(|(_, size, _)| *size > 0 && *size <= steps) {
            let position = self.sizes.iter().position(|best| best.size == size).unwrap_or_else(|| {
                self.sizes.push(Best { size, worth: [0; LANES], item: [u16::MAX; LANES] });
                self.sizes.len() - 1
            });
            let best = &mut self.sizes[position];
            for (lane, worth) in worth.into_iter().enumerate() {
                if worth > best.worth[lane] {
                    best.worth[lane] = worth;
                    best.item[lane] = item;
                }
            }
        }
        self.sizes.sort_unstable_by_key(|best| best.size);
        self.worth.clear();
        self.worth.push([0; LANES]);
        let mut all = std::mem::take(&mut self.sizes).into_iter().peekable();
        for room in 1..=steps {
            let mut worth = self.worth[room - 1];
            for best in &self.sizes {
                let rest = &self.worth[room - best.size];
                for lane in 0..LANES {
                    worth[lane] = worth[lane].max(rest[lane] + best.worth[lane]);
                }
            }
            // A request that is worth no more in any lane than smaller ones in its place is never put there.
            if let Some(best) = all.next_if(|best| best.size == room)
                && lanes::raise(&mut worth, &best.worth)
            {
                self.sizes.push(best);
            }
            self.worth.push(worth.map(|worth| worth.min(MOST_OF_CARD)));
        }
    }

    /// The worth of so much room.
    pub(crate) fn of(&self, room: usize) -> &Lanes {
        &self.worth[room.min(self.worth.len() - 1)]
    }

    /// What is done with room in a lane: the item that is put there, and the room that it leaves.
    fn step(&self, room: usize, lane: usize) -> (Option<u16>, usize) {
        let worth = self.worth[room][lane];
        if self.worth[room - 1][lane] == worth {
            return (None, room - 1);
        }
        let fits = self.sizes.iter().take_while(|best| best.size <= room);
        let chosen = fits.clone().find(|best| self.worth[room - best.size][lane] + best.worth[lane] == worth);
        chosen.map_or((None, room - 1), |best| (Some(best.item[lane]), room - best.size))
    }

    /// Adds to `supply` what rooms are filled with; `rooms` are weights by room and lane and are used up.
    pub(crate) fn empty_into(&self, rooms: &mut [[i64; LANES]], supply: &mut [i64]) {
        for room in (1..rooms.len()).rev() {
            let weights = std::mem::replace(&mut rooms[room], [0; LANES]);
            for (lane, weight) in weights.into_iter().enumerate().filter(|(_, weight)| *weight != 0) {
                let (item, rest) = self.step(room, lane);
                if let Some(item) = item {
                    supply[usize::from(item)] += weight;
                }
                rooms[rest][lane] += weight;
            }
        }
        rooms[0] = [0; LANES];
    }
}

/// The tables of all classes whose cards are of equal size and equally useful to every request of the mix.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Steps of compute.
    pub(crate) compute_grid: Grid,
    /// Steps of memory.
    pub(crate) memory_grid: Grid,
    /// The best use of compute, memory left out of account.
    pub(crate) by_compute: Knapsack,
    /// The best use of memory, compute left out of account; `None` when no request asks for memory.
    pub(crate) by_memory: Option<Knapsack>,
    /// The best use of so many empty cards of one node: whole ones for requests that need several, the others one by one.
    empty: Vec<Lanes>,
    wholes: Vec<Best>,
}

impl Table {
    /// A table that is not filled yet, for nodes with up to `cards` cards.
    pub(crate) fn new(compute_grid: Grid, memory_grid: Grid, memory_matters: bool, cards: usize) -> Self {
        Self {
            compute_grid,
            memory_grid,
            by_compute: Knapsack::default(),
            by_memory: memory_matters.then(Knapsack::default),
            empty: vec![[0; LANES]; cards + 1],
            wholes: Vec::new(),
        }
    }

    /// Fills everything from what the items take (`uses`) and what each is worth.
    pub(crate) fn fill(&mut self, uses: &[Use], worth: &[Lanes]) {
        let items = || (0u16..).zip(uses.iter().zip(worth));
        let parts = |dimension: fn(usize, usize) -> usize| {
            items().filter_map(move |(item, (used, worth))| match used {
                Use::Part { compute, memory } => Some((item, dimension(*compute, *memory), *worth)),
                Use::None | Use::Whole(_) => None,
            })
        };
        self.by_compute.fill(self.compute_grid.steps(), parts(|compute, _| compute));
        if let Some(by_memory) = &mut self.by_memory {
            by_memory.fill(self.memory_grid.steps(), parts(|_, memory| memory));
        }
        self.wholes.clear();
        for (item, (used, worth)) in items() {
            let Use::Whole(size) = *used else { continue };
            self.wholes.push(Best { size, worth: *worth, item: [item; LANES] });
        }
        let one = *self.part(self.compute_grid.steps(), self.memory_grid.steps()).as_ref();
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
    pub(crate) fn part(&self, compute: usize, memory: usize) -> Part<'_> {
        let by_compute = self.by_compute.of(compute);
        match &self.by_memory {
            Some(by_memory) => Part::Least(lanes::least(by_compute, by_memory.of(memory))),
            None => Part::Compute(by_compute),
        }
    }

    /// The worth of so many empty cards of one node.
    pub(crate) fn empty(&self, cards: usize) -> &Lanes {
        &self.empty[cards.min(self.empty.len() - 1)]
    }

    /// Most empty cards of one node that are told apart.
    pub(crate) fn most_empty(&self) -> usize {
        self.empty.len() - 1
    }

    /// Adds to `supply` what empty cards are filled with whole, and to `rooms` those that are filled in parts.
    pub(crate) fn empty_into(&self, cards: &mut [[i64; LANES]], rooms: &mut Rooms, supply: &mut [i64]) {
        let (compute, memory) = (self.compute_grid.steps(), self.memory_grid.steps());
        let part = *self.part(compute, memory).as_ref();
        for count in (1..cards.len()).rev() {
            for lane in 0..LANES {
                let weight = std::mem::take(&mut cards[count][lane]);
                if weight == 0 {
                    continue;
                }
                let parts = self.empty[count - 1][lane].wrapping_add(part[lane]);
                let whole = self.best_whole(count, lane).filter(|(_, worth)| *worth > parts);
                let mut taken = 0;
                if let Some((whole, worth)) = whole {
                    let all_from = i64::from(whole.worth[lane] / INDIFFERENCE).max(1);
                    taken = weight * i64::from(worth - parts).min(all_from) / all_from;
                    supply[usize::from(whole.item[lane])] += taken;
                    cards[count - whole.size][lane] += taken;
                }
                if taken != weight {
                    self.fill_part(rooms, compute, memory, lane, weight - taken);
                    cards[count - 1][lane] += weight - taken;
                }
            }
        }
        cards[0] = [0; LANES];
    }

    /// The request for whole cards that makes most of so many empty ones in a lane, and what they are all worth with it.
    fn best_whole(&self, count: usize, lane: usize) -> Option<(&Best, i32)> {
        let fits = self.wholes.iter().filter(|whole| whole.size <= count);
        let worth = |whole: &Best| self.empty[count - whole.size][lane].wrapping_add(whole.worth[lane]);
        fits.map(|whole| (whole, worth(whole))).reduce(|best, other| if other.1 > best.1 { other } else { best })
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

/// The worth of a card: a row of a table, or the lesser of two.
pub(crate) enum Part<'table> {
    /// Compute alone decides.
    Compute(&'table Lanes),
    /// The lesser of compute and memory.
    Least(Lanes),
}

impl AsRef<Lanes> for Part<'_> {
    fn as_ref(&self) -> &Lanes {
        match self {
            Part::Compute(lanes) => lanes,
            Part::Least(lanes) => lanes,
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
}

impl Rooms {
    /// None yet, for a table.
    pub(crate) fn new(table: &Table) -> Self {
        let memory = if table.by_memory.is_some() { table.memory_grid.steps() } else { 0 };
        Self { compute: vec![[0; LANES]; table.compute_grid.steps() + 1], memory: vec![[0; LANES]; memory + 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two empty cards on each of 81 nodes; a request that takes one card and is worth 1,000, and one that takes both and is worth so much.
    fn supply(worth_of_both: i32) -> Vec<i64> {
        let uses = [Use::Part { compute: 10, memory: 0 }, Use::Whole(2)];
        let mut table = Table::new(Grid::new(10, [10].into_iter()), Grid::new(0, [].into_iter()), false, 2);
        table.fill(&uses, &[[1_000; LANES], [worth_of_both; LANES]]);
        let (mut rooms, mut supply) = (Rooms::new(&table), vec![0; 2]);
        let mut empty = [[0; LANES]; 3];
        empty[2][0] = 81;
        table.empty_into(&mut empty, &mut rooms, &mut supply);
        table.by_compute.empty_into(&mut rooms.compute, &mut supply);
        supply
    }

    #[test]
    fn the_more_a_request_for_whole_cards_is_worth_the_more_nodes_serve_it() {
        assert_eq!(supply(2_000), [162, 0], "as much as what else there is");
        assert_eq!(supply(2_040), [82, 40], "two in a hundred more");
        assert_eq!(supply(2_100), [0, 81]);
    }
}
