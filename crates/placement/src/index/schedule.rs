//! When what is held on a node comes back, as far as time limits say. Read from the ledger when it is asked for, and
//! remembered until something of the node changes.

use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, CardId, HostRequest, JobSpec, LogTime, NodeId, PlannedWorker, State,
};

use super::Index;
use super::holdings::{Holding, Holdings, What};
use super::node::NodeEntry;
use super::surroundings::Planned;

/// The end of what nobody knows the end of.
pub(crate) const NEVER: LogTime = LogTime(u64::MAX);
/// The end of what was told to stop.
pub(super) const SOON: LogTime = LogTime(0);

/// What a worker gives back of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    /// When.
    pub(crate) at: LogTime,
    /// Position of the card on the node.
    pub(crate) card: usize,
    /// Blocks.
    pub(crate) blocks: u32,
    /// MiB.
    pub(crate) memory: u64,
}

/// What is held of a card, or of what it could offer is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) blocks: u64,
    pub(crate) memory: u64,
    pub(crate) slices: u32,
}

/// Everything on a node that is held, or was granted by a plan that the ledger has not answered, in the order in which
/// it comes back. Grants count for what they were promised, too: blocks whose owner was told to stop for another grant
/// come back when that one is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Of cards.
    pub(crate) releases: Vec<Release>,
    /// Of the host.
    pub(crate) host: Vec<(LogTime, HostRequest)>,
    /// When the job without a time limit came to each card that came last; zero where there is none.
    pub(crate) endless_since: Vec<LogTime>,
    /// What does not come back of each card beside its lost blocks: memory and slices.
    pub(crate) lost: Vec<Held>,
    /// What does not come back of the host.
    pub(crate) lost_host: HostRequest,
}

/// From when to when something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) since: LogTime,
    /// [`NEVER`] when nobody knows.
    pub(crate) end: LogTime,
}

pub(super) fn since(allocation: &Allocation) -> LogTime {
    allocation.started_at.unwrap_or(allocation.granted_at)
}

/// When a grant is over, if nobody stops it before.
pub(crate) fn end_of(state: &State, allocation: &Allocation) -> LogTime {
    if allocation.phase == AllocationPhase::Ending {
        return SOON;
    }
    state.job(allocation.job).map_or(NEVER, |job| end_of_job(&job.spec, since(allocation)))
}

/// When a job is over that starts at `since`.
fn end_of_job(spec: &JobSpec, since: LogTime) -> LogTime {
    spec.time_limit.map_or(NEVER, |limit| since.after(limit))
}

impl Schedule {
    fn of(node: &NodeEntry, holdings: &[Holding], planned: &[Planned]) -> Self {
        let (lost, endless_since) = (vec![Held::default(); node.cards.len()], vec![LogTime(0); node.cards.len()]);
        let mut schedule = Self { lost, endless_since, ..Self::default() };
        holdings.iter().for_each(|holding| schedule.enter(node, holding));
        for Planned { spec, hold, slices } in planned {
            schedule.host.push((hold.end, spec.host));
            slices.iter().for_each(|slice| schedule.release(node, slice.card, slice.length.0, slice.memory.0, *hold));
        }
        schedule.releases.sort_unstable();
        schedule.host.sort_unstable();
        schedule
    }

    /// When something comes back first, as far as time limits say.
    pub(crate) fn first(&self) -> Option<LogTime> {
        self.releases.first().map(|release| release.at).filter(|at| *at != NEVER)
    }

    fn enter(&mut self, node: &NodeEntry, holding: &Holding) {
        match holding.what {
            What::Host(host) if holding.lost => self.lost_host = self.lost_host.plus(host),
            What::Host(host) => self.host.push((holding.hold.end, host)),
            What::Slice { card, memory, .. } if holding.lost => {
                let Some(card) = node.position(card) else { return };
                self.lost[card].memory = self.lost[card].memory.saturating_add(memory);
                self.lost[card].slices = self.lost[card].slices.saturating_add(1);
            }
            What::Slice { card, blocks, memory } => self.release(node, card, blocks, memory, holding.hold),
        }
    }

    fn release(&mut self, node: &NodeEntry, card: CardId, blocks: u32, memory: u64, hold: Hold) {
        let Some(card) = node.position(card) else { return };
        self.releases.push(Release { at: hold.end, card, blocks, memory });
        if hold.end == NEVER {
            self.endless_since[card] = self.endless_since[card].max(hold.since);
        }
    }
}

impl Index {
    /// Reads when what is held on all nodes comes back, as far as that is not known.
    pub(crate) fn read_schedules(&mut self, state: &State) {
        (0u32..).map(NodeId).take(self.nodes.len()).for_each(|id| self.read_schedule(state, id));
    }

    /// The same of one node.
    pub(crate) fn read_schedule(&mut self, state: &State, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        if node.schedule.is_none() && !node.cards.is_empty() {
            let mut holdings = std::mem::take(&mut node.holdings);
            let schedule = Schedule::of(node, holdings.read(state, id), self.surroundings.planned(id));
            (node.schedule, node.holdings) = (Some(Arc::new(schedule)), holdings);
        }
    }

    /// When the job without a time limit came to a card that came last, if its node's schedule is known; zero if there
    /// is none.
    pub(crate) fn endless_since(&self, id: CardId) -> Option<LogTime> {
        let node = self.node(id.node)?;
        node.known_schedule()?.endless_since.get(node.position(id)?).copied()
    }

    /// The schedule of a node on which everything has ended that can: only what is lost is left.
    pub(crate) fn idle_schedule(&self, state: &State, id: NodeId) -> Option<Schedule> {
        let node = self.node(id)?;
        let nothing = || Schedule { lost: vec![Held::default(); node.cards.len()], ..Schedule::default() };
        let has_lost = node.cards.iter().any(|card| card.recoverable < card.blocks);
        let known = has_lost.then(|| Schedule::of(node, Holdings::default().read(state, id), &[]));
        Some(known.map_or_else(nothing, |known| Schedule { releases: Vec::new(), host: Vec::new(), ..known }))
    }

    /// Counts a grant of the plan being made, until the ledger has answered.
    pub(crate) fn plan(&mut self, spec: &Arc<JobSpec>, workers: &[PlannedWorker], now: LogTime) {
        for worker in workers {
            let (spec, slices) = (Arc::clone(spec), worker.slices.clone());
            self.surroundings
                .plan(worker.node, Planned { hold: Hold { since: now, end: end_of_job(&spec, now) }, spec, slices });
            self.forget_schedule(worker.node);
        }
    }

    /// Forgets what plans counted: the ledger has answered.
    pub(crate) fn settle(&mut self) {
        self.surroundings.settle().for_each(|id| self.forget_schedule(id));
    }

    /// What a grant holds on a node has changed.
    pub(crate) fn note_grant(&mut self, id: NodeId, grant: AllocationId) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.holdings.note(grant);
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
