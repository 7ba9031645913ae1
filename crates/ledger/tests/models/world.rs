//! Everything there is: the ledger, the leaders, the nodes, and what is under way between them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use stateright::Property;
use tessera_ledger::{AllocationId, Command, Epoch, JobId, LogTime, MoveId, NodeId, Outcome, Owner, Plan, Rank, State};
use xxhash_rust::xxh3::Xxh3;

use crate::models::agent::{Agent, Name};
use crate::models::steps::Protocol;
use crate::pool;

/// One rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An agent takes a kill for done once it is ordered.
    KillBelieved,
    /// An agent listens to leaders of older terms.
    TermUnchecked,
    /// A loss counts although the node has registered since it was judged.
    EpochUnchecked,
    /// A node is condemned while its lease may be valid.
    LossBeforeEnd,
    /// A deposed leader grants leases.
    LeaseWithoutQuorum,
    /// A lost node is back before it has shown what it runs.
    ReturnUnreconciled,
    /// The target of a move is started before its source has stopped.
    TargetBeforeSource,
    /// A new leader does not carry on moves that an earlier one began.
    MovesLeftBehind,
}

/// The number of times that each fault, and each action of people, can still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Left {
    pub breaks: u8,
    pub elections: u8,
    pub expiries: u8,
    pub losses: u8,
    pub stuck: u8,
    pub restarts: u8,
    pub cancels: u8,
    pub moves: u8,
}

/// A job to be submitted.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    pub priority: u32,
    pub gang: u32,
}

/// The size of a world.
#[derive(Clone, Debug)]
pub struct Setting {
    pub flaw: Option<Flaw>,
    /// Nodes with one card of one block.
    pub nodes: usize,
    /// Number of nodes, from the first, that are expired, lost, restarted, and misled by leaders that were deposed.
    /// Placement goes to the first nodes first, so where nodes are alike one is enough.
    pub faulty: usize,
    pub jobs: Vec<Submission>,
    pub left: Left,
    /// Events that must be seen to happen, so that the promises are not empty.
    pub seen: fn() -> Vec<Property<Protocol>>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub ledger: State,
    pub term: u64,
    /// The state that a leader of the term before still believes.
    pub deposed: Option<State>,
    /// Decided, on its way into the log.
    pub plan: Option<Plan>,
    /// The loss of a node, on its way into the log, and the epoch that it was judged in.
    pub loss: Option<(NodeId, Epoch)>,
    pub agents: Vec<Agent>,
    pub submitted: usize,
    pub left: Left,
    /// A move was begun under a leader that was deposed since.
    pub inherited: bool,
}

impl World {
    pub fn new(setting: &Setting) -> Self {
        let card = [pool::card(tessera_ledger::CardKind::Gpu, 1)];
        let cards: Vec<&[_]> = vec![&card; setting.nodes];
        let ledger = pool::Pool::with_nodes(&cards).state;
        let agent = Agent { incarnation: 1, ..Agent::default() };
        Self {
            ledger,
            term: 1,
            deposed: None,
            plan: None,
            loss: None,
            agents: vec![agent; setting.nodes],
            submitted: 0,
            left: setting.left,
            inherited: false,
        }
    }

    /// Brings a command into the log.
    pub fn commit(&mut self, command: Command) -> Outcome {
        tessera_testkit::apply(&mut self.ledger, LogTime(1_000), command)
    }

    /// The owner that a name stands for; of an allocation that is gone, some owner that the ledger does not know.
    pub fn owner(&self, name: Name) -> Owner {
        let allocation = AllocationId(name.allocation);
        let epoch = self.ledger.allocation(allocation).map_or(Epoch(0), |allocation| allocation.epoch);
        Owner { allocation, epoch, rank: Rank(name.rank) }
    }

    /// Returns whether a loss is on its way that the ledger would accept.
    pub fn is_condemned(&self, node: NodeId) -> bool {
        let epoch = self.ledger.node(node).map(|node| node.epoch);
        self.loss.is_some_and(|(lost, judged)| lost == node && Some(judged) == epoch)
    }

    /// Hashes the properties that distinguish states of the ledger.
    fn hash_ledger(view: &State, hasher: &mut impl Hasher) {
        for node in view.nodes() {
            (node.state, node.description.incarnation).hash(hasher);
        }
        for (_, card) in view.cards() {
            for extent in card.extents.as_slice() {
                let owner = extent.state.owner().map(|owner| (owner.allocation, owner.rank));
                (extent.state.name(), owner, card.memory_promised).hash(hasher);
                if let tessera_ledger::BlockState::Draining { next, .. } = extent.state {
                    next.map(|next| next.allocation).hash(hasher);
                }
            }
        }
        for job in view.jobs_from(JobId(0)) {
            (job.id, job.state, &job.reason, job.held, job.parked, job.allocation, job.moving, job.ending).hash(hasher);
            (job.attempts, job.retries, job.preempted_at.len()).hash(hasher);
        }
        for allocation in view.allocations() {
            (allocation.id, allocation.job, allocation.phase).hash(hasher);
            for worker in allocation.workers.iter() {
                (worker.state, worker.node, worker.exit.as_ref().map(|exit| (exit.cause, exit.code))).hash(hasher);
            }
        }
        for movement in view.moves() {
            (movement.id, movement.job, movement.source, movement.target, movement.phase).hash(hasher);
        }
    }

    fn fingerprint(&self) -> u128 {
        let mut hasher = Xxh3::new();
        Self::hash_ledger(&self.ledger, &mut hasher);
        if let Some(view) = self.deposed.as_ref().filter(|_| self.is_deposed_heard()) {
            Self::hash_ledger(view, &mut hasher);
        }
        (self.term, self.deposed.is_some(), self.submitted, self.left, self.inherited).hash(&mut hasher);
        self.loss.map(|(node, _)| (node, self.is_condemned(node))).hash(&mut hasher);
        self.agents.hash(&mut hasher);
        if let Some(plan) = &self.plan {
            format!("{:?}", plan.parts).hash(&mut hasher);
        }
        hasher.digest128()
    }

    /// Returns whether any agent may still listen to the leader that was deposed.
    pub fn is_deposed_heard(&self) -> bool {
        self.agents.iter().any(|agent| agent.highest_term < self.term)
    }

    /// The moves in progress.
    pub fn moves(&self) -> BTreeMap<MoveId, tessera_ledger::MovePhase> {
        self.ledger.moves().map(|movement| (movement.id, movement.phase)).collect()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}
