//! What Prometheus sees of a member. Counters and histograms are filled as things happen, by the leader; what can be
//! looked up in the ledger is looked up when Prometheus asks (`metrics/scrape.rs`). No series is per node or per job,
//! so the page stays small whatever the pool's size.

mod backups;
mod scrape;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tessera_actor::ActorMeters;
use tessera_placement::Fragmentation;

use self::backups::BackupMeters;
use crate::telemetry::Telemetry;
use crate::view::LedgerView;

/// Bounds in seconds for what should take less than a tenth of a second.
const QUICK: [f64; 11] = [0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0];
/// Bounds in seconds for how long jobs wait.
const WAITS: [f64; 12] = [0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueue {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQueueAndOutcome {
    queue: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResource {
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

/// Everything this process shows to Prometheus.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    actors: ActorMeters,
    submitted: Family<ByQueue, Counter>,
    finished: Family<ByQueueAndOutcome, Counter>,
    waits: Family<ByQueue, Histogram, fn() -> Histogram>,
    preemptions: Family<ByCause, Counter>,
    migrations: Family<ByOutcome, Counter>,
    placement: Histogram,
    plan_parts: Family<ByOutcome, Counter>,
    leases: Counter,
    leases_withheld: Family<ByCause, Counter>,
    leases_expired: Counter,
    mass_loss: Gauge,
    silent: Gauge,
    quarantines: Counter,
    sessions_opened: Counter,
    sessions_ended: Family<ByCause, Counter>,
    fragmentation: Family<ByResource, Gauge<f64, AtomicU64>>,
    disk_free: Gauge,
    disk_reserve: Gauge,
    backups: BackupMeters,
}

impl Metrics {
    /// The metrics of a process, registered.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            actors: ActorMeters::default(),
            submitted: Family::default(),
            finished: Family::default(),
            waits: Family::new_with_constructor(|| Histogram::new(WAITS)),
            preemptions: Family::default(),
            migrations: Family::default(),
            placement: Histogram::new(QUICK),
            plan_parts: Family::default(),
            leases: Counter::default(),
            leases_withheld: Family::default(),
            leases_expired: Counter::default(),
            mass_loss: Gauge::default(),
            silent: Gauge::default(),
            quarantines: Counter::default(),
            sessions_opened: Counter::default(),
            sessions_ended: Family::default(),
            fragmentation: Family::default(),
            disk_free: Gauge::default(),
            disk_reserve: Gauge::default(),
            backups: BackupMeters::default(),
        };
        metrics.register();
        Arc::new(metrics)
    }

    fn register(&self) {
        let mut registry = self.registry();
        let registry = &mut *registry;
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("tessera_build", "Release of this process", version);
        self.actors.register(registry);
        registry.register("tessera_jobs_submitted", "Jobs submitted", self.submitted.clone());
        registry.register("tessera_jobs_finished", "Jobs that came to an end", self.finished.clone());
        registry.register("tessera_job_wait_seconds", "From submission to the first grant", self.waits.clone());
        registry.register("tessera_preemptions", "Jobs suspended to make room", self.preemptions.clone());
        registry.register("tessera_migrations", "Moves of jobs between cards that ended", self.migrations.clone());
        registry.register("tessera_placement_duration_seconds", "Time to make one plan", self.placement.clone());
        registry.register("tessera_plan_parts", "Parts of plans by what the ledger said", self.plan_parts.clone());
        registry.register(
            "tessera_fragmentation_ratio",
            "Part of what is free that the average request of those seen cannot use where it is; the leader tells",
            self.fragmentation.clone(),
        );
        registry.register("tessera_leases_granted", "Leases granted to nodes", self.leases.clone());
        registry.register(
            "tessera_leases_withheld",
            "Heartbeats not answered by a lease",
            self.leases_withheld.clone(),
        );
        registry.register("tessera_leases_expired", "Nodes declared lost", self.leases_expired.clone());
        registry.register(
            "tessera_mass_loss_suspected",
            "1 while so many nodes are silent that the leader suspects itself and declares none of them lost",
            self.mass_loss.clone(),
        );
        registry.register("tessera_nodes_silent", "Nodes that the leader has not heard in time", self.silent.clone());
        registry.register(
            "tessera_quarantines",
            "Workers whose stop could not be confirmed; an operator must decide",
            self.quarantines.clone(),
        );
        registry.register("tessera_sessions_opened", "Sessions of agents that began", self.sessions_opened.clone());
        registry.register("tessera_sessions_ended", "Sessions of agents that ended", self.sessions_ended.clone());
        registry.register("tessera_disk_free_bytes", "Bytes free on this member's disk", self.disk_free.clone());
        registry.register("tessera_disk_reserve_bytes", "Bytes that must stay free", self.disk_reserve.clone());
        self.backups.register(registry);
    }

    /// Shows what can be looked up in the ledger and of the agents.
    pub(crate) fn show(&self, view: LedgerView, telemetry: Telemetry) {
        self.registry().register_collector(Box::new(scrape::Scraped::new(view, telemetry)));
    }

    /// The registry, to add to it. Names begin with `tessera_`; it adds no prefix.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        // Registering and encoding leave the registry whole even when they panic.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page, in OpenMetrics text.
    ///
    /// # Errors
    /// When a metric cannot be written, which is a bug of that metric.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry())?;
        Ok(page)
    }

    /// The metrics of mailboxes.
    #[must_use]
    pub const fn actors(&self) -> &ActorMeters {
        &self.actors
    }

    pub(crate) fn job_submitted(&self, queue: &str) {
        self.submitted.get_or_create(&ByQueue { queue: queue.to_owned() }).inc();
    }

    pub(crate) fn job_finished(&self, queue: &str, outcome: &'static str) {
        self.finished.get_or_create(&ByQueueAndOutcome { queue: queue.to_owned(), outcome }).inc();
    }

    pub(crate) fn job_waited(&self, queue: &str, waited: Duration) {
        self.waits.get_or_create(&ByQueue { queue: queue.to_owned() }).observe(waited.as_secs_f64());
    }

    pub(crate) fn preempted(&self, cause: &'static str) {
        self.preemptions.get_or_create(&ByCause { cause }).inc();
    }

    pub(crate) fn migrated(&self, outcome: &'static str) {
        self.migrations.get_or_create(&ByOutcome { outcome }).inc();
    }

    pub(crate) fn planned(&self, took: Duration) {
        self.placement.observe(took.as_secs_f64());
    }

    pub(crate) fn plan_answered(&self, accepted: u64, rejected: u64) {
        self.plan_parts.get_or_create(&ByOutcome { outcome: "accepted" }).inc_by(accepted);
        self.plan_parts.get_or_create(&ByOutcome { outcome: "rejected" }).inc_by(rejected);
    }

    pub(crate) fn lease_granted(&self) {
        self.leases.inc();
    }

    pub(crate) fn lease_withheld(&self, cause: &'static str) {
        self.leases_withheld.get_or_create(&ByCause { cause }).inc();
    }

    pub(crate) fn lease_expired(&self) {
        self.leases_expired.inc();
    }

    pub(crate) fn nodes_silent(&self, nodes: usize, suspected: bool) {
        self.silent.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        self.mass_loss.set(i64::from(suspected));
    }

    pub(crate) fn quarantined(&self) {
        self.quarantines.inc();
    }

    pub(crate) fn session_opened(&self) {
        self.sessions_opened.inc();
    }

    pub(crate) fn session_ended(&self, cause: &'static str) {
        self.sessions_ended.get_or_create(&ByCause { cause }).inc();
    }

    /// What of the free room cannot be used; `None`: this member does not place.
    pub(crate) fn fragmented(&self, seen: Option<Fragmentation>) {
        let Some(seen) = seen else { return self.fragmentation.clear() };
        let shares = [
            ("compute", seen.unusable_blocks, seen.free_blocks),
            ("memory", seen.unusable_memory.0, seen.free_memory.0),
        ];
        for (resource, unusable, free) in shares {
            // Thousandths, so that what is counted exactly is divided exactly.
            let thousandths = (u128::from(unusable) * 1000).checked_div(u128::from(free)).unwrap_or(0);
            let ratio = f64::from(u32::try_from(thousandths).unwrap_or(1000)) / 1000.0;
            self.fragmentation.get_or_create(&ByResource { resource }).set(ratio);
        }
    }

    pub(crate) fn disk(&self, free_bytes: Option<u64>, reserve_bytes: u64) {
        let as_gauge = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.disk_reserve.set(as_gauge(reserve_bytes));
        if let Some(free_bytes) = free_bytes {
            self.disk_free.set(as_gauge(free_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_what_happened() {
        let metrics = Metrics::new();
        metrics.job_submitted("red");
        metrics.plan_answered(3, 1);
        metrics.nodes_silent(2, true);
        let (free_blocks, unusable_blocks) = (400, 100);
        metrics.fragmented(Some(Fragmentation { free_blocks, unusable_blocks, ..Fragmentation::default() }));
        let page = metrics.encode().expect("every metric can be written");
        for line in [
            "tessera_jobs_submitted_total{queue=\"red\"} 1",
            "tessera_plan_parts_total{outcome=\"rejected\"} 1",
            "tessera_mass_loss_suspected 1",
            "tessera_fragmentation_ratio{resource=\"compute\"} 0.25",
            "tessera_fragmentation_ratio{resource=\"memory\"} 0.0",
            "tessera_build_info{version=",
        ] {
            assert!(page.contains(line), "{line} is not in:\n{page}");
        }
        metrics.fragmented(None);
        assert!(!metrics.encode().expect("every metric can be written").contains("tessera_fragmentation_ratio{"));
    }
}
