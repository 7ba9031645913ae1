//! Solving for prices: a request that the pool would hold too little of becomes dearer, one that it would hold too much of cheaper, a
//! fixed number of times in smaller and smaller steps (multiplicative weights); the prices are the mean of the second half.

use super::item::{Item, MOST_ITEMS, POINT, WHOLE_MIX, grids, use_of};
use super::lanes::{self, CPU_LANES, HostPrices, LANES, Lanes, MOST};
use super::stock::{self, ONE_NODE, Stock};
use super::table::{Rooms, Table, Use};
use super::{LARGEST_CARD, Prices};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::class::{ClassId, ClassKey};

/// Steps. More of them place no better.
const STEPS: i64 = 12;

/// Steps where requests take several cards of a node at once. A node serves such a request or it does not, so that the supply jumps as
/// prices change, and it takes smaller steps to find the price between.
const STEPS_FOR_WHOLE: i64 = 160;

/// Size of the first step, with [`POINT`] bits behind the point: 0.3.
const FIRST_STEP: i64 = 1229;

/// After so many steps they are half as large.
const HALVED_AFTER: i64 = 20;

/// A price falls to this part of what it was at the start, and not lower.
const LOWEST: i64 = 20;

/// A price rises to so many times what it was at the start, and not higher.
const HIGHEST: i64 = 64;

/// The parts of the mean card's worth that are told apart.
const QUANTA: i64 = 96;

/// The most processor time of one node that is told apart, in thousandths; so that products fit 64 bits.
const MOST_CPU: i64 = 1 << 48;

/// The most empty cards of one node that are told apart.
const MOST_CARDS: usize = 64;

/// A node's stock in steps of the tables.
#[derive(Clone, Debug)]
struct Shelf {
    weight: i64,
    /// Worth of the host in every lane, and its processor time; `None`: not limited.
    host: Option<(Lanes, u64)>,
    /// Table, steps of compute, steps of memory.
    parts: Vec<(usize, usize, usize)>,
    /// Table and number of empty cards.
    empty: Vec<(usize, usize)>,
}

/// Solves for the prices of the pool's room, given the mix of requests and how often each is seen.
pub(crate) fn prices(index: &Index, mix: &[(Demand, u64)]) -> Prices {
    let mut demands: Vec<(&Demand, u64)> = mix.iter().map(|(demand, weight)| (demand, *weight)).collect();
    demands.retain(|(demand, weight)| !demand.offers.is_empty() && *weight > 0);
    demands.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    demands.truncate(MOST_ITEMS);
    let scale = Scale::of(index);
    let (tables, uses, of_class) = tables(index, &demands);
    let mut solver = Solver {
        items: items(&demands, &scale),
        uses,
        shelves: stock::stocks(index)
            .iter()
            .map(|(stock, weight)| shelf(stock, *weight, &tables, &of_class, &scale))
            .collect(),
        tables,
        cpu: scale.host.clone(),
    };
    solver.solve();
    Prices { host: scale.host, tables: solver.tables, of_class, quantum: scale.quantum }
}

/// How worth is counted in a pool.
struct Scale {
    /// Blocks of the largest card.
    largest: u64,
    host: HostPrices,
    /// Worth of all sampled cards, their hosts' processor time and memory.
    worth: u64,
    cpu: u64,
    memory: u64,
    quantum: i32,
}

impl Scale {
    fn of(index: &Index) -> Self {
        let largest = index.classes.in_order().map(|(key, _)| u64::from(key.blocks)).max().unwrap_or(1).max(1);
        let (mut blocks, mut cards, mut cpu, mut memory) = (0u64, 0u64, 0u64, 0u64);
        for node in stock::sample(index) {
            let usable = node.cards.iter().filter(|card| card.usable);
            blocks += usable.clone().map(|card| u64::from(card.blocks)).sum::<u64>();
            cards += usable.count() as u64;
            if let Some(capacity) = node.node.as_ref().and_then(|node| node.description.host) {
                cpu = cpu.saturating_add(capacity.cpu.0);
                memory = memory.saturating_add(capacity.memory.0);
            }
        }
        let worth = blocks.saturating_mul(LARGEST_CARD) / largest;
        let mean = i64::try_from(worth / cards.max(1)).unwrap_or(MOST);
        let quantum = i32::try_from(mean / QUANTA).unwrap_or(i32::MAX).max(1);
        Self { largest, host: HostPrices::new(worth, cpu, memory), worth, cpu, memory, quantum }
    }

    /// The worth of a part of the pool's host capacity, a sixth of what it would be if all worth lay in hosts; with [`POINT`] bits.
    fn of_host(&self, cpu: u64, memory: u64) -> i64 {
        let part = |amount: u64, total: u64, divisor: u128| {
            ((u128::from(amount) * u128::from(self.worth)) << POINT)
                .checked_div(u128::from(total) * divisor)
                .unwrap_or(0)
        };
        i64::try_from(part(cpu, self.cpu, 6) + part(memory, self.memory, 24)).unwrap_or(MOST << POINT)
    }
}

fn items(demands: &[(&Demand, u64)], scale: &Scale) -> Vec<Item> {
    let total: u128 = demands.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let item = |(demand, weight): &(&Demand, u64)| {
        let needs = demand.offers.iter().map(|offer| u64::from(offer.need));
        let blocks = needs.min().unwrap_or(0).min(scale.largest * MOST_CARDS as u64);
        let compute = i64::try_from(((blocks * LARGEST_CARD) << POINT) / scale.largest).unwrap_or(MOST << POINT);
        let (cpu, memory) = (demand.host.cpu.0, demand.host.memory.0);
        let host = scale.of_host(cpu, memory).min(i64::try_from(LARGEST_CARD << POINT).unwrap_or(MOST));
        let nominal = compute.saturating_add(host).max(1 << POINT);
        let share = u128::from(*weight) * u128::from(WHOLE_MIX) / total.max(1);
        Item {
            weight: i64::try_from(share).unwrap_or(1).max(1),
            price: nominal,
            nominal,
            host: scale.host.of(cpu, memory),
        }
    };
    demands.iter().map(item).collect()
}

/// One table for all classes that look alike to every demand; the uses that each table's cards have; the table of each class.
fn tables(index: &Index, demands: &[(&Demand, u64)]) -> (Vec<Table>, Vec<Vec<Use>>, Vec<usize>) {
    let most_cards = index.nodes().map(|(_, node)| node.cards.len()).max().unwrap_or(0).min(MOST_CARDS);
    let memory_matters = demands.iter().any(|(demand, _)| demand.memory > 0);
    let only: Vec<&Demand> = demands.iter().map(|(demand, _)| *demand).collect();
    let mut keys: Vec<(&ClassKey, ClassId)> = index.classes.in_order().collect();
    keys.sort_unstable_by_key(|(_, class)| *class);
    let mut known = Vec::new();
    let (mut tables, mut uses, mut of_class) = (Vec::new(), Vec::new(), Vec::new());
    for (key, class) in keys {
        let offers: Vec<Option<&Offer>> = only.iter().map(|demand| demand.offer_of(class)).collect();
        let grids = grids(key, &offers, &only);
        let used: Vec<Use> =
            only.iter().zip(&offers).map(|(demand, offer)| use_of(demand, *offer, grids, most_cards)).collect();
        let signature = (grids, used);
        let position = known.iter().position(|other| *other == signature).unwrap_or_else(|| {
            tables.push(Table::new(grids.0, grids.1, memory_matters, most_cards));
            uses.push(signature.1.clone());
            known.push(signature);
            known.len() - 1
        });
        of_class.push(position);
    }
    (tables, uses, of_class)
}

fn shelf(stock: &Stock, weight: i64, tables: &[Table], of_class: &[usize], scale: &Scale) -> Shelf {
    let part = |(class, blocks, memory): &(ClassId, u32, u64)| {
        let table = of_class[class.0];
        let (compute, memory_grid) = (tables[table].compute_grid, tables[table].memory_grid);
        (table, compute.left(u64::from(*blocks)), memory_grid.left(*memory))
    };
    Shelf {
        weight,
        host: stock.host.map(|host| (scale.host.of(host.cpu, host.memory), host.cpu)),
        parts: stock.parts.iter().map(part).collect(),
        empty: stock.empty.iter().map(|(class, count)| (of_class[class.0], *count)).collect(),
    }
}

struct Solver {
    items: Vec<Item>,
    uses: Vec<Vec<Use>>,
    tables: Vec<Table>,
    shelves: Vec<Shelf>,
    cpu: HostPrices,
}

impl Solver {
    fn solve(&mut self) {
        let spent = self.spent();
        let mut sums = vec![0i64; self.items.len()];
        let several = |used: &Use| matches!(used, Use::Whole(cards) if *cards > 1);
        let steps = if self.uses.iter().flatten().any(several) { STEPS_FOR_WHOLE } else { STEPS };
        for step in 0..steps {
            self.fill();
            let (worth, supply) = self.serve();
            self.adjust(worth, &supply, FIRST_STEP * HALVED_AFTER / (HALVED_AFTER + step));
            self.normalise(spent);
            if step >= steps / 2 {
                for (sum, item) in sums.iter_mut().zip(&self.items) {
                    *sum += item.price;
                }
            }
        }
        for (sum, item) in sums.iter().zip(&mut self.items) {
            item.price = sum / (steps - steps / 2);
        }
        self.normalise(spent);
        self.fill();
    }

    /// What the whole mix costs.
    fn spent(&self) -> i128 {
        self.items.iter().map(|item| i128::from(item.weight) * i128::from(item.price)).sum()
    }

    /// Keeps the cost of the whole mix what it was at the start: only the relations of prices matter.
    fn normalise(&mut self, spent: i128) {
        let now = self.spent().max(1);
        for item in &mut self.items {
            let price = i128::from(item.price) * spent / now;
            item.price = i64::try_from(price).unwrap_or(i64::MAX).clamp(item.nominal / LOWEST, item.nominal * HIGHEST);
        }
    }

    fn fill(&mut self) {
        let worth: Vec<Lanes> = self.items.iter().map(worth_of).collect();
        for (table, uses) in self.tables.iter_mut().zip(&self.uses) {
            table.fill(uses, &worth);
        }
    }

    /// Fills every node as well as can be; answers what all nodes are worth, and how much of each item they then hold.
    fn serve(&self) -> (i128, Vec<i64>) {
        let mut supply = vec![0i64; self.items.len()];
        let mut rooms: Vec<Rooms> = self.tables.iter().map(Rooms::new).collect();
        let mut empty: Vec<Vec<[i64; LANES]>> =
            self.tables.iter().map(|table| vec![[0; LANES]; table.most_empty() + 1]).collect();
        let mut total = 0i128;
        for shelf in &self.shelves {
            let lanes = self.worth_of_cards(shelf);
            let (worth, chosen) = self.choose(shelf, &lanes);
            total += i128::from(worth) * i128::from(shelf.weight);
            for (lane, weight) in chosen {
                for (table, compute, memory) in &shelf.parts {
                    self.tables[*table].fill_part(&mut rooms[*table], *compute, *memory, lane, weight);
                }
                for (table, count) in &shelf.empty {
                    let most = self.tables[*table].most_empty();
                    empty[*table][(*count).min(most)][lane] += weight;
                }
            }
        }
        for ((table, rooms), empty) in self.tables.iter().zip(&mut rooms).zip(&mut empty) {
            table.empty_into(empty, rooms, &mut supply);
            table.by_compute.empty_into(&mut rooms.compute, &mut supply);
            if let Some(by_memory) = &table.by_memory {
                by_memory.empty_into(&mut rooms.memory, &mut supply);
            }
        }
        (total, supply)
    }

    fn worth_of_cards(&self, shelf: &Shelf) -> Lanes {
        let mut lanes = [0; LANES];
        for (table, compute, memory) in &shelf.parts {
            lanes::add(&mut lanes, self.tables[*table].part(*compute, *memory).as_ref());
        }
        for (table, count) in &shelf.empty {
            lanes::add(&mut lanes, self.tables[*table].empty(*count));
        }
        lanes
    }

    /// What a node is worth, and in which lanes it is filled: in the one that binds, blended with a neighbour so that about all
    /// of its processor time is used.
    fn choose(&self, shelf: &Shelf, cards: &Lanes) -> (i32, [(usize, i64); 2]) {
        let Some((host, cpu)) = &shelf.host else { return (cards[0], [(0, shelf.weight), (0, 0)]) };
        let mut all = *cards;
        lanes::add(&mut all, host);
        let (lane, worth) = lanes::bound(&all);
        let (other, part) = self.blend(cards, lane, *cpu).unwrap_or((lane, 0));
        let moved = shelf.weight * part / ONE_NODE;
        (worth, [(lane, shelf.weight - moved), (other, moved)])
    }

    /// The lane to blend with, and how much of it in parts of [`ONE_NODE`]. The processor time that a filling uses is how fast the
    /// worth of the cards falls as its price rises.
    fn blend(&self, cards: &Lanes, lane: usize, cpu: u64) -> Option<(usize, i64)> {
        let use_between = |low: usize, high: usize| {
            let price = self.cpu.cpu(high).checked_sub(self.cpu.cpu(low)).filter(|price| *price > 0)?;
            Some((i64::from(cards[low] - cards[high]) << 16) / i64::try_from(price).unwrap_or(i64::MAX))
        };
        let cpu = i64::try_from(cpu).unwrap_or(i64::MAX).min(MOST_CPU);
        if lane >= CPU_LANES {
            return None;
        }
        let above = (lane + 1 < CPU_LANES).then(|| use_between(lane, lane + 1)).flatten();
        let below = (lane > 0).then(|| use_between(lane - 1, lane)).flatten();
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

    fn adjust(&mut self, worth: i128, supply: &[i64], step: i64) {
        let cost: i128 = self.spent().max(1);
        for (item, supply) in self.items.iter_mut().zip(supply) {
            // So much of the item belongs to as much of the mix as the pool could hold by its worth.
            let wanted = ((worth * i128::from(item.weight)) << POINT) / cost;
            let wanted = i64::try_from(wanted).unwrap_or(i64::MAX >> POINT).max(1);
            let missing = (i128::from(wanted - supply) << POINT) / i128::from(wanted);
            let missing = i64::try_from(missing.clamp(-3 << POINT, 1 << POINT)).unwrap_or(0);
            let change = exponential((step * missing) >> POINT);
            item.price = (item.price >> 2).saturating_mul(change) >> (POINT - 2);
            item.price = item.price.clamp(item.nominal / LOWEST, item.nominal.saturating_mul(HIGHEST)).max(1);
        }
    }
}

/// What an item adds in every lane.
fn worth_of(item: &Item) -> Lanes {
    let price = i32::try_from((item.price >> POINT).min(MOST)).unwrap_or(i32::MAX);
    std::array::from_fn(|lane| price - item.host[lane])
}

/// The exponential of a number between -1 and 1, all with [`POINT`] bits behind the point.
fn exponential(x: i64) -> i64 {
    let square = (x * x) >> POINT;
    let cube = (square * x) >> POINT;
    (1 << POINT) + x + square / 2 + cube / 6
}
