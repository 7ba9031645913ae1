//! The shelves: what nodes have left, in steps of the tables, laid out so that all of it can be filled at many prices
//! in turn.
//!
//! Most nodes have something in common: an empty card of some class, a card with half its blocks left. Each such *lot*
//! is looked up in the tables once for all nodes that have it.

use std::collections::BTreeMap;

use super::Stock;
use super::bids::{self, Bids};
use super::lanes::{self, CPU_LANES, HostPrices, LANES, Lanes};
use super::table::{Rooms, Table};
use crate::index::node::Host;
use crate::index::outlines::Group;

const ONE_NODE: i64 = 1 << 8;

/// The most processor time of one node that is told apart, in thousandths; so that products fit 64 bits.
const MOST_CPU: i64 = 1 << 48;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shelves {
    shelves: Vec<Shelf>,
    /// The lots of all shelves, one shelf after the other, by their positions in `lots`.
    held: Vec<usize>,
    lots: Vec<Lot>,
}

/// What nodes have that have the same left.
#[derive(Clone, Debug)]
struct Shelf {
    weight: i64,
    /// Worth of the host in every lane, and its processor time; `None`: not limited.
    host: Option<(Lanes, i64)>,
    /// Where its lots end.
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lot {
    /// A card that is partly used, in steps of its table.
    Part { table: usize, compute: usize, memory: usize },
    /// So many empty cards.
    Empty { table: usize, cards: usize },
}

impl Shelves {
    /// Lays out what nodes have left and how often each; `of_class` are the tables of the classes.
    pub(crate) fn new<'index>(
        stocks: impl Iterator<Item = &'index Stock<'index>>,
        tables: &[Table],
        of_class: &[usize],
        prices: &HostPrices,
    ) -> Self {
        let mut all = Self::default();
        let mut known: BTreeMap<Lot, usize> = BTreeMap::new();
        for stock in stocks {
            for group in &stock.outline.groups {
                let lot = lot(group, tables, of_class);
                let position = *known.entry(lot).or_insert_with(|| {
                    all.lots.push(lot);
                    all.lots.len() - 1
                });
                all.held.extend((0..group.counts()).map(|_| position));
            }
            let host = |host: Host| {
                let cpu = i64::try_from(host.left.cpu.0).unwrap_or(i64::MAX).min(MOST_CPU);
                (prices.of(host.left), cpu)
            };
            all.shelves.push(Shelf {
                weight: stock.nodes.len() as i64 * ONE_NODE,
                host: stock.outline.host.map(host),
                end: all.held.len(),
            });
        }
        all
    }

    /// Fills every node as well as can be at the bids that the tables are filled from; answers what all nodes are
    /// worth, and how much of each item they then hold.
    pub(crate) fn fill(&self, tables: &[Table], prices: &HostPrices, bids: &Bids) -> (i128, Vec<i64>) {
        let worth: Vec<Lanes> = self.lots.iter().map(|lot| lot.worth(tables)).collect();
        let mut filled = vec![[0i64; LANES]; self.lots.len()];
        let (mut total, mut start) = (0, 0);
        for shelf in &self.shelves {
            let held = &self.held[start..shelf.end];
            start = shelf.end;
            let mut cards = [0; LANES];
            held.iter().for_each(|lot| lanes::add(&mut cards, &worth[*lot]));
            let (worth, chosen) = shelf.choose(prices, &cards);
            total += i128::from(worth) * i128::from(shelf.weight);
            for (lane, weight) in chosen {
                held.iter().for_each(|lot| filled[*lot][lane] += weight);
            }
        }
        (total, self.supply(tables, &filled, bids))
    }

    /// How much of each item is held when lots are filled so often in each lane.
    fn supply(&self, tables: &[Table], filled: &[[i64; LANES]], bids: &Bids) -> Vec<i64> {
        let mut supply = vec![0; bids.worth.len()];
        let mut rooms: Vec<Rooms> = tables.iter().map(Rooms::new).collect();
        let mut empty: Vec<Vec<[i64; LANES]>> =
            tables.iter().map(|table| vec![[0; LANES]; table.most_empty() + 1]).collect();
        for (lot, weights) in self.lots.iter().zip(filled) {
            for (lane, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0) {
                match *lot {
                    Lot::Part { table, compute, memory } => {
                        tables[table].fill_part(&mut rooms[table], compute, memory, lane, *weight);
                    }
                    Lot::Empty { table, cards } => {
                        empty[table][cards.min(tables[table].most_empty())][lane] += weight;
                    }
                }
            }
        }
        for ((table, rooms), empty) in tables.iter().zip(&mut rooms).zip(&mut empty) {
            table.empty_into(empty, rooms, bids, &mut supply);
            table.by_compute.empty_into(&mut rooms.compute, bids, &mut supply);
            if let Some(by_memory) = &table.by_memory {
                by_memory.empty_into(&mut rooms.memory, bids, &mut supply);
            }
        }
        bids::rounded(supply)
    }
}

fn lot(group: &Group, tables: &[Table], of_class: &[usize]) -> Lot {
    let table = of_class[group.class.0];
    if group.empty {
        return Lot::Empty { table, cards: group.count.into() };
    }
    let (compute, memory) = (tables[table].compute_grid, tables[table].memory_grid);
    Lot::Part { table, compute: compute.left(u64::from(group.offered)), memory: memory.left(group.memory) }
}

impl Lot {
    fn worth(self, tables: &[Table]) -> Lanes {
        match self {
            Self::Part { table, compute, memory } => tables[table].part(compute, memory),
            Self::Empty { table, cards } => *tables[table].empty(cards),
        }
    }
}

impl Shelf {
    /// What a node is worth, and in which lanes it is filled: in the one that binds, blended with a neighbour so that
    /// about all of its processor time is used.
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
