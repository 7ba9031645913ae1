//! Making room: few moves of running jobs after which a job fits that does not fit now.
//!
//! Room for one more job is often there, but divided: cards with room on a node whose host is used up, hosts with room beside full
//! cards. One or two moves put it together. Nodes are looked at where so few moves would be enough by the numbers; the
//! cheapest of them are tried out on the index, and every trial is undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationPhase, Job, JobId, JobState, NodeId, PlanPart, State, WorkerState};

use crate::demand::Demand;
use crate::fit;
use crate::index::node::NodeEntry;
use crate::pool::Pool;
use crate::preempt::vacate;
use crate::victims::{live_slices, live_workers};

/// Most ways that are tried out.
const TRIED: usize = 48;

/// Most jobs of one node that are combined with one another.
const COMBINED: usize = 16;

/// A running job that could go elsewhere.
#[derive(Clone)]
struct Mover {
    job: Arc<Job>,
    allocation: Arc<Allocation>,
    /// Blocks that it holds.
    blocks: u64,
}

/// Movers of one node, cheapest ways first: what they hold together, the node, and who they are.
type Way = (u64, NodeId, Vec<Mover>);

impl Pool {
    /// Looks for at most `most_moves` moves of running jobs after which `job`, which waits and does not fit, would fit. Each is lawful as
    /// part of a plan now, and all of them together. Fewer moves go before more, then those of jobs that hold less. Jobs that
    /// cannot be preempted are not moved. Answers `None` when it finds none; leaves everything as it was.
    pub fn make_room(&mut self, state: &State, job: JobId, most_moves: usize) -> Option<Vec<PlanPart>> {
        self.settle(state, state.time());
        self.reprice_if_due(state);
        let spec = Arc::clone(&state.job(job).filter(|job| job.is_waiting())?.spec);
        let demand = Demand::compile(&spec, &self.index.classes, state.config());
        if demand.gang != 1 || demand.offers.is_empty() {
            return None;
        }
        let nodes: Vec<NodeId> = self.index.nodes().map(|(id, _)| id).collect();
        for moves in 1..=most_moves.min(2) {
            let mut ways: Vec<Way> = Vec::new();
            for id in &nodes {
                ways.extend(self.cheapest_way(state, *id, &demand, moves));
            }
            ways.sort_by_key(|(blocks, node, _)| (*blocks, *node));
            for (_, node, movers) in ways.into_iter().take(TRIED) {
                if let Some(parts) = self.try_out(state, node, &movers, &demand) {
                    return Some(parts);
                }
            }
        }
        None
    }

    /// The movers of a node, so many of them, that hold least and without whom the job would fit there by the numbers.
    fn cheapest_way(&self, state: &State, id: NodeId, demand: &Demand, moves: usize) -> Option<Way> {
        let node = self.index.node(id)?;
        if !node.node.as_ref().is_some_and(|node| demand.accepts(node) && demand.workers_on(node) > 0) {
            return None;
        }
        let mut movers = movers_on(state, id);
        movers.sort_by_key(|mover| (mover.blocks, mover.job.id));
        movers.truncate(COMBINED);
        let enough = |chosen: &[&Mover]| would_fit(node, demand, chosen);
        let alone = movers.iter().find(|mover| enough(&[mover])).map(|mover| vec![mover.clone()]);
        if moves == 1 {
            return alone.map(|movers| (movers[0].blocks, id, movers));
        }
        let pairs = (0..movers.len()).flat_map(|second| (0..second).map(move |first| (first, second)));
        let pair = pairs
            .filter(|(first, second)| enough(&[&movers[*first], &movers[*second]]))
            .min_by_key(|(first, second)| movers[*first].blocks + movers[*second].blocks)?;
        let chosen = vec![movers[pair.0].clone(), movers[pair.1].clone()];
        Some((chosen[0].blocks + chosen[1].blocks, id, chosen))
    }

    /// Moves these away from the node and places the job, in a trial; answers the moves if that succeeds.
    fn try_out(&mut self, state: &State, node: NodeId, movers: &[Mover], demand: &Demand) -> Option<Vec<PlanPart>> {
        let mark = self.index.mark();
        let moves = self.move_away(state, node, movers);
        let fits = moves.is_some() && {
            for mover in movers {
                vacate(&mut self.index, &mover.allocation, mover.job.spec.host);
            }
            fit::place(&mut self.index, demand).is_ok()
        };
        self.index.undo_to(mark);
        moves.filter(|_| fits)
    }

    /// Finds other nodes for the movers. Their targets are taken before their sources are given back, as the ledger does it.
    fn move_away(&mut self, state: &State, node: NodeId, movers: &[Mover]) -> Option<Vec<PlanPart>> {
        let cards: Vec<_> =
            self.index.node(node)?.cards.iter().filter(|card| !card.hidden).map(|card| card.id).collect();
        self.index.set_hidden(&cards, true);
        let mut parts = Vec::new();
        for mover in movers {
            let own = Demand::compile(&mover.job.spec, &self.index.classes, state.config());
            let target = fit::place(&mut self.index, &own).ok();
            let lawful = target.filter(|target| {
                target.renumbered.is_empty() && target.workers.len() == mover.allocation.workers.len()
            });
            parts.extend(lawful.map(|target| PlanPart::Move { job: mover.job.id, workers: target.workers }));
        }
        self.index.set_hidden(&cards, false);
        (parts.len() == movers.len()).then_some(parts)
    }
}

/// The running jobs of one virtual card that are on this node alone and may be disturbed.
fn movers_on(state: &State, node: NodeId) -> Vec<Mover> {
    let mover = |allocation: &Arc<Allocation>| {
        let job = state.job(allocation.job)?;
        let whole = allocation.workers.iter().all(|worker| worker.node == node && worker.state == WorkerState::Running);
        let movable = job.state == JobState::Running
            && job.allocation == Some(allocation.id)
            && allocation.phase == AllocationPhase::Active
            && job.spec.preemptible
            && job.spec.gang == 1
            && whole;
        let blocks = live_slices(allocation).map(|slice| u64::from(slice.length.0)).sum();
        movable.then(|| Mover { job: Arc::clone(job), allocation: Arc::clone(allocation), blocks })
    };
    state.allocations_on(node).filter_map(mover).collect()
}

/// Whether the job would fit the node without these, by what they hold there.
fn would_fit(node: &NodeEntry, demand: &Demand, movers: &[&Mover]) -> bool {
    let host = node.host.map(|left| {
        movers.iter().fold(left, |left, mover| {
            let workers = u32::try_from(live_workers(&mover.allocation).count()).unwrap_or(u32::MAX);
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
    let mut found = 0u32;
    for card in node.cards.iter().filter(|card| card.usable && !card.hidden) {
        let Some(offer) = demand.offer_of(card.class) else { continue };
        let (blocks, memory) = given.get(&card.id).copied().unwrap_or_default();
        let (blocks, memory) = (card.free.total().saturating_add(blocks), card.memory_free.saturating_add(memory));
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
