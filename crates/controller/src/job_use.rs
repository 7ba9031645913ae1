//! The use of what a job holds: the ledger records what it holds, and readings of agents show how much of that it uses.
//! A job is reported from its allocation on; what nobody has measured counts as zero.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_api::v1::DeviceUse;
use tessera_ledger::{Allocation, Job, NodeId, Rank, State, Worker, WorkerState};
use tokio::time::Instant;

use crate::telemetry::{SliceReading, Telemetry, WorkerReading};

/// The blocks and memory of one card that a worker holds, and its use of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SliceUse {
    /// Blocks that it holds.
    pub blocks: u64,
    pub memory_held_bytes: u64,
    pub used: SliceReading,
    /// True if `used` was measured; otherwise it is zero.
    pub measured: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerUse {
    pub rank: Rank,
    pub node: NodeId,
    /// The arrival time of the reading; `None`: there is none.
    pub at: Option<Instant>,
    /// Processors of the host that it keeps busy.
    pub processors: f64,
    /// Memory of the host that it uses, in bytes.
    pub host_memory_bytes: u64,
    /// By the card's index on the node.
    pub slices: BTreeMap<u32, SliceUse>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobUse {
    /// Its workers that are not over, by rank.
    pub workers: Vec<WorkerUse>,
}

impl JobUse {
    /// The use of a job; `None` when it holds no blocks.
    #[must_use]
    pub fn of(state: &State, telemetry: &Telemetry, job: &Job) -> Option<Self> {
        let allocation = job.allocation.and_then(|id| state.allocation(id))?;
        let here = allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
        let workers: Vec<WorkerUse> = here.map(|worker| of_worker(telemetry, allocation, worker)).collect();
        (!workers.is_empty()).then_some(Self { workers })
    }

    fn slices(&self) -> impl Iterator<Item = &SliceUse> {
        self.workers.iter().flat_map(|worker| worker.slices.values())
    }

    /// Blocks that it holds.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.slices().map(|slice| slice.blocks).sum()
    }

    /// Share of what it may compute that it computed, each block counted alike.
    #[must_use]
    pub fn utilization_ratio(&self) -> f64 {
        let used: f64 = self.slices().map(|slice| slice.used.utilization_ratio * slice.blocks as f64).sum();
        match self.blocks() {
            0 => 0.0,
            blocks => used / blocks as f64,
        }
    }

    /// Card memory that it holds, in bytes.
    #[must_use]
    pub fn memory_held_bytes(&self) -> u64 {
        self.slices().map(|slice| slice.memory_held_bytes).sum()
    }

    /// Card memory that it has in use, in bytes.
    #[must_use]
    pub fn memory_used_bytes(&self) -> u64 {
        self.slices().map(|slice| slice.used.memory_used_bytes).fold(0, u64::saturating_add)
    }

    /// The combined activity of the slice servers of its workers; `None` when no worker reports one.
    #[must_use]
    pub fn device(&self) -> Option<DeviceUse> {
        self.slices().filter_map(|slice| slice.used.device).reduce(|sum, one| DeviceUse {
            operations_per_second: sum.operations_per_second + one.operations_per_second,
            bytes_per_second: sum.bytes_per_second + one.bytes_per_second,
            gate_wait_ratio: sum.gate_wait_ratio.max(one.gate_wait_ratio),
            queued_bytes: sum.queued_bytes.saturating_add(one.queued_bytes),
        })
    }

    /// Processors of hosts that it keeps busy.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.workers.iter().map(|worker| worker.processors).sum()
    }

    #[must_use]
    pub fn host_memory_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.host_memory_bytes).fold(0, u64::saturating_add)
    }

    /// The arrival time of its oldest reading, if every slice is measured and no reading is older than `fresh`.
    #[must_use]
    pub fn known_at(&self, now: Instant, fresh: Duration) -> Option<Instant> {
        let is_fresh = |worker: &WorkerUse| worker.at.is_some_and(|at| now.saturating_duration_since(at) <= fresh);
        let is_known = |worker: &WorkerUse| is_fresh(worker) && worker.slices.values().all(|slice| slice.measured);
        self.oldest().filter(|_| self.blocks() > 0 && self.workers.iter().all(is_known))
    }

    /// The arrival time of its oldest reading.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|worker| worker.at).min()
    }
}

fn of_worker(telemetry: &Telemetry, allocation: &Allocation, worker: &Worker) -> WorkerUse {
    let reading = telemetry.worker(worker.node, allocation.id, allocation.epoch, worker.rank);
    let mut slices: BTreeMap<u32, SliceUse> = BTreeMap::new();
    for slice in &worker.slices {
        let sum = slices.entry(slice.card.index).or_default();
        sum.blocks += u64::from(slice.length.0);
        sum.memory_held_bytes += slice.memory.0 << 20;
    }
    for (card, slice) in &mut slices {
        let told = reading.as_ref().and_then(|reading| reading.slices.get(card));
        (slice.used, slice.measured) = (told.copied().unwrap_or_default(), told.is_some());
    }
    let (at, processors, host_memory_bytes) = match &reading {
        Some(WorkerReading { at, processors, host_memory_bytes, .. }) => (Some(*at), *processors, *host_memory_bytes),
        None => (None, 0.0, 0),
    };
    WorkerUse { rank: worker.rank, node: worker.node, at, processors, host_memory_bytes, slices }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{Command, Epoch};

    use super::*;
    use crate::fixture::Ledger;

    #[tokio::test]
    async fn from_the_grant_on_a_job_uses_nothing_until_somebody_tells() {
        let mut ledger = Ledger::default();
        let node = ledger.node("n", &[10]);
        let job = ledger.submit(crate::fixture::job(4));
        let telemetry = Telemetry::default();
        let of = |ledger: &Ledger| JobUse::of(&ledger.state, &telemetry, ledger.state.job(job).expect("known"));
        assert_eq!(of(&ledger), None, "it waits");
        let allocation = ledger.grant(job, &[(node, 0, 4)]);
        let used = of(&ledger).expect("it holds blocks");
        assert_eq!((used.blocks(), used.workers.len(), used.oldest()), (4, 1, None));
        assert_eq!((used.utilization_ratio(), used.memory_used_bytes(), used.processors()), (0.0, 0, 0.0));
        let known = |ledger: &Ledger, later: u64| {
            let now = Instant::now() + Duration::from_secs(later);
            of(ledger).expect("it holds blocks").known_at(now, Duration::from_secs(10)).is_some()
        };
        let tell_of = |epoch: Epoch, card: u32| {
            let device = Some(DeviceUse { operations_per_second: 9.0, gate_wait_ratio: 0.25, ..DeviceUse::default() });
            let reading = SliceReading { utilization_ratio: 0.5, memory_used_bytes: 1 << 20, device };
            let slices = BTreeMap::from([(card, reading)]);
            let reading = WorkerReading { at: Instant::now(), epoch, processors: 1.5, host_memory_bytes: 9, slices };
            telemetry.note_workers(node, BTreeMap::from([((allocation.id, Rank(0)), reading)]));
        };
        let tell = |epoch: Epoch| tell_of(epoch, 0);
        tell(Epoch(allocation.epoch.0 + 1));
        assert_eq!(
            of(&ledger).expect("it holds blocks").oldest(),
            None,
            "what an older allocation used is not its own"
        );
        assert!(!known(&ledger, 0));
        tell_of(allocation.epoch, 7);
        assert!(!known(&ledger, 0), "its worker is heard of, and nobody says what it does on its card");
        tell(allocation.epoch);
        assert!(known(&ledger, 0) && !known(&ledger, 11), "what is old says nothing of now");
        let used = of(&ledger).expect("it holds blocks");
        assert_eq!((used.utilization_ratio(), used.memory_used_bytes(), used.processors()), (0.5, 1 << 20, 1.5));
        let device = used.device().expect("its server told");
        assert_eq!((device.operations_per_second, device.gate_wait_ratio), (9.0, 0.25));
        assert_eq!(used.host_memory_bytes(), 9);
        ledger.apply(Command::CancelJob { job });
        telemetry.note_workers(node, BTreeMap::new());
        assert_eq!(of(&ledger).map(|used| used.processors()), Some(0.0), "until it has stopped it holds its blocks");
    }
}
