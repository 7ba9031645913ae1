//! The jobs that may be moved to make room, and the sets of them that would be enough on one node, by the numbers.

use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationPhase, CardId, Claim, Job, JobState, LogTime, NodeId, Precedence, State, WorkerState,
};

use super::{Rules, has_company, loses_work};
use crate::demand::Demand;
use crate::fewest;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;
use crate::index::schedule::since;
use crate::loss::Loss;
use crate::preempt::{vacate, workers_without};
use crate::victims::{can_give_way, live_slices};

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
        // Moves that nobody asked for interrupt a job of a queue by attained service no more often than bands do.
        let rests = !rules.order.not_again_within.is_zero()
            && state.order_of(&job.spec.queue).is_some()
            && !may_stop(state, job, allocation, Claim::Band, rules.now);
        if !runs || rests || has_company(job) || !rules.allow(job) {
            return None;
        }
        let loss = Loss::of(state, job, rules.now);
        Some(Self { job: Arc::clone(job), allocation: Arc::clone(allocation), loss })
    }

    pub(super) fn cards(&self) -> impl Iterator<Item = CardId> {
        live_slices(&self.allocation).map(|slice| slice.card)
    }
}

/// The running jobs that give way to a waiting one of a queue that goes by attained service (law L4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Yielding<'a> {
    waiting: &'a Job,
    precedence: Precedence,
    now: LogTime,
}

impl<'a> Yielding<'a> {
    /// Takes the jobs that give way to `waiting`; `None` where its queue goes by submission.
    pub(super) fn to(state: &State, waiting: &'a Job, now: LogTime) -> Option<Self> {
        let precedence = state.precedence_of(waiting, now);
        state.order_of(&waiting.spec.queue).map(|_| Self { waiting, precedence, now })
    }

    fn has(&self, state: &State, allocation: &Allocation) -> bool {
        let Some(job) = state.job(allocation.job) else { return false };
        job.spec.queue == self.waiting.spec.queue
            && can_give_way(job, allocation)
            && state
                .claim(self.precedence, job, self.now)
                .is_ok_and(|claim| may_stop(state, job, allocation, claim, self.now))
    }

    /// Counts what they hold on a node as free.
    pub(super) fn leave(&self, index: &mut Index, state: &State, node: NodeId) {
        for allocation in state.allocations_on(node).filter(|allocation| self.has(state, allocation)) {
            if let Some(job) = state.job(allocation.job) {
                vacate(index, allocation, &job.spec, true);
            }
        }
    }
}

/// Returns whether a running job may be stopped by that right now, as far as its own history goes.
fn may_stop(state: &State, job: &Job, allocation: &Allocation, claim: Claim, now: LogTime) -> bool {
    job.preemptible_from(since(allocation), now, state.config().preemptions_per_hour, claim).is_none()
}

/// The work that is lost when these move, and what they hold.
fn cost_of<'a>(movers: impl IntoIterator<Item = &'a Mover>) -> (u64, u64) {
    movers.into_iter().fold((0, 0), |(work, compute): (u64, u64), Mover { loss, .. }| {
        (work.saturating_add(loss.tflops_seconds()), compute.saturating_add(loss.compute.0))
    })
}

/// The nodes that a virtual card would fit if all movers left, with those; the cheapest first. Whoever yields has left
/// already; where that is enough nobody need move.
pub(super) fn movers_by_node(
    index: &mut Index,
    state: &State,
    rules: &Rules<'_>,
    yielding: Option<Yielding<'_>>,
    demand: &Demand,
) -> Vec<Way> {
    let nearest = nearest(index, demand);
    let of_node = |id: NodeId| {
        let yields = |allocation: &Allocation| yielding.is_some_and(|yielding| yielding.has(state, allocation));
        let others = state.allocations_on(id).filter(|allocation| !yields(allocation));
        let mut movers: Vec<Mover> = others.filter_map(|allocation| Mover::of(state, rules, allocation)).collect();
        movers.sort_by_key(|mover| (cost_of([mover]), mover.job.id));
        let way = Way { node: id, movers };
        let helps = without_yielding(index, state, yielding, id, |index| {
            let node = index.node(id)?;
            let all: Vec<&Mover> = way.movers.iter().collect();
            let is_enough = yielding.is_some() && would_fit(node, demand, &[]);
            Some(would_fit(node, demand, &all) && !is_enough)
        });
        (helps == Some(true)).then_some(way)
    };
    nearest.into_iter().filter_map(of_node).collect()
}

/// Looks at the index as it is when nobody is left on a node who yields.
pub(super) fn without_yielding<T>(
    index: &mut Index,
    state: &State,
    yielding: Option<Yielding<'_>>,
    node: NodeId,
    look: impl FnOnce(&mut Index) -> T,
) -> T {
    index.try_out(|index| {
        if let Some(yielding) = yielding {
            yielding.leave(index, state, node);
        }
        look(index)
    })
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
