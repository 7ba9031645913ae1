//! The agent of a node, its workers as they really are, and its session with a leader.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{AllocationPhase, JobId, NodeId, Rank, State, WorkerState};

/// A worker without its epoch, which its allocation determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub allocation: u64,
    pub rank: u32,
}

/// An agent's report of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
    Running,
    Completed,
    Stopped,
    LeaseExpired,
    Unconfirmed,
}

impl Said {
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::LeaseExpired)
    }
}

/// A worker as it really is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Ordered; waits for a lease.
    Waiting,
    /// Its process computes.
    Computes,
    /// Told to stop; it may still compute.
    Stopping,
    /// Killed and not gone: it computes no more but holds its blocks.
    Stuck,
    /// Gone, or never started.
    Over(Said),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    pub life: Life,
    pub job: JobId,
    /// The leader's newest word: it should be here.
    pub granted: bool,
    /// The leader's word that the ledger has settled it.
    pub settled: bool,
    /// The report that the leader has acknowledged.
    pub told: Option<Said>,
}

impl Worker {
    /// Returns whether the worker may use its blocks.
    pub const fn holds(&self) -> bool {
        matches!(self.life, Life::Computes | Life::Stopping | Life::Stuck)
    }

    /// The report that is due for the worker. `believed`: a kill is taken for done once it is ordered.
    pub const fn says(&self, believed: bool) -> Option<Said> {
        match self.life {
            Life::Waiting => None,
            Life::Stopping if believed => Some(Said::Stopped),
            Life::Stopping => None,
            Life::Computes => Some(Said::Running),
            Life::Stuck => Some(Said::Unconfirmed),
            Life::Over(said) => Some(said),
        }
    }

    fn stop(&mut self) {
        self.life = match self.life {
            Life::Waiting => Life::Over(Said::Stopped),
            Life::Computes => Life::Stopping,
            other => other,
        };
    }
}

/// The desired fate of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Desire {
    Run(JobId),
    Stop,
    Forget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Orders {
    pub complete: bool,
    pub list: BTreeMap<Name, Desire>,
}

/// A session, with both of its ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// True if the leader at its other end has been deposed, before the session began or since.
    pub deposed: bool,
    /// Complete orders were given.
    pub begun: bool,
    /// The workers that the leader was told of, each with whether it may be there.
    pub present: BTreeMap<Name, bool>,
    pub ordered: BTreeMap<Name, Desire>,
    /// Under way to the agent.
    pub orders: Option<Orders>,
    /// Under way to the leader.
    pub report: Option<BTreeMap<Name, Said>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Agent {
    pub highest_term: u64,
    pub incarnation: u64,
    pub leased: bool,
    /// It has left the leader that was deposed.
    pub left_deposed: bool,
    pub session: Option<Session>,
    pub workers: BTreeMap<Name, Worker>,
}

impl Agent {
    /// Says hello: what is there, and what was not acknowledged.
    pub fn connect(&mut self, deposed: bool, believed: bool) {
        let present =
            self.workers.iter().map(|(name, worker)| (*name, !matches!(worker.life, Life::Over(_)))).collect();
        let report = self.news(believed);
        let ordered = BTreeMap::new();
        self.session = Some(Session { deposed, begun: false, present, ordered, orders: None, report: Some(report) });
    }

    /// The reports that the leader has not acknowledged.
    pub fn news(&self, believed: bool) -> BTreeMap<Name, Said> {
        let unsaid = |(name, worker): (&Name, &Worker)| {
            worker.says(believed).filter(|said| worker.told != Some(*said)).map(|said| (*name, said))
        };
        self.workers.iter().filter_map(unsaid).collect()
    }

    pub fn obey(&mut self, orders: Orders) {
        for (name, desire) in &orders.list {
            match (desire, self.workers.get_mut(name)) {
                (Desire::Run(job), None) => {
                    let life = if self.leased { Life::Computes } else { Life::Waiting };
                    self.insert(*name, life, *job);
                }
                (Desire::Run(_), Some(worker)) => {
                    worker.granted = true;
                    worker.told = worker.told.filter(|said| !said.is_end());
                }
                (Desire::Stop, None) => self.insert(*name, Life::Over(Said::Stopped), JobId(0)),
                (Desire::Stop, Some(worker)) => {
                    worker.granted = true;
                    worker.told = worker.told.filter(|said| !said.is_end());
                    worker.stop();
                }
                (Desire::Forget, None) => {}
                (Desire::Forget, Some(worker)) => {
                    worker.settled = true;
                    worker.stop();
                }
            }
        }
        if orders.complete {
            for (_, worker) in self.workers.iter_mut().filter(|(name, _)| !orders.list.contains_key(name)) {
                worker.granted = false;
                worker.stop();
            }
        }
        self.forget();
    }

    fn insert(&mut self, name: Name, life: Life, job: JobId) {
        self.workers.insert(name, Worker { life, job, granted: true, settled: false, told: None });
    }

    pub fn acknowledged(&mut self, report: &BTreeMap<Name, Said>) {
        for (name, said) in report {
            if let Some(worker) = self.workers.get_mut(name) {
                worker.told = Some(*said);
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.workers.retain(|_, worker| match worker.life {
            Life::Over(said) => !(worker.settled || (!worker.granted && worker.told == Some(said))),
            _ => true,
        });
    }

    /// The lease is given: what waited for it starts.
    pub fn start_waiting(&mut self) {
        self.leased = true;
        for worker in self.workers.values_mut().filter(|worker| worker.life == Life::Waiting) {
            worker.life = Life::Computes;
        }
    }

    /// The lease has run out: supervisors have killed everything.
    pub fn expire(&mut self) {
        self.leased = false;
        for worker in self.workers.values_mut().filter(|worker| worker.holds() && worker.life != Life::Stuck) {
            worker.life = Life::Over(Said::LeaseExpired);
        }
    }
}

impl Session {
    /// The orders that the leader has to give now; mirrors the controller's order book.
    pub fn changes(&self, node: NodeId, view: &State, early_target: bool) -> Orders {
        let desired = self.desired(node, view, early_target);
        let mut list: BTreeMap<Name, Desire> = BTreeMap::new();
        for (name, desire) in &desired {
            if self.ordered.get(name) != Some(desire) {
                list.insert(*name, *desire);
            }
        }
        let strangers: BTreeSet<Name> = self.present.keys().chain(self.ordered.keys()).copied().collect();
        for name in strangers.into_iter().filter(|name| !desired.contains_key(name)) {
            let there = self.present.get(&name) == Some(&true);
            let desire = if there { Desire::Stop } else { Desire::Forget };
            let unsaid = self.ordered.get(&name) != Some(&desire);
            // What complete orders do not name must stop.
            if unsaid && (!there || self.begun) {
                list.insert(name, desire);
            }
        }
        Orders { complete: !self.begun, list }
    }

    fn desired(&self, node: NodeId, view: &State, early_target: bool) -> BTreeMap<Name, Desire> {
        let mut desires = BTreeMap::new();
        for allocation in view.allocations_on(node) {
            for worker in allocation.workers.iter().filter(|worker| worker.node == node) {
                let name = name(allocation.id.0, worker.rank);
                let there = self.present.get(&name) == Some(&true);
                let desire = match (allocation.phase, worker.state) {
                    (AllocationPhase::Waiting, _) => continue,
                    (AllocationPhase::Reserved, _) if early_target => Desire::Run(allocation.job),
                    (AllocationPhase::Reserved, _) => continue,
                    (_, WorkerState::Stopped) if there => Desire::Stop,
                    (_, WorkerState::Stopped) => Desire::Forget,
                    (_, WorkerState::Draining) | (AllocationPhase::Ending, _) => Desire::Stop,
                    (AllocationPhase::Active, _) => Desire::Run(allocation.job),
                };
                desires.insert(name, desire);
            }
        }
        desires
    }

    /// Returns whether every worker that may be there is granted.
    pub fn holds_only_granted(&self, view: &State) -> bool {
        let granted = |name: &Name| {
            let allocation = view.allocation(tessera_ledger::AllocationId(name.allocation));
            let worker = allocation.and_then(|allocation| allocation.worker(Rank(name.rank)));
            worker.is_some_and(|worker| worker.state != WorkerState::Stopped)
        };
        self.present.iter().all(|(name, there)| !there || granted(name))
    }
}

pub const fn name(allocation: u64, rank: Rank) -> Name {
    Name { allocation, rank: rank.0 }
}
