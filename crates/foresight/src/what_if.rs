//! The effects of an operator's change on the pool: a change is made on a copy of the ledger, everything that follows
//! from it is played through, and the end is compared with what would have happened without the change. Nothing is
//! written.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{
    BlockCount, CardDescription, CardHealth, CardKind, Command, Eligibility, JobId, JobState, LogTime, Mebibytes,
    MilliCpus, MilliTflops, NodeId, Outcome, PlannedWorker, QueueSettings, Rejection, State,
};

use crate::added;
use crate::rehearsal::Rehearsal;
use tessera_explain::{Explanation, explain};
use tessera_placement::Limits;

/// A change that is only thought of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nodes are drained: what runs there leaves them.
    Drain(BTreeSet<NodeId>),
    /// Nodes are added, all alike.
    Add(AddedNodes),
    /// A queue is made or changed.
    Queue(QueueSettings),
}

/// Nodes that are only thought of, all alike. What is not said of them is taken from a node of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedNodes {
    /// The cards of each.
    pub cards: Vec<CardDescription>,
    /// Number of added nodes.
    pub nodes: u32,
    /// The node that they are like; `None`: the one whose cards of the same models are most like theirs in number.
    pub like: Option<NodeId>,
    /// Processor time of each host, if it is not as that node's.
    pub cpu: Option<MilliCpus>,
    /// Memory of each host, if it is not as that node's.
    pub memory: Option<Mebibytes>,
    /// Labels beside that node's, and instead of them.
    pub labels: BTreeMap<String, String>,
}

/// The capacity that cards of one kind offer to new work and to work that runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub cards: u64,
    /// Compute at the pool's reference precision.
    pub compute: MilliTflops,
    pub memory: Mebibytes,
}

/// A job for which the change makes a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    pub job: JobId,
    /// The nodes on which it was, if it ran.
    pub from: BTreeSet<NodeId>,
    /// The outcome for the job after the change.
    pub then: Moves,
}

/// The outcome for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moves {
    /// It runs there, in order of rank.
    Runs(Vec<PlannedWorker>),
    /// It waits, for this.
    Waits(Explanation),
}

/// The effects of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// By kind of card, as it is.
    pub before: BTreeMap<CardKind, Capacity>,
    /// By kind of card, after the change.
    pub after: BTreeMap<CardKind, Capacity>,
    /// The node that hosts, labels and links of added ones were taken from.
    pub like: Option<NodeId>,
    /// Jobs that run and would be suspended by the change: they leave their nodes or give way, and go on elsewhere
    /// or wait.
    pub displaced: Vec<Moved>,
    /// Jobs that wait and would start because of the change.
    pub started: Vec<Moved>,
    /// Jobs that wait as it is, once everything that fits has started.
    pub waiting_before: u64,
    /// Jobs that wait after the change.
    pub waiting_after: u64,
    /// True if everything was played through; otherwise the pool is so busy that the rehearsal was cut short.
    pub whole: bool,
}

/// Plays a change through as of `now`; answers what it would do, and the pool as it would be.
///
/// # Errors
/// The ledger's own refusal of the change, such as an unknown node or queue.
pub fn what_if(state: &State, now: LogTime, change: &Change) -> Result<(WhatIf, State), Rejection> {
    let limits = Limits::default();
    let mut without = Rehearsal::of(state, now);
    without.catch_up();
    let unchanged = without.settle(&limits);
    let mut with = Rehearsal::of(state, now);
    with.catch_up();
    for command in commands(state, change) {
        if let Outcome::Rejected(rejection) = with.apply(command) {
            return Err(rejection);
        }
    }
    let like = match change {
        Change::Add(added) => added::like(state, added),
        Change::Drain(_) | Change::Queue(_) => None,
    };
    let after = capacity(&with.state);
    let changed = with.settle(&limits);
    let mut answer = WhatIf {
        before: capacity(state),
        after,
        like,
        waiting_before: waiting(&without.state),
        waiting_after: waiting(&with.state),
        whole: unchanged.whole && changed.whole,
        ..WhatIf::default()
    };
    compare(state, &without.state, &mut with, &mut answer);
    Ok((answer, with.state))
}

fn commands(state: &State, change: &Change) -> Vec<Command> {
    match change {
        Change::Drain(nodes) => {
            let drain = |node: &NodeId| Command::SetEligibility {
                node: *node,
                eligibility: Eligibility::Draining,
                reason: String::new(),
            };
            nodes.iter().map(drain).collect()
        }
        Change::Add(added) => {
            let node = added::node_like(state, added);
            (0..added.nodes).map(|number| node.register(state, number)).collect()
        }
        Change::Queue(queue) => vec![Command::SetQueue { queue: queue.clone() }],
    }
}

/// The capacity of healthy cards on nodes that new work may go to.
fn capacity(state: &State) -> BTreeMap<CardKind, Capacity> {
    let mut kinds: BTreeMap<CardKind, Capacity> = BTreeMap::new();
    for (id, card) in state.cards() {
        let offered = state.node(id.node).is_some_and(|node| node.grantable());
        let sum = kinds.entry(card.description.kind).or_default();
        if !offered || card.description.health != CardHealth::Healthy {
            continue;
        }
        let BlockCount(blocks) = card.blocks;
        sum.cards += 1;
        sum.compute = sum.compute.saturating_add(state.config().block_size.saturating_mul(blocks));
        sum.memory = sum.memory.saturating_add(card.description.memory);
    }
    kinds
}

fn waiting(state: &State) -> u64 {
    u64::try_from(state.waiting().count()).unwrap_or(u64::MAX)
}

fn runs(state: &State, job: JobId) -> bool {
    state.job(job).is_some_and(|job| matches!(job.state, JobState::Starting | JobState::Running))
}

/// The jobs that end up differently with the change than without it.
fn compare(state: &State, without: &State, with: &mut Rehearsal, answer: &mut WhatIf) {
    let attempts = |state: &State, job: JobId| state.job(job).map_or(0, |job| job.attempts);
    let ids: Vec<JobId> = state.jobs_from(JobId(0)).filter(|job| !job.state.is_terminal()).map(|job| job.id).collect();
    for id in ids {
        let ran = state.job(id).is_some_and(|job| job.allocation.is_some());
        let (then, now) = (runs(&with.state, id), runs(without, id));
        let disturbed = ran
            && attempts(without, id) == attempts(state, id)
            && now
            && (attempts(&with.state, id) != attempts(state, id) || !then);
        let started = !ran && then && !now;
        if disturbed || started {
            let moved = Moved { job: id, from: nodes_of(state, id), then: outcome(with, id) };
            if disturbed { answer.displaced.push(moved) } else { answer.started.push(moved) }
        }
    }
}

fn nodes_of(state: &State, job: JobId) -> BTreeSet<NodeId> {
    let allocation = state.job(job).and_then(|job| state.allocation(job.allocation?));
    allocation.map(|allocation| allocation.workers.iter().map(|worker| worker.node).collect()).unwrap_or_default()
}

fn outcome(with: &mut Rehearsal, id: JobId) -> Moves {
    let (pool, state) = with.pool();
    let allocation = state.job(id).and_then(|job| state.allocation(job.allocation?));
    match (allocation, state.job(id)) {
        (None, Some(job)) => Moves::Waits(explain(pool, state, job, state.time())),
        (allocation, _) => Moves::Runs(allocation.map(|allocation| placed(allocation)).unwrap_or_default()),
    }
}

/// The places of an allocation, as a plan writes them.
fn placed(allocation: &tessera_ledger::Allocation) -> Vec<PlannedWorker> {
    let planned = |worker: &tessera_ledger::Worker| PlannedWorker {
        virtual_card: worker.virtual_card,
        node: worker.node,
        slices: worker.slices.clone(),
    };
    allocation.workers.iter().map(planned).collect()
}
