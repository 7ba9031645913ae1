//! The jobs that may be moved to make room, and the sets of them that would be enough on one node, by the numbers.

use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationPhase, CardId, Job, JobState, NodeId, State, WorkerState};

use super::{Rules, has_company, loses_work};
use crate::demand::Demand;
use crate::fewest;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;
use crate::loss::Loss;
use crate::preempt::workers_without;
use crate::victims::live_slices;

/// Most nodes that are looked at: those on which least is missing.
const LOOKED: usize = 2_048;

/// A running job that could go elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Mover {
    pub(super) job: Arc<Job>,
    pub(super) allocation: Arc<Allocation>,
    pub(super) loss: Loss,
}

impl Mover {
    /// An allocation as a mover, if all of it runs.
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

    pub(super) fn cards(&self) -> impl Iterator<Item = CardId> {
        live_slices(&self.allocation).map(|slice| slice.card)
    }
}

/// The work that is lost when these move, and what they hold.
fn cost_of<'a>(movers: impl IntoIterator<Item = &'a Mover>) -> (u64, u64) {
    movers.into_iter().fold((0, 0), |(work, compute): (u64, u64), Mover { loss, .. }| {
        (work.saturating_add(loss.tflops_seconds()), compute.saturating_add(loss.compute.0))
    })
}

/// The nodes that a virtual card would fit if all movers left, with those; the cheapest first.
pub(super) fn movers_by_node(index: &Index, state: &State, rules: &Rules<'_>, demand: &Demand) -> Vec<Way> {
    let of_node = |id: NodeId| {
        let node = index.node(id)?;
        let allocations = state.allocations_on(id).filter_map(|allocation| Mover::of(state, rules, allocation));
        let mut movers: Vec<Mover> = allocations.collect();
        movers.sort_by_key(|mover| (cost_of([mover]), mover.job.id));
        would_fit(node, demand, &movers.iter().collect::<Vec<_>>()).then_some(Way { node: id, movers })
    };
    nearest(index, demand).into_iter().filter_map(of_node).collect()
}

/// The nodes that a virtual card would fit if everything left them, in order of registration; where there are many,
/// those on which least is missing.
fn nearest(index: &Index, demand: &Demand) -> Vec<NodeId> {
    let accepted = index.nodes().filter(|(_, node)| {
        let host = node.node.as_ref().and_then(|node| node.description.host);
        let is_large_enough = host.is_none_or(|host| demand.workers_in(host.whole()) > 0);
        is_large_enough
            && demand.accepts(node)
            && missing(node, demand, &of_cards(node, |card| (card.recoverable.into(), card.memory))) == 0
    });
    let mut nodes: Vec<(u64, NodeId)> =
        accepted.map(|(id, node)| (missing(node, demand, &of_cards(node, free)), id)).collect();
    if nodes.len() > LOOKED {
        nodes.select_nth_unstable(LOOKED);
        nodes.truncate(LOOKED);
    }
    let mut nearest: Vec<NodeId> = nodes.into_iter().map(|(_, id)| id).collect();
    nearest.sort_unstable();
    nearest
}

/// Blocks and memory that are left of a card.
type Left = (u64, u64);

fn free(card: &CardEntry) -> Left {
    (card.free.total().into(), card.memory_free)
}

fn of_cards(node: &NodeEntry, left: impl Fn(&CardEntry) -> Left) -> Vec<Left> {
    node.cards.iter().map(left).collect()
}

/// Blocks that are missing for a virtual card on the cards of a node, or on the one of them where fewest are, when so
/// much is left of each.
fn missing(node: &NodeEntry, demand: &Demand, left: &[Left]) -> u64 {
    let open = node.cards.iter().zip(left).filter(|(card, _)| card.is_open());
    let of_card = open.filter_map(|(card, left)| Some((u64::from(demand.offer_of(card.class)?.need), card, left)));
    if !demand.whole_cards {
        let enough_memory = of_card.filter(|(.., (_, memory))| *memory >= demand.memory);
        return enough_memory.map(|(need, _, (blocks, _))| need.saturating_sub(*blocks)).min().unwrap_or(u64::MAX);
    }
    let (need, whole) = of_card.fold((u64::MAX, 0), |(least, sum), (need, card, (blocks, memory))| {
        let is_whole = *blocks >= card.blocks.into() && *memory >= card.memory;
        (need.min(least), sum + if is_whole { u64::from(card.blocks) } else { 0 })
    });
    need.saturating_sub(whole)
}

/// Movers of one node.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) node: NodeId,
    pub(super) movers: Vec<Mover>,
}

impl Way {
    /// The cost of the way: its number of moves, the work lost, the compute held, and its node to break ties; less is
    /// better.
    pub(super) fn cost(&self) -> (usize, u64, u64, NodeId) {
        let (work, compute) = cost_of(&self.movers);
        (self.movers.len(), work, compute, self.node)
    }

    /// The cheapest way on a node with up to `most` movers, as few as will do. With `losing_work` also those that lose
    /// work by it.
    pub(super) fn cheapest(&self, index: &Index, demand: &Demand, losing_work: bool, most: usize) -> Option<Self> {
        let node = index.node(self.node)?;
        let allowed = self.movers.iter().filter(|mover| losing_work || !loses_work(&mover.job));
        let allowed: Vec<&Mover> = allowed.collect();
        let enough = |chosen: &[&Mover]| would_fit(node, demand, chosen);
        let alone = allowed.iter().filter(|_| most > 0).find(|mover| enough(&[mover])).map(|mover| vec![*mover]);
        let chosen = alone.or_else(|| few(node, &allowed, most, enough))?;
        Some(Self { node: self.node, movers: chosen.into_iter().cloned().collect() })
    }
}

/// Few movers that are enough together: on one card or on the whole node, whoever costs least first until it is enough.
fn few<'a>(
    node: &NodeEntry,
    allowed: &[&'a Mover],
    most: usize,
    enough: impl Fn(&[&Mover]) -> bool,
) -> Option<Vec<&'a Mover>> {
    let on_card = |card: CardId| allowed.iter().copied().filter(move |mover| mover.cards().any(|held| held == card));
    let groups = node.cards.iter().map(|card| on_card(card.id).collect::<Vec<_>>()).chain([allowed.to_vec()]);
    let of_group = |group: Vec<&'a Mover>| fewest(&group, &enough).filter(|chosen| chosen.len() <= most);
    groups.filter_map(of_group).min_by_key(|chosen| {
        let (work, compute) = cost_of(chosen.iter().copied());
        (chosen.len(), work, compute)
    })
}

/// Returns whether a virtual card would fit the node without `movers`, judged by the room that they hold there.
fn would_fit(node: &NodeEntry, demand: &Demand, movers: &[&Mover]) -> bool {
    let mut left = of_cards(node, free);
    for slice in movers.iter().flat_map(|mover| live_slices(&mover.allocation)) {
        if let Some((blocks, memory)) = node.position(slice.card).map(|card| &mut left[card]) {
            *blocks = blocks.saturating_add(slice.length.0.into());
            *memory = memory.saturating_add(slice.memory.0);
        }
    }
    workers_without(node, demand, movers.iter().map(|mover| (&*mover.allocation, &*mover.job.spec))) > 0
        && missing(node, demand, &left) == 0
}
