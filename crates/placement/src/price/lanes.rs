//! Lanes: one table holds the worth of a card under several prices of the host at once.
//!
//! Processor time and memory of a host are shared by all its cards, so a card is worth less where the host is nearly
//! used up. A lane is one pair of prices for the two; a node is worth what the lane says that is least (the Lagrangian
//! bound on what fits it).

use tessera_ledger::HostRequest;

pub(crate) const LANES: usize = 16;

/// One value for each lane, in units of worth.
pub(crate) type Lanes = [i32; LANES];

/// Lanes that price processor time, ordered by price; the first prices nothing. The others price memory.
pub(crate) const CPU_LANES: usize = 12;

/// Prices of processor time, in 1024ths of what it costs when all worth of the pool is divided by all its
/// processor time.
const CPU_STEPS: [u64; CPU_LANES] = [0, 35, 57, 90, 145, 232, 370, 593, 948, 1517, 2428, 3884];

/// The same for memory.
const MEMORY_STEPS: [u64; LANES - CPU_LANES] = [256, 512, 1024, 2048];

/// Bits behind the point of host prices.
const POINT: u32 = 16;

/// The same for one over such a price.
const RECIPROCAL: u32 = 48;

/// No price of a request or a host is larger.
pub(crate) const MOST: i64 = 1 << 27;

/// No card is worth more, so that the sum over all cards of a node fits a lane.
pub(crate) const MOST_OF_CARD: i32 = 1 << 23;

/// The prices of a host in every lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPrices {
    cpu: [u64; LANES],
    memory: [u64; LANES],
    /// One over how much dearer processor time is in the next lane; zero: no dearer. So that nothing is divided for
    /// every node.
    per_rise: [u64; CPU_LANES],
}

impl HostPrices {
    /// Prices for a pool that is worth `worth` in all and has so much processor time (thousandths) and memory (MiB).
    pub(crate) fn new(worth: u64, cpu: u64, memory: u64) -> Self {
        let scaled = |total: u64, step: u64| {
            let price = (u128::from(worth) * u128::from(step)) << POINT;
            let price = price.checked_div(u128::from(total) * 1024).unwrap_or(0);
            u64::try_from(price).unwrap_or(u64::MAX)
        };
        let cpu: [u64; LANES] = std::array::from_fn(|lane| CPU_STEPS.get(lane).map_or(0, |step| scaled(cpu, *step)));
        let memory_step = |lane: usize| MEMORY_STEPS.get(lane.wrapping_sub(CPU_LANES));
        let memory = std::array::from_fn(|lane| memory_step(lane).map_or(0, |step| scaled(memory, *step)));
        let rise = |lane: usize| if lane + 1 < CPU_LANES { cpu[lane + 1] - cpu[lane] } else { 0 };
        let per_rise = std::array::from_fn(|lane| (1u64 << RECIPROCAL).checked_div(rise(lane)).unwrap_or(0));
        Self { cpu, memory, per_rise }
    }

    /// The cost of a part of a host in every lane.
    pub(crate) fn of(&self, part: HostRequest) -> Lanes {
        let (cpu, memory) = (u128::from(part.cpu.0), u128::from(part.memory.0));
        std::array::from_fn(|lane| {
            let cost = cpu * u128::from(self.cpu[lane]) + memory * u128::from(self.memory[lane]);
            let cost = i64::try_from(cost >> POINT).unwrap_or(MOST).min(MOST);
            i32::try_from(cost).unwrap_or(i32::MAX)
        })
    }

    /// The processor time that is given up between a lane and the next, where it is dearer, when the cards are worth
    /// less there by `worth`; `None` when there is no next lane or it is no dearer.
    pub(crate) fn cpu_between(&self, lane: usize, worth: i32) -> Option<i64> {
        let per_rise = self.per_rise.get(lane).copied().filter(|per_rise| *per_rise > 0)?;
        i64::try_from((i128::from(worth) * i128::from(per_rise)) >> (RECIPROCAL - POINT)).ok()
    }
}

pub(crate) fn add(lanes: &mut Lanes, more: &Lanes) {
    for (lane, more) in lanes.iter_mut().zip(more) {
        *lane += *more;
    }
}

pub(crate) fn subtract(lanes: &mut Lanes, less: &Lanes) {
    for (lane, less) in lanes.iter_mut().zip(less) {
        *lane -= *less;
    }
}

/// Raises lanes to at least `to`; answers whether that changed any.
pub(crate) fn raise(lanes: &mut Lanes, to: &Lanes) -> bool {
    let before = *lanes;
    for (lane, to) in lanes.iter_mut().zip(to) {
        *lane = (*lane).max(*to);
    }
    *lanes != before
}

/// The least of both, lane by lane.
pub(crate) fn least(left: &Lanes, right: &Lanes) -> Lanes {
    std::array::from_fn(|lane| left[lane].min(right[lane]))
}

/// The first lane with the least value, and that value.
pub(crate) fn bound(lanes: &Lanes) -> (usize, i32) {
    let least = minimum(lanes);
    (lanes.iter().position(|value| *value == least).unwrap_or(0), least)
}

pub(crate) fn minimum(lanes: &Lanes) -> i32 {
    lanes.iter().fold(i32::MAX, |least, value| least.min(*value))
}
