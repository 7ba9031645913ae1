//! Metrics of consensus for Prometheus, under the names that operators' dashboards and alerts use.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tessera_metrics::{Ending, Histograms, Scrape, table};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ids::MemberId;
use crate::shared::Shared;
use crate::status::{Role, Status};

/// Metrics that are counted as events happen.
#[derive(Debug)]
pub(crate) struct Meters {
    propose: Histogram,
    apply: Histogram,
    round_trips: Histograms<1>,
    leader_changes: Counter,
    leases_given_up: Counter,
    terms_refused: Counter,
    hash_mismatches: Counter,
    snapshot_bytes: AtomicU64,
    snapshot_at: Mutex<Option<Instant>>,
}

impl Meters {
    pub(crate) fn new() -> Self {
        Meters {
            propose: table::RAFT_PROPOSE.unregistered_alone(),
            apply: table::RAFT_APPLY.unregistered_alone(),
            round_trips: table::RAFT_ROUND_TRIP.unregistered(),
            leader_changes: Counter::default(),
            leases_given_up: Counter::default(),
            terms_refused: Counter::default(),
            hash_mismatches: Counter::default(),
            snapshot_bytes: AtomicU64::new(0),
            snapshot_at: Mutex::new(None),
        }
    }

    /// Another member answered a question that needs nothing but an answer.
    pub(crate) fn answered(&self, peer: MemberId, took: Duration) {
        self.round_trips.of([&peer.to_string()]).observe(took.as_secs_f64());
    }

    /// Ends the series of members that are gone.
    pub(crate) fn keep_peers(&self, members: &BTreeSet<u64>) {
        let is_there = |peer: &str| peer.parse().is_ok_and(|id| members.contains(&id));
        self.round_trips.keep("peer", &is_there);
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

    pub(crate) fn lease_given_up(&self) {
        self.leases_given_up.inc();
    }

    pub(crate) fn term_refused(&self) {
        self.terms_refused.inc();
    }

    pub(crate) fn hash_mismatch(&self) {
        self.hash_mismatches.inc();
    }

    /// The number of times that members were found to differ.
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
    table::RAFT_PROPOSE.register_as(registry, &meters.propose);
    table::RAFT_APPLY.register_as(registry, &meters.apply);
    meters.round_trips.register(registry);
    table::RAFT_LEADER_CHANGES.register_as(registry, &meters.leader_changes);
    table::RAFT_LEASES_GIVEN_UP.register_as(registry, &meters.leases_given_up);
    table::RAFT_TERMS_REFUSED.register_as(registry, &meters.terms_refused);
    table::STATE_HASH_MISMATCH.register_as(registry, &meters.hash_mismatches);
    registry.register_collector(Box::new(Scraped { shared: Arc::clone(shared), status }));
}

/// Metrics whose values are read when the registry is encoded: for a scrape by Prometheus, or for OTLP.
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
    fn encode(&self, encoder: DescriptorEncoder) -> std::fmt::Result {
        let mut scrape = Scrape::new(encoder);
        let status = self.status.borrow().clone();
        encode_status(&mut scrape, &status)?;
        if let Some(offset_ms) = self.shared.time.status().offset_ms {
            scrape.gauge(&table::CLOCK_OFFSET, offset_ms as f64 / 1e3)?;
        }
        let meters = &self.shared.meters;
        if let Some(age) = meters.snapshot_age() {
            scrape.gauge(&table::RAFT_SNAPSHOT_AGE, age.as_secs_f64())?;
        }
        scrape.gauge(&table::RAFT_SNAPSHOT_SIZE, as_i64(meters.snapshot_bytes.load(Ordering::Relaxed)))?;
        let store = self.shared.store.status();
        scrape.gauge(&table::STORE_SIZE, as_i64(store.disk_bytes))?;
        scrape.histogram(&table::RAFT_FSYNC, store.syncs.sum, &store.syncs.buckets)?;
        scrape.counter(&table::RAFT_FSYNC_REQUESTS, store.syncs.requests)
    }
}

fn encode_status(scrape: &mut Scrape<'_>, status: &Status) -> std::fmt::Result {
    let leads = i64::from(status.role == Role::Leader && status.quorum_fresh);
    scrape.gauge(&table::RAFT_IS_LEADER, leads)?;
    scrape.gauge(&table::RAFT_TERM, as_i64(status.term.0))?;
    scrape.gauge(&table::RAFT_VOTERS, as_i64(status.voters.len() as u64))?;
    scrape.gauge(&table::RAFT_LEARNERS, as_i64(status.learners.len() as u64))?;
    let indices = [
        ("last", status.last),
        ("committed", status.committed),
        ("applied", status.applied),
        ("snapshot", status.snapshot),
        ("purged", status.purged),
    ];
    scrape.gauges(&table::RAFT_LOG_INDEX, indices.map(|(kind, index)| ([kind], as_i64(index.0))))?;
    let peers: Vec<(String, u64)> = status.followers.iter().map(|(id, peer)| (id.to_string(), peer.lag)).collect();
    scrape.gauges(&table::RAFT_LAG, peers.iter().map(|(peer, lag)| ([peer.as_str()], as_i64(*lag))))
}

fn as_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use tessera_store::SYNC_BOUNDS_MICROS;

    use super::*;

    #[test]
    fn a_member_that_was_removed_is_shown_no_more() {
        let (meters, mut registry) = (Meters::new(), Registry::default());
        meters.round_trips.register(&mut registry);
        (1..=3).for_each(|id| meters.answered(MemberId(id), Duration::from_millis(1)));
        meters.keep_peers(&BTreeSet::from([1, 3]));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("it can be written");
        let is_shown = |id: u64| page.contains(&format!("peer=\"{}\"", MemberId(id)));
        assert_eq!([1, 2, 3].map(is_shown), [true, false, true], "{page}");
    }

    #[test]
    fn the_store_counts_by_the_bounds_that_are_shown() {
        let shown = table::RAFT_FSYNC.declaration.bounds.iter().map(|seconds| seconds * 1e6);
        assert!(shown.eq(SYNC_BOUNDS_MICROS.iter().map(|micros| *micros as f64)));
    }
}
