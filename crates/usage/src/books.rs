//! Reads off the ledger who begins and who ceases to hold what. Pure: the shell tells it which allocations an entry has
//! touched, and keeps what it answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, JobId, LogTime, Rank, Reason, Revision, State, WorkerState,
};

/// Cards that count alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    pub kind: &'static str,
    pub vendor: String,
    pub model: String,
}

/// The facts of a job that the accounts record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    pub id: JobId,
    pub name: String,
    pub submitter: String,
    pub queue: String,
    pub labels: BTreeMap<String, String>,
}

/// The holding of one worker in cards of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub allocation: AllocationId,
    pub attempt: u32,
    pub rank: Rank,
    pub class: Class,
    pub blocks: u64,
    /// The performance of a block at the reference precision, in thousandths of a TFLOPS.
    pub block_milli_tflops: u64,
    /// Card memory in MiB.
    pub memory_mib: u64,
}

/// Something to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A worker holds from now on.
    Began { job: Arc<JobFacts>, holding: Holding },
    /// A worker holds nothing any more.
    Ended { allocation: AllocationId, rank: Rank },
    /// The computation under an allocation is lost: it ended by preemption or failure.
    Lost {
        allocation: AllocationId,
        /// The time when the newest checkpoint that it left came to count: what it computed before is not lost.
        saved_at: Option<LogTime>,
    },
}

/// The changes of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub revision: Revision,
    pub time: LogTime,
    pub changes: Vec<Change>,
}

/// The current holders.
#[derive(Debug, Default)]
pub struct Books {
    open: HashMap<AllocationId, Open>,
}

#[derive(Debug)]
struct Open {
    job: JobId,
    ranks: BTreeSet<Rank>,
}

impl Books {
    /// The changes made by an entry that touched these allocations; `state` is as the entry left it.
    pub fn note(&mut self, state: &State, touched: impl IntoIterator<Item = AllocationId>) -> Vec<Change> {
        let touched: BTreeSet<AllocationId> = touched.into_iter().collect();
        let mut changes = Vec::new();
        for id in touched {
            match state.allocation(id) {
                Some(allocation) => self.compare(state, allocation, &mut changes),
                None => self.close(state, id, &mut changes),
            }
        }
        changes
    }

    /// Forgets what was known: the state was replaced. Answers what is held in the new one.
    pub fn replace(&mut self, state: &State) -> Vec<Change> {
        self.open.clear();
        self.note(state, state.allocations().map(|allocation| allocation.id))
    }

    fn compare(&mut self, state: &State, allocation: &Allocation, changes: &mut Vec<Change>) {
        let holding = holding_ranks(allocation);
        let before = self.open.get(&allocation.id).map(|open| &open.ranks);
        let nothing = BTreeSet::new();
        let before = before.unwrap_or(&nothing);
        let ended = before.difference(&holding).map(|rank| Change::Ended { allocation: allocation.id, rank: *rank });
        changes.extend(ended);
        let began: Vec<Rank> = holding.difference(before).copied().collect();
        if !began.is_empty()
            && let Some(facts) = facts(state, allocation.job)
        {
            let began = began.into_iter().flat_map(|rank| holdings(state, allocation, rank));
            changes.extend(began.map(|holding| Change::Began { job: Arc::clone(&facts), holding }));
        }
        if !holding.is_empty() || self.open.contains_key(&allocation.id) {
            self.open.insert(allocation.id, Open { job: allocation.job, ranks: holding });
        }
    }

    fn close(&mut self, state: &State, id: AllocationId, changes: &mut Vec<Change>) {
        let Some(open) = self.open.remove(&id) else { return };
        changes.extend(open.ranks.into_iter().map(|rank| Change::Ended { allocation: id, rank }));
        changes.extend(lost(state, open.job, id));
    }
}

/// The workers that hold something. While an allocation waits for blocks that others are still giving back, those who
/// give them back hold them.
fn holding_ranks(allocation: &Allocation) -> BTreeSet<Rank> {
    if allocation.phase == AllocationPhase::Waiting {
        return BTreeSet::new();
    }
    let holding = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
    holding.map(|worker| worker.rank).collect()
}

fn facts(state: &State, id: JobId) -> Option<Arc<JobFacts>> {
    let job = state.job(id)?;
    Some(Arc::new(JobFacts {
        id,
        name: job.spec.name.clone(),
        submitter: job.submitter.clone(),
        queue: job.spec.queue.clone(),
        labels: job.spec.labels.clone(),
    }))
}

/// The holdings of a worker, by class of card.
fn holdings(state: &State, allocation: &Allocation, rank: Rank) -> Vec<Holding> {
    let mut classes: BTreeMap<Class, (u64, u64)> = BTreeMap::new();
    for slice in allocation.worker(rank).into_iter().flat_map(|worker| &worker.slices) {
        let Some(card) = state.card(slice.card) else { continue };
        let description = &card.description;
        let class = Class {
            kind: description.kind.name(),
            vendor: description.vendor.clone(),
            model: description.model.clone(),
        };
        let sums = classes.entry(class).or_default();
        sums.0 += u64::from(slice.length.0);
        sums.1 += slice.memory.0;
    }
    let holding = |(class, (blocks, memory_mib))| Holding {
        allocation: allocation.id,
        attempt: allocation.attempt,
        rank,
        class,
        blocks,
        block_milli_tflops: state.config().block_size.0,
        memory_mib,
    };
    classes.into_iter().map(holding).collect()
}

/// The loss of an allocation that has left the ledger: all that no checkpoint holds from which the job can resume. One
/// that was cancelled, or met its own time limit, has lost nothing to the pool; one that failed for good has lost all.
fn lost(state: &State, job: JobId, allocation: AllocationId) -> Option<Change> {
    let job = state.job(job)?;
    let attempt = job.history.iter().rev().find(|attempt| attempt.allocation == allocation)?;
    // All are named, so that a new one has to be thought of here.
    let was_interrupted = match attempt.reason.as_ref()? {
        Reason::NonZeroExit { .. }
        | Reason::Signalled { .. }
        | Reason::StartFailed { .. }
        | Reason::CheckpointDamaged { .. }
        | Reason::NodeFault { .. }
        | Reason::OutOfMemory
        | Reason::WorkerVanished
        | Reason::NodeLost { .. }
        | Reason::Preempted { .. }
        | Reason::Drained { .. }
        | Reason::SuspendedByUser
        | Reason::OutsideWindow
        | Reason::Growing
        | Reason::IdleSuspended
        | Reason::Moving
        | Reason::MoveFailed
        | Reason::HostLost
        | Reason::PortTaken { .. }
        | Reason::NotRestored { .. } => true,
        Reason::Exited | Reason::Cancelled { .. } | Reason::TimeLimit | Reason::IdleReleased => false,
        // These end no attempt.
        Reason::Submitted
        | Reason::Held
        | Reason::Backoff
        | Reason::Queued
        | Reason::Granted
        | Reason::WaitingForPreempted
        | Reason::Started
        | Reason::NodeDisconnected { .. }
        | Reason::IdleNoticed
        | Reason::IdlePreemptible => false,
    };
    let saved_at = attempt.saved_at.filter(|_| !job.state.is_terminal());
    was_interrupted.then_some(Change::Lost { allocation, saved_at })
}
