//! The shelves: what nodes have left, in steps of the tables, laid out so that all of it can be filled at many prices
//! in turn.

use super::bids::{self, Bids};
use super::lanes::{self, CPU_LANES, HostPrices, LANES, Lanes};
use super::table::{Rooms, Table};
use crate::index::node::Host;
use crate::index::outlines::{Group, Shared};

const ONE_NODE: i64 = 1 << 8;

/// The most processor time of one node that is told apart, in thousandths; so that products fit 64 bits.
const MOST_CPU: i64 = 1 << 48;

/// The room left on nodes that have the same left.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    weight: i64,
    /// Worth of the host in every lane, and its processor time; `None`: not limited.
    host: Option<(Lanes, i64)>,
    lots: Vec<Lot>,
}

#[derive(Clone, Copy, Debug)]
enum Lot {
    /// `count` cards that are partly used alike, in steps of their table.
    Part { table: usize, compute: usize, memory: usize, count: i32 },
    /// `cards` empty cards of one node.
    Empty { table: usize, cards: usize },
}

/// Fills every node as well as can be at the bids that the tables are filled from. Answers what all nodes are worth,
/// and how much of each item they then hold.
pub(crate) fn fill(shelves: &[Shelf], tables: &[Table], prices: &HostPrices, bids: &Bids) -> (i128, Vec<i64>) {
    let mut rooms: Vec<Rooms> = tables.iter().map(Rooms::new).collect();
    let mut total = 0;
    for shelf in shelves {
        let mut cards = [0; LANES];
        shelf.lots.iter().for_each(|lot| lanes::add(&mut cards, &lot.worth(tables)));
        let (worth, chosen) = shelf.choose(prices, &cards);
        total += i128::from(worth) * i128::from(shelf.weight);
        for (lane, weight) in chosen.into_iter().filter(|(_, weight)| *weight != 0) {
            shelf.lots.iter().for_each(|lot| lot.fill(tables, &mut rooms, lane, weight));
        }
    }
    let mut supply = vec![0; bids.worth.len()];
    for (table, rooms) in tables.iter().zip(&mut rooms) {
        table.empty_into(rooms, bids, &mut supply);
    }
    (total, bids::rounded(supply))
}

impl Lot {
    fn of(group: &Group, tables: &[Table], of_class: &[usize]) -> Self {
        let table = of_class[group.class.0];
        if group.empty {
            return Self::Empty { table, cards: usize::from(group.count).min(tables[table].most_empty()) };
        }
        let (compute, memory) = (tables[table].compute_grid, tables[table].memory_grid);
        let (compute, memory) = (compute.left(u64::from(group.offered)), memory.left(group.memory));
        Self::Part { table, compute, memory, count: group.count.into() }
    }

    fn worth(self, tables: &[Table]) -> Lanes {
        match self {
            Self::Part { table, compute, memory, count } => {
                tables[table].part(compute, memory).map(|worth| worth * count)
            }
            Self::Empty { table, cards } => *tables[table].empty(cards),
        }
    }

    /// Notes that it is filled so often in a lane.
    fn fill(self, tables: &[Table], rooms: &mut [Rooms], lane: usize, weight: i64) {
        match self {
            Self::Part { table, compute, memory, count } => {
                tables[table].fill_part(&mut rooms[table], compute, memory, lane, weight * i64::from(count));
            }
            Self::Empty { table, cards } => rooms[table].empty[cards][lane] += weight,
        }
    }
}

impl Shelf {
    /// Lays out the room left on the nodes of an outline; `of_class` are the positions of the tables of the classes.
    pub(crate) fn of(shared: &Shared, tables: &[Table], of_class: &[usize], prices: &HostPrices) -> Self {
        let host = |host: Host| {
            let cpu = i64::try_from(host.left.cpu.0).unwrap_or(i64::MAX).min(MOST_CPU);
            (prices.of(host.left), cpu)
        };
        Self {
            weight: shared.nodes.len() as i64 * ONE_NODE,
            host: shared.outline.host.map(host),
            lots: shared.outline.groups.iter().map(|group| Lot::of(group, tables, of_class)).collect(),
        }
    }

    /// Returns the worth of a node, and the lanes in which it is filled, with their weights: the lane that binds,
    /// blended with a neighbour so that about all of its processor time is used.
    fn choose(&self, prices: &HostPrices, cards: &Lanes) -> (i32, [(usize, i64); 2]) {
        let Some((host, cpu)) = &self.host else { return (cards[0], [(0, self.weight), (0, 0)]) };
        let mut all = *cards;
        lanes::add(&mut all, host);
        let (lane, worth) = lanes::bound(&all);
        let (other, part) = blend(prices, cards, lane, *cpu).unwrap_or((lane, 0));
        let moved = self.weight * part / ONE_NODE;
        (worth, [(lane, self.weight - moved), (other, moved)])
    }
}

/// The lane to blend with, and how much of it in parts of [`ONE_NODE`]. The processor time that a filling uses is how
/// fast the worth of the cards falls as its price rises.
fn blend(prices: &HostPrices, cards: &Lanes, lane: usize, cpu: i64) -> Option<(usize, i64)> {
    let use_above = |lane: usize| prices.cpu_between(lane, cards[lane] - cards.get(lane + 1)?);
    if lane >= CPU_LANES {
        return None;
    }
    let above = use_above(lane);
    let below = lane.checked_sub(1).and_then(use_above);
    let here = match (above, below) {
        (Some(above), Some(below)) => i64::midpoint(above, below),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => return None,
    };
    let (other, toward) = if here > cpu { (lane + 1, above?) } else { (lane.checked_sub(1)?, below?) };
    let span = 2 * (here - toward).abs();
    let part = ((here - cpu).abs() * ONE_NODE).checked_div(span)?;
    Some((other, part.min(ONE_NODE)))
}
