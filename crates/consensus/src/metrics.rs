//! What Prometheus sees of consensus, under the names operators' dashboards and alerts use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tessera_store::{SYNC_BOUNDS_MICROS, SyncHistogram};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::shared::Shared;
use crate::status::{Role, Status};

/// Bounds in seconds for what should take a fraction of a millisecond to a second.
const LATENCY_BOUNDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// What is counted as it happens.
#[derive(Debug)]
pub(crate) struct Meters {
    propose: Histogram,
    apply: Histogram,
    leader_changes: Counter,
    hash_mismatches: Counter,
    snapshot_bytes: AtomicU64,
    snapshot_at: Mutex<Option<Instant>>,
}

impl Meters {
    pub(crate) fn new() -> Self {
        Meters {
            propose: Histogram::new(LATENCY_BOUNDS),
            apply: Histogram::new(LATENCY_BOUNDS),
            leader_changes: Counter::default(),
            hash_mismatches: Counter::default(),
            snapshot_bytes: AtomicU64::new(0),
            snapshot_at: Mutex::new(None),
        }
    }

    pub(crate) fn proposed(&self, took: Duration) {
        self.propose.observe(took.as_secs_f64());
    }

    pub(crate) fn applied(&self, took: Duration) {
        self.apply.observe(took.as_secs_f64());
    }

    pub(crate) fn leader_changed(&self) {
        self.leader_changes.inc();
    }

    pub(crate) fn hash_mismatch(&self) {
        self.hash_mismatches.inc();
    }

    /// How often members were found to differ.
    pub(crate) fn hash_mismatch_count(&self) -> u64 {
        self.hash_mismatches.get()
    }

    pub(crate) fn snapshot_kept(&self, bytes: u64) {
        self.snapshot_bytes.store(bytes, Ordering::Relaxed);
        *self.snapshot_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn snapshot_age(&self) -> Option<Duration> {
        self.snapshot_at.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }
}

/// Registers the metrics of one member. Names begin with `tessera_`, so the registry must not add a prefix of its own.
pub(crate) fn register(shared: &Arc<Shared>, status: watch::Receiver<Status>, registry: &mut Registry) {
    let meters = &shared.meters;
    registry.register(
        "tessera_raft_propose_duration_seconds",
        "Time from handing in a command to its being applied on the leader",
        meters.propose.clone(),
    );
    registry.register(
        "tessera_raft_apply_duration_seconds",
        "Time to apply and publish the entries that were applied together",
        meters.apply.clone(),
    );
    registry.register(
        "tessera_raft_leader_changes",
        "Leaders this member has seen come to power since it started",
        meters.leader_changes.clone(),
    );
    registry.register(
        "tessera_state_hash_mismatch",
        "Comparisons in which members' states differed; must stay 0",
        meters.hash_mismatches.clone(),
    );
    registry.register_collector(Box::new(Scraped { shared: Arc::clone(shared), status }));
}

/// What is looked up when Prometheus asks.
struct Scraped {
    shared: Arc<Shared>,
    status: watch::Receiver<Status>,
}

impl std::fmt::Debug for Scraped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("consensus metrics")
    }
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::fmt::Result {
        let status = self.status.borrow().clone();
        encode_status(&mut encoder, &status)?;
        if let Some(offset_ms) = self.shared.time.status().offset_ms {
            gauge(
                &mut encoder,
                "tessera_clock_offset_seconds",
                "How far this member's wall clock is ahead of what a quorum of the members' clocks agree on",
                offset_ms as f64 / 1e3,
            )?;
        }
        let meters = &self.shared.meters;
        if let Some(age) = meters.snapshot_age() {
            gauge(&mut encoder, "tessera_raft_snapshot_age_seconds", "Age of the newest snapshot", age.as_secs_f64())?;
        }
        let bytes = meters.snapshot_bytes.load(Ordering::Relaxed);
        gauge(&mut encoder, "tessera_raft_snapshot_size_bytes", "Size of the newest snapshot", as_i64(bytes))?;
        let store = self.shared.store.status();
        gauge(&mut encoder, "tessera_store_size_bytes", "Bytes the store takes on disk", as_i64(store.disk_bytes))?;
        encode_syncs(&mut encoder, &store.syncs)
    }
}

fn encode_status(encoder: &mut DescriptorEncoder, status: &Status) -> std::fmt::Result {
    let leads = i64::from(status.role == Role::Leader && status.quorum_fresh);
    gauge(encoder, "tessera_raft_is_leader", "1 on a leader that a quorum acknowledges", leads)?;
    gauge(encoder, "tessera_raft_term", "Current term", as_i64(status.term.0))?;
    gauge(encoder, "tessera_raft_voters", "Members with a vote", as_i64(status.voters.len() as u64))?;
    gauge(encoder, "tessera_raft_learners", "Members without a vote", as_i64(status.learners.len() as u64))?;
    let mut family = encoder.encode_descriptor(
        "tessera_raft_log_index",
        "Index of the last entry of each kind",
        None,
        MetricType::Gauge,
    )?;
    let indices = [
        ("last", status.last),
        ("committed", status.committed),
        ("applied", status.applied),
        ("snapshot", status.snapshot),
        ("purged", status.purged),
    ];
    for (kind, index) in indices {
        ConstGauge::new(as_i64(index.0)).encode(family.encode_family(&[("kind", kind)])?)?;
    }
    let mut family = encoder.encode_descriptor(
        "tessera_raft_replication_lag_entries",
        "Entries a follower lacks, on the leader",
        None,
        MetricType::Gauge,
    )?;
    for (id, follower) in &status.followers {
        let peer = id.to_string();
        ConstGauge::new(as_i64(follower.lag)).encode(family.encode_family(&[("peer", peer.as_str())])?)?;
    }
    Ok(())
}

fn encode_syncs(encoder: &mut DescriptorEncoder, syncs: &SyncHistogram) -> std::fmt::Result {
    let bounds = SYNC_BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(syncs.buckets).collect();
    let mut metric = encoder.encode_descriptor(
        "tessera_raft_fsync_duration_seconds",
        "Duration of synced writes of the store",
        None,
        MetricType::Histogram,
    )?;
    metric.encode_histogram::<NoLabelSet>(syncs.sum.as_secs_f64(), syncs.count, &buckets, None)?;
    let requests = ConstCounter::new(syncs.requests);
    let metric = encoder.encode_descriptor(
        "tessera_raft_fsync_requests",
        "Requests made durable; divided by the count of synced writes, the average group",
        None,
        MetricType::Counter,
    )?;
    requests.encode(metric)
}

fn gauge<N>(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: N) -> std::fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn as_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
