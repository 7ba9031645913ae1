//! The times at which holdings on a node come back, as far as time limits say. Read from the ledger on demand,
//! allocation by allocation and anew only for allocations that have changed, because a large node has dozens; and
//! remembered until something of the node changes.

use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, CardId, HostRequest, JobSpec, LogTime, NodeId, PlannedWorker, Slice,
    State, WorkerState,
};

use super::Index;
use super::node::NodeEntry;
use super::surroundings::Planned;

/// The end of what nobody knows the end of.
pub(crate) const NEVER: LogTime = LogTime(u64::MAX);
/// The end of what was told to stop.
const SOON: LogTime = LogTime(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    since: LogTime,
    /// [`NEVER`] when nobody knows.
    pub(crate) end: LogTime,
}

/// Resources that one worker holds.
#[derive(Clone, Debug)]
struct Holding {
    hold: Hold,
    /// True if it is lost: it does not come back.
    lost: bool,
    host: HostRequest,
    slices: Vec<Slice>,
}

/// Holdings of the workers of each allocation on a node, as far as they were read since the allocation changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings(Vec<(AllocationId, Vec<Holding>)>);

impl Holdings {
    /// Everything that is held on the node now. The ledger is asked about what is not known.
    fn read(&mut self, state: &State, node: NodeId) -> impl Iterator<Item = &Holding> {
        let mut before = std::mem::take(&mut self.0).into_iter().peekable();
        let there = state.allocation_ids_on(node).filter_map(|id| {
            while before.next_if(|(old, _)| *old < id).is_some() {}
            let known = before.next_if(|(old, _)| *old == id);
            known.or_else(|| Some((id, held_by(state, node, state.allocation(id)?))))
        });
        self.0 = there.collect();
        self.0.iter().flat_map(|(_, held)| held)
    }
}

fn held_by(state: &State, node: NodeId, allocation: &Allocation) -> Vec<Holding> {
    let hold = Hold { since: since(allocation), end: end_of(state, allocation) };
    let asked = state.job(allocation.job).map(|job| allocation.asked_of_hosts(&job.spec)).into_iter().flatten();
    let there = asked.filter(|(worker, _)| worker.node == node && worker.state != WorkerState::Stopped);
    let held = there.map(|(worker, host)| Holding {
        hold: Hold { end: if worker.state == WorkerState::Draining { SOON } else { hold.end }, ..hold },
        lost: worker.state == WorkerState::Lost,
        host,
        slices: worker.slices.clone(),
    });
    held.collect()
}

/// Blocks and memory that a worker gives back of one card, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) at: LogTime,
    /// Position of the card on the node.
    pub(crate) card: usize,
    pub(crate) blocks: u32,
    pub(crate) memory: u64,
}

/// Resources of a card that are held, or that are lost of what it could offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) blocks: u64,
    pub(crate) memory: u64,
    pub(crate) slices: u32,
}

/// Everything on a node that is held, or was granted by a plan that the ledger has not answered, in the order in which
/// it comes back. Allocations count for what they were promised, too: blocks whose owner was told to stop for another
/// allocation come back when that one is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Releases of cards, the earliest first.
    pub(crate) releases: Vec<Release>,
    pub(crate) host: Vec<(LogTime, HostRequest)>,
    /// Time at which the last job without a time limit came to each card; zero where there is none.
    pub(crate) endless_since: Vec<LogTime>,
    /// Memory and slices of each card that do not come back, beside its lost blocks.
    pub(crate) lost: Vec<Held>,
}

/// Since when an allocation runs, or is held while its workers are being started.
pub(crate) fn since(allocation: &Allocation) -> LogTime {
    allocation.started_at.unwrap_or(allocation.granted_at)
}

/// The time at which an allocation is over, if nobody stops it before; [`NEVER`] when nobody knows.
pub(crate) fn end_of(state: &State, allocation: &Allocation) -> LogTime {
    if allocation.phase == AllocationPhase::Ending {
        return SOON;
    }
    state.job(allocation.job).map_or(NEVER, |job| end_of_job(&job.spec, since(allocation)))
}

fn end_of_job(spec: &JobSpec, since: LogTime) -> LogTime {
    spec.time_limit.map_or(NEVER, |limit| since.after(limit))
}

impl Schedule {
    fn of<'a>(node: &NodeEntry, holdings: impl Iterator<Item = &'a Holding>, planned: &'a [Planned]) -> Self {
        let (lost, endless_since) = (vec![Held::default(); node.cards.len()], vec![LogTime(0); node.cards.len()]);
        let mut schedule = Self { lost, endless_since, ..Self::default() };
        let held = holdings.map(|of| (of.lost, of.hold, of.host, &of.slices));
        let planned = planned.iter().map(|of| (false, of.hold, of.host, &of.slices));
        for (lost, hold, host, slices) in held.chain(planned) {
            if !lost {
                schedule.host.push((hold.end, host));
            }
            for slice in slices {
                let Some(card) = node.position(slice.card) else { continue };
                let (blocks, memory) = (slice.length.0, slice.memory.0);
                if lost {
                    schedule.lost[card].memory = schedule.lost[card].memory.saturating_add(memory);
                    schedule.lost[card].slices = schedule.lost[card].slices.saturating_add(1);
                    continue;
                }
                schedule.releases.push(Release { at: hold.end, card, blocks, memory });
                if hold.end == NEVER {
                    schedule.endless_since[card] = schedule.endless_since[card].max(hold.since);
                }
            }
        }
        schedule.releases.sort_unstable();
        schedule.host.sort_unstable();
        schedule
    }

    /// The schedule of a node on which everything has ended that can: only what is lost is left.
    pub(crate) fn idle(state: &State, id: NodeId, node: &NodeEntry) -> Self {
        if node.cards.iter().all(|card| card.recoverable == card.blocks) {
            return Self { lost: vec![Held::default(); node.cards.len()], ..Self::default() };
        }
        let known = Self::of(node, Holdings::default().read(state, id), &[]);
        Self { releases: Vec::new(), host: Vec::new(), ..known }
    }
}

impl Index {
    /// Reads when what is held on a node comes back, if that is not known.
    pub(crate) fn read_schedule(&mut self, state: &State, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        if node.schedule.is_none() {
            let mut holdings = std::mem::take(&mut node.holdings);
            let schedule = Schedule::of(node, holdings.read(state, id), self.surroundings.planned(id));
            (node.schedule, node.holdings) = (Some(Arc::new(schedule)), holdings);
        }
    }

    /// The time at which the last job without a time limit came to a card, if its node's schedule is known; zero if
    /// there is none.
    pub(crate) fn endless_since(&self, id: CardId) -> Option<LogTime> {
        let node = self.node(id.node)?;
        node.schedule.as_ref()?.endless_since.get(node.position(id)?).copied()
    }

    /// Counts an allocation of the plan being made, until the ledger has answered.
    pub(crate) fn plan(&mut self, spec: &Arc<JobSpec>, workers: &[PlannedWorker], now: LogTime) {
        let hold = Hold { since: now, end: end_of_job(spec, now) };
        let mut asked = spec.asked_of_hosts(workers).peekable();
        for worker in workers {
            let host = asked.next_if(|(node, _)| *node == worker.node).map_or(HostRequest::ZERO, |(_, asked)| asked);
            let planned = Planned { spec: Arc::clone(spec), hold, host, slices: worker.slices.clone() };
            self.surroundings.planned.entry(worker.node).or_default().push(planned);
            self.forget_schedule(worker.node);
        }
    }

    /// Forgets what plans counted: the ledger has answered.
    pub(crate) fn settle(&mut self) {
        std::mem::take(&mut self.surroundings.planned).into_keys().for_each(|id| self.forget_schedule(id));
    }

    pub(crate) fn note_allocation(&mut self, id: NodeId, allocation: AllocationId) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.holdings.0.retain(|(known, _)| *known != allocation);
            self.forget_schedule(id);
        }
    }

    /// Something of what is held on a node has changed.
    pub(crate) fn forget_schedule(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.schedule = None;
            self.touch(id);
        }
    }
}
