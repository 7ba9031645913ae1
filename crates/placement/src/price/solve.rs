//! Solving for prices: a request that the pool would hold too little of becomes dearer, one that it would hold too much
//! of cheaper, a fixed number of times in smaller and smaller steps (multiplicative weights); the prices are the mean
//! of the second half.

use tessera_ledger::HostRequest;

use super::bids::Bids;
use super::grid::Grid;
use super::lanes::{HostPrices, Lanes, MOST};
use super::shelves::{self, Shelf};
use super::table::{Table, Use};
use super::{LARGEST_CARD, Prices};
use crate::demand::{Demand, Offer};
use crate::index::Index;
use crate::index::class::{ClassId, ClassKey};
use crate::index::outlines::Shared;

/// Steps. More of them place no better.
const STEPS: i64 = 24;

/// Least number of different nodes that a step looks at where more take part: of twice as many it looks at every second
/// one, and so on; the next step looks at the others.
const SHELVES: usize = 512;

/// Most nodes that are looked at for the scale of worth; of larger pools every n-th one.
const MOST_NODES: usize = 2048;

/// Size of the first step, with [`POINT`] bits behind the point: 0.3.
const FIRST_STEP: i64 = 1229;

/// After so many steps they are half as large.
const HALVED_AFTER: i64 = 3;

/// A price falls to this part of what it was at the start, and not lower.
const LOWEST: i64 = 20;

/// A price rises to so many times what it was at the start, and not higher.
const HIGHEST: i64 = 64;

/// The parts of the mean card's worth that are told apart.
const QUANTA: i64 = 96;

/// The most empty cards of one node that are told apart.
const MOST_CARDS: usize = 64;

/// Bits behind the point of an item's price.
const POINT: u32 = 12;

/// Most different requests that take part; rarer ones are left out.
const MOST_ITEMS: usize = 512;

/// The weights of all items together, nearly.
const WHOLE_MIX: u64 = 1 << 20;

#[derive(Clone, Debug)]
struct Item {
    /// The worth of one more of it, with [`POINT`] bits behind the point.
    price: i64,
    /// Its price at the start: the compute it asks for, and a little for its part of the host.
    nominal: i64,
    /// The cost of its part of the host in every lane.
    host: Lanes,
}

/// Solves for the prices of the pool's room, given the mix of requests and how often each is seen.
pub(crate) fn prices<'mix>(index: &Index, mix: impl Iterator<Item = (&'mix Demand, u64)>) -> Prices {
    let mut demands: Vec<(&Demand, u64)> = mix.collect();
    demands.retain(|(demand, weight)| !demand.offers.is_empty() && *weight > 0);
    demands.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    demands.truncate(MOST_ITEMS);
    let scale = Scale::of(index);
    let (tables, of_class) = tables(index, &demands);
    let looks = index.outlines.with_room();
    let turns = (looks.len() / SHELVES).max(1);
    let shelf = |shared: &&Shared| Shelf::of(shared, &tables, &of_class, &scale.host);
    let shelves = |turn| looks.iter().skip(turn).step_by(turns).map(shelf).collect();
    let mut solver = Solver {
        items: items(&demands, &scale),
        bids: Bids { worth: Vec::new(), weight: weights(&demands) },
        shelves: (0..turns).take(STEPS as usize).map(shelves).collect(),
        tables,
        host: scale.host,
    };
    solver.solve();
    Prices { host: solver.host, tables: solver.tables, of_class, quantum: scale.quantum }
}

/// The scale by which worth is counted in a pool.
struct Scale {
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
        let step = index.nodes().len().div_ceil(MOST_NODES).max(1);
        for (_, node) in index.nodes().filter(|(_, node)| node.cards.iter().any(|card| card.usable)).step_by(step) {
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

    /// The worth of a part of the pool's host capacity, a sixth of what it would be if all worth lay in hosts; with
    /// [`POINT`] bits.
    fn of_host(&self, host: HostRequest) -> i64 {
        let part = |amount: u64, total: u64, divisor: u128| {
            ((u128::from(amount) * u128::from(self.worth)) << POINT)
                .checked_div(u128::from(total) * divisor)
                .unwrap_or(0)
        };
        i64::try_from(part(host.cpu.0, self.cpu, 6) + part(host.memory.0, self.memory, 24)).unwrap_or(MOST << POINT)
    }
}

fn items(demands: &[(&Demand, u64)], scale: &Scale) -> Vec<Item> {
    let item = |(demand, _): &(&Demand, u64)| {
        let needs = demand.offers.iter().map(|offer| u64::from(offer.need));
        let blocks = needs.min().unwrap_or(0).min(scale.largest * MOST_CARDS as u64);
        let compute = i64::try_from(((blocks * LARGEST_CARD) << POINT) / scale.largest).unwrap_or(MOST << POINT);
        let host = scale.of_host(demand.host).min(i64::try_from(LARGEST_CARD << POINT).unwrap_or(MOST));
        let nominal = compute.saturating_add(host).max(1 << POINT);
        Item { price: nominal, nominal, host: scale.host.of(demand.host) }
    };
    demands.iter().map(item).collect()
}

/// The frequency of each demand, in parts of [`WHOLE_MIX`].
fn weights(demands: &[(&Demand, u64)]) -> Vec<i64> {
    let total: u128 = demands.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let share = |weight: u64| u128::from(weight) * u128::from(WHOLE_MIX) / total.max(1);
    demands.iter().map(|(_, weight)| i64::try_from(share(*weight)).unwrap_or(1).max(1)).collect()
}

/// One table for all classes that look alike to every demand, and the table of each class.
fn tables(index: &Index, demands: &[(&Demand, u64)]) -> (Vec<Table>, Vec<usize>) {
    let most_cards = index.nodes().map(|(_, node)| node.cards.len()).max().unwrap_or(0).min(MOST_CARDS);
    let memory_matters = demands.iter().any(|(demand, _)| demand.memory > 0);
    let only: Vec<&Demand> = demands.iter().map(|(demand, _)| *demand).collect();
    let mut keys: Vec<(&ClassKey, ClassId)> = index.classes.in_order().collect();
    keys.sort_unstable_by_key(|(_, class)| *class);
    let mut known = Vec::new();
    let (mut tables, mut of_class) = (Vec::new(), Vec::new());
    for (key, class) in keys {
        let offers: Vec<Option<&Offer>> = only.iter().map(|demand| demand.offer_of(class)).collect();
        let grids = grids(key, &offers, &only);
        let used: Vec<Use> =
            only.iter().zip(&offers).map(|(demand, offer)| use_of(demand, *offer, grids, most_cards)).collect();
        let signature = (grids, used);
        let position = known.iter().position(|other| *other == signature).unwrap_or_else(|| {
            tables.push(Table::new(grids, memory_matters, most_cards, &signature.1));
            known.push(signature);
            known.len() - 1
        });
        of_class.push(position);
    }
    (tables, of_class)
}

/// The grids of a class, fine enough for the demands.
fn grids(key: &ClassKey, offers: &[Option<&Offer>], demands: &[&Demand]) -> (Grid, Grid) {
    let blocks = offers.iter().flatten().map(|offer| u64::from(offer.need));
    let asking = demands.iter().zip(offers).filter(|(demand, offer)| offer.is_some() && demand.memory > 0);
    (Grid::new(u64::from(key.blocks), blocks), Grid::new(key.class.memory.0, asking.map(|(demand, _)| demand.memory)))
}

/// The use that a demand makes of the cards of a class, in steps of the class's grids.
fn use_of(demand: &Demand, offer: Option<&Offer>, (compute, memory): (Grid, Grid), most_cards: usize) -> Use {
    let Some(offer) = offer else { return Use::None };
    let by_memory = demand.memory.div_ceil(offer.memory.max(1)).max(1);
    let cards = u64::from(offer.need.div_ceil(offer.blocks.max(1))).max(by_memory);
    let cards = usize::try_from(cards).unwrap_or(usize::MAX);
    match cards > 1 || demand.whole_cards {
        true if cards <= most_cards => Use::Whole(cards),
        true => Use::None,
        false => {
            let (compute, memory) = (compute.taken(u64::from(offer.need)), memory.taken(demand.memory));
            Use::Part { compute, memory }
        }
    }
}

struct Solver {
    items: Vec<Item>,
    bids: Bids,
    tables: Vec<Table>,
    /// The room left on nodes, in parts; a step looks at one part, and they take turns.
    shelves: Vec<Vec<Shelf>>,
    host: HostPrices,
}

impl Solver {
    fn solve(&mut self) {
        let spent = self.spent();
        let mut sums = vec![0i64; self.items.len()];
        for (step, turn) in (0..STEPS).zip((0..self.shelves.len()).cycle()) {
            self.fill();
            let (worth, supply) = shelves::fill(&self.shelves[turn], &self.tables, &self.host, &self.bids);
            self.adjust(worth, &supply, FIRST_STEP * HALVED_AFTER / (HALVED_AFTER + step));
            self.normalise(spent);
            if step >= STEPS / 2 {
                for (sum, item) in sums.iter_mut().zip(&self.items) {
                    *sum += item.price;
                }
            }
        }
        for (sum, item) in sums.iter().zip(&mut self.items) {
            item.price = sum / (STEPS - STEPS / 2);
        }
        self.normalise(spent);
        self.fill();
    }

    fn spent(&self) -> i128 {
        self.bids
            .weight
            .iter()
            .zip(&self.items)
            .map(|(weight, item)| i128::from(*weight) * i128::from(item.price))
            .sum()
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
        self.bids.worth.clear();
        self.bids.worth.extend(self.items.iter().map(worth_of));
        self.tables.iter_mut().for_each(|table| table.fill(&self.bids));
    }

    fn adjust(&mut self, worth: i128, supply: &[i64], step: i64) {
        let cost: i128 = self.spent().max(1);
        for ((item, weight), supply) in self.items.iter_mut().zip(&self.bids.weight).zip(supply) {
            // So much of the item belongs to as much of the mix as the pool could hold by its worth.
            let wanted = ((worth * i128::from(*weight)) << POINT) / cost;
            let wanted = i64::try_from(wanted).unwrap_or(i64::MAX >> POINT).max(1);
            let missing = (i128::from(wanted - supply) << POINT) / i128::from(wanted);
            let missing = i64::try_from(missing.clamp(-3 << POINT, 1 << POINT)).unwrap_or(0);
            let change = exponential((step * missing) >> POINT);
            item.price = (item.price >> 2).saturating_mul(change) >> (POINT - 2);
            item.price = item.price.clamp(item.nominal / LOWEST, item.nominal.saturating_mul(HIGHEST)).max(1);
        }
    }
}

/// The worth that an item adds in every lane.
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
