//! Who may be moved to make room, and which of them together would be enough on one node, by the numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationPhase, CardId, Job, JobId, JobState, NodeId, State, WorkerState};

use super::{Rules, has_company, loses_work};
use crate::demand::Demand;
use crate::index::Index;
use crate::index::node::NodeEntry;
use crate::loss::Loss;
use crate::victims::{live_slices, live_workers};

/// Most jobs of one node that are combined with one another.
const COMBINED: usize = 16;

/// Most nodes that are looked at: those on which least is missing.
const LOOKED: usize = 2_048;

/// A running job that could go elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Mover {
    pub(super) job: Arc<Job>,
    pub(super) allocation: Arc<Allocation>,
    /// What it would lose.
    pub(super) loss: Loss,
}

impl Mover {
    /// A grant as a mover, if all of it runs.
    pub(super) fn of(state: &State, rules: &Rules<'_>, allocation: &Arc<Allocation>) -> Option<Self> {
        let job = state.job(allocation.job)?;
        let runs = job.state == JobState::Running
            && job.allocation == Some(allocation.id)
            && allocation.phase == AllocationPhase::Active
            && allocation.workers.iter().all(|worker| worker.state == WorkerState::Running);
        if !runs || has_company(job) || !rules.allow(job) {
            return None;
        }
        let loss = Loss::of(state, job, rules.now);
        Some(Self { job: Arc::clone(job), allocation: Arc::clone(allocation), loss })
    }

    /// The cards that it holds something of.
    pub(super) fn cards(&self) -> impl Iterator<Item = CardId> {
        live_slices(&self.allocation).map(|slice| slice.card)
    }

    /// Number of its virtual cards.
    pub(super) fn members(&self) -> u32 {
        self.allocation.members()
    }

    fn cost(&self) -> (u64, u64, JobId) {
        (self.loss.tflops_seconds(), self.loss.compute.0, self.job.id)
    }
}

/// Those that could leave a node.
#[derive(Clone, Debug)]
pub(super) struct Movers {
    node: NodeId,
    /// Cheapest first.
    movers: Vec<Mover>,
}

/// The movers of nodes that a virtual card would fit if all of them left.
pub(super) fn movers_by_node(index: &Index, state: &State, rules: &Rules<'_>, demand: &Demand) -> Vec<Movers> {
    let of_node = |id: NodeId| {
        let node = index.node(id)?;
        let grants = state.allocations_on(id).filter_map(|grant| Mover::of(state, rules, grant));
        let mut movers: Vec<Mover> = grants.collect();
        movers.sort_by_key(Mover::cost);
        would_fit(id, node, demand, &movers.iter().collect::<Vec<_>>()).then_some(Movers { node: id, movers })
    };
    nearest(index, demand).into_iter().filter_map(of_node).collect()
}

/// The nodes that a virtual card would fit if everything left them, in order of registration; where there are many,
/// those on which least is missing.
fn nearest(index: &Index, demand: &Demand) -> Vec<NodeId> {
    let accepted = index.nodes().filter(|(_, node)| {
        let accepted = node.node.as_ref().is_some_and(|node| demand.accepts(node) && demand.workers_on(node) > 0);
        accepted && could_be_enough(node, demand)
    });
    let mut nodes: Vec<(u32, NodeId)> = accepted.map(|(id, node)| (missing(node, demand), id)).collect();
    if nodes.len() > LOOKED {
        nodes.select_nth_unstable(LOOKED);
        nodes.truncate(LOOKED);
    }
    let mut nearest: Vec<NodeId> = nodes.into_iter().map(|(_, id)| id).collect();
    nearest.sort_unstable();
    nearest
}

/// Blocks that are missing on the cards of a node, or on the one of them where fewest are.
fn missing(node: &NodeEntry, demand: &Demand) -> u32 {
    let usable = node.cards.iter().filter(|card| card.is_open());
    let of_card = usable.filter_map(|card| Some((demand.offer_of(card.class)?.need, card)));
    match demand.whole {
        true => {
            let (need, empty) = of_card.fold((u32::MAX, 0u32), |(need, empty), (of_class, card)| {
                (need.min(of_class), empty.saturating_add(if card.is_empty() { card.blocks } else { 0 }))
            });
            need.saturating_sub(empty)
        }
        false => of_card.map(|(need, card)| need.saturating_sub(card.free.total())).min().unwrap_or(u32::MAX),
    }
}

/// Whether a virtual card would fit a node if everything left it.
fn could_be_enough(node: &NodeEntry, demand: &Demand) -> bool {
    let usable = node.cards.iter().filter(|card| card.is_open());
    let given = |card: &crate::index::card::CardEntry| (card.recoverable, card.memory);
    holds(usable.map(|card| (card, given(card))), demand)
}

/// Movers of one node that would be enough together.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) node: NodeId,
    pub(super) movers: Vec<Mover>,
}

impl Way {
    /// What it costs; less is better.
    pub(super) fn cost(&self) -> (u64, u64, NodeId) {
        let sum = |of: fn(&Mover) -> u64| self.movers.iter().map(of).fold(0, u64::saturating_add);
        (sum(|mover| mover.loss.tflops_seconds()), sum(|mover| mover.loss.compute.0), self.node)
    }

    /// The cheapest way on a node with one mover, with two, or with three and up to `most`. With `losing_work` one of
    /// those that need it.
    pub(super) fn cheapest(
        index: &Index,
        of_node: &Movers,
        demand: &Demand,
        losing_work: bool,
        count: usize,
        most: usize,
    ) -> Option<Self> {
        let (id, node) = (of_node.node, index.node(of_node.node)?);
        let allowed = of_node.movers.iter().filter(|mover| losing_work || !loses_work(&mover.job));
        let allowed: Vec<&Mover> = allowed.collect();
        let enough = |chosen: &[&Mover]| would_fit(id, node, demand, chosen);
        let chosen = match count {
            1 => allowed.iter().take(COMBINED).find(|mover| enough(&[mover])).map(|mover| vec![*mover]),
            2 => cheapest_pair(&allowed, enough),
            _ => fewest(node, &allowed, most, enough),
        }?;
        Some(Self { node: id, movers: chosen.into_iter().cloned().collect() })
    }
}

fn cheapest_pair<'a>(allowed: &[&'a Mover], enough: impl Fn(&[&Mover]) -> bool) -> Option<Vec<&'a Mover>> {
    let few = &allowed[..allowed.len().min(COMBINED)];
    if !enough(few) {
        return None;
    }
    let pairs = few.iter().enumerate().flat_map(|(second, other)| few[..second].iter().map(move |one| [*one, *other]));
    let cost = |pair: &[&Mover; 2]| {
        let (one, other) = (pair[0].cost(), pair[1].cost());
        (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
    };
    pairs.filter(|pair| enough(pair)).min_by_key(cost).map(Vec::from)
}

/// Few movers that are enough together: on one card or on the whole node, whoever costs least first until it is enough,
/// without those that turn out not to be needed.
fn fewest<'a>(
    node: &NodeEntry,
    allowed: &[&'a Mover],
    most: usize,
    enough: impl Fn(&[&Mover]) -> bool,
) -> Option<Vec<&'a Mover>> {
    let on_card = |card: CardId| allowed.iter().copied().filter(move |mover| mover.cards().any(|held| held == card));
    let groups = node.cards.iter().map(|card| on_card(card.id).collect::<Vec<_>>()).chain([allowed.to_vec()]);
    let of_group = |group: Vec<&'a Mover>| {
        let length = (1..=group.len()).find(|length| enough(&group[..*length]))?;
        let mut chosen = group[..length].to_vec();
        for place in (0..length).rev() {
            let left_out = chosen.remove(place);
            if !enough(&chosen) {
                chosen.insert(place, left_out);
            }
        }
        (chosen.len() <= most).then_some(chosen)
    };
    groups.filter_map(of_group).min_by_key(|chosen| {
        let sum = |of: fn(&Mover) -> u64| chosen.iter().map(|mover| of(mover)).fold(0, u64::saturating_add);
        (sum(|mover| mover.loss.tflops_seconds()), chosen.len(), sum(|mover| mover.loss.compute.0))
    })
}

/// Whether a virtual card would fit the node without these, by what they hold there.
fn would_fit(id: NodeId, node: &NodeEntry, demand: &Demand, movers: &[&Mover]) -> bool {
    let host = node.host.map(|left| {
        movers.iter().fold(left, |left, mover| {
            let here = live_workers(&mover.allocation).filter(|worker| worker.node == id);
            let workers = u32::try_from(here.count()).unwrap_or(u32::MAX);
            left.more(mover.job.spec.host.times(workers))
        })
    });
    if host.is_some_and(|left| !left.holds(demand.host)) {
        return false;
    }
    let mut given: BTreeMap<_, (u32, u64)> = BTreeMap::new();
    for slice in movers.iter().flat_map(|mover| live_slices(&mover.allocation)) {
        let card = given.entry(slice.card).or_default();
        *card = (card.0.saturating_add(slice.length.0), card.1.saturating_add(slice.memory.0));
    }
    let usable = node.cards.iter().filter(|card| card.is_open());
    let with_given = usable.map(|card| {
        let (blocks, memory) = given.get(&card.id).copied().unwrap_or_default();
        (card, (card.free.total().saturating_add(blocks), card.memory_free.saturating_add(memory)))
    });
    holds(with_given, demand)
}

/// Whether cards with so many free blocks and so much free memory would hold a virtual card.
fn holds<'a>(cards: impl Iterator<Item = (&'a crate::index::card::CardEntry, (u32, u64))>, demand: &Demand) -> bool {
    let mut found = 0u32;
    for (card, (blocks, memory)) in cards {
        let Some(offer) = demand.offer_of(card.class) else { continue };
        let whole = blocks >= card.blocks && memory >= card.memory;
        found = match demand.whole {
            true => found.saturating_add(if whole { card.blocks } else { 0 }),
            false if memory >= demand.memory => found.max(blocks),
            false => found,
        };
        if found >= offer.need {
            return true;
        }
    }
    false
}
