//! The metrics of a member for Prometheus. Counters and histograms are filled as things happen, by the leader; what can
//! be looked up in the ledger is looked up when Prometheus asks (`metrics/scrape.rs`). The table in `tessera-metrics`
//! lists all of them.

mod backups;
pub mod jobs;
mod scrape;
mod tally;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tessera_actor::ActorMeters;
use tessera_explain::WaitCode;
use tessera_ledger::State;
use tessera_metrics::declare::Number;
use tessera_metrics::{Counters, Gauges, QueueLabels, TracedHistograms, revision, table};
use tessera_placement::Fragmentation;
use tessera_usage::Keeper;

use self::backups::BackupMeters;
use crate::telemetry::Telemetry;
use crate::view::LedgerView;

/// Numbers of waiting jobs by queue and wait code.
pub(crate) type Waits = BTreeMap<(String, WaitCode), u64>;

/// Everything this process shows to Prometheus.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    actors: ActorMeters,
    queues: Arc<QueueLabels>,
    /// The waiting jobs by wait code, while this member places.
    pending: Arc<Mutex<Option<Waits>>>,
    submitted: Counters<1>,
    finished: Counters<2>,
    waits: TracedHistograms<1>,
    preemptions: Counters<1>,
    migrations: Counters<1>,
    migration_duration: Histogram,
    placement: Histogram,
    candidates: Histogram,
    plan_parts: Counters<1>,
    leases: Counter,
    leases_withheld: Counters<1>,
    leases_expired: Counter,
    mass_loss: Gauge,
    silent: Gauge,
    quarantines: Counter,
    checkpoints_skipped: Counter,
    fencings: Counters<1>,
    sessions_opened: Counter,
    sessions_ended: Counters<1>,
    fragmentation: Gauges<1, Number>,
    disk_free: Gauge,
    disk_reserve: Gauge,
    backups: BackupMeters,
}

impl Metrics {
    /// The metrics of a process, registered.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registered = Registry::default();
        let registry = &mut registered;
        table::BUILD_INFO.by_label(registry).of([env!("CARGO_PKG_VERSION"), revision::get()]).set(1);
        let actors = ActorMeters::default();
        actors.register(registry);
        let mut queues = QueueLabels::default();
        let metrics = Self {
            actors,
            pending: Arc::default(),
            submitted: queues.ending(table::JOBS_SUBMITTED.by_label(registry)),
            finished: queues.ending(table::JOBS_FINISHED.by_label(registry)),
            waits: queues.ending(table::JOB_WAIT.traced(registry)),
            queues: Arc::new(queues),
            preemptions: table::PREEMPTIONS.by_label(registry),
            migrations: table::MIGRATIONS.by_label(registry),
            migration_duration: table::MIGRATION_DURATION.register(registry),
            placement: table::PLACEMENT_DURATION.register(registry),
            candidates: table::PLACEMENT_CANDIDATES.register(registry),
            plan_parts: table::PLAN_PARTS.by_label(registry),
            leases: table::LEASES_GRANTED.register(registry),
            leases_withheld: table::LEASES_WITHHELD.by_label(registry),
            leases_expired: table::LEASES_EXPIRED.register(registry),
            mass_loss: table::MASS_LOSS.register(registry),
            silent: table::NODES_SILENT.register(registry),
            quarantines: table::QUARANTINES.register(registry),
            checkpoints_skipped: table::CHECKPOINTS_SKIPPED.register(registry),
            fencings: table::FENCINGS.by_label(registry),
            sessions_opened: table::SESSIONS_OPENED.register(registry),
            sessions_ended: table::SESSIONS_ENDED.by_label(registry),
            fragmentation: table::FRAGMENTATION.by_label_numbers(registry),
            disk_free: table::DISK_FREE.register(registry),
            disk_reserve: table::DISK_RESERVE.register(registry),
            backups: BackupMeters::new(registry),
            registry: Mutex::new(registered),
        };
        metrics.begin_at_zero();
        Arc::new(metrics)
    }

    /// Makes the series of few values that are known: what is counted first is an increase then, and alerts see it.
    fn begin_at_zero(&self) {
        for cause in ["priority", "drain"] {
            let _ = self.preemptions.of([cause]);
        }
        for outcome in ["done", "failed", "overtaken"] {
            let _ = self.migrations.of([outcome]);
        }
        for outcome in ["released", "confirmed", "running"] {
            let _ = self.fencings.of([outcome]);
        }
    }

    /// Shows what can be looked up in the ledger and of the agents.
    pub fn show(&self, view: LedgerView, telemetry: Telemetry, usage: Option<Keeper>) {
        let scraped = scrape::Scraped::new(view, telemetry, usage, Arc::clone(&self.queues), Arc::clone(&self.pending));
        self.registry().register_collector(Box::new(scraped));
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

    #[must_use]
    pub const fn actors(&self) -> &ActorMeters {
        &self.actors
    }

    /// Ends the series of queues that are gone by the state that is counted now.
    pub(crate) fn queues_changed(&self, state: &State) {
        self.queues.keep(|queue| state.queue(queue).is_some());
    }

    pub(crate) fn job_submitted(&self, state: &State, queue: &str) {
        self.submitted.of([label(&self.queues, state, queue)]).inc();
    }

    pub(crate) fn job_finished(&self, state: &State, queue: &str, outcome: &'static str) {
        self.finished.of([label(&self.queues, state, queue), outcome]).inc();
    }

    /// A job got its first allocation; `trace` is the trace of its life, where somebody collects it.
    pub(crate) fn job_waited(&self, state: &State, queue: &str, waited: Duration, trace: Option<String>) {
        self.waits.of([label(&self.queues, state, queue)]).observe(waited, trace);
    }

    pub(crate) fn preempted(&self, cause: &'static str) {
        self.preemptions.of([cause]).inc();
    }

    pub(crate) fn migrated(&self, outcome: &'static str) {
        self.migrations.of([outcome]).inc();
    }

    pub(crate) fn migration_took(&self, took: Duration) {
        self.migration_duration.observe(took.as_secs_f64());
    }

    /// A plan was made, for which so many requests were tried.
    pub(crate) fn planned(&self, took: Duration, tried: u64) {
        self.placement.observe(took.as_secs_f64());
        self.candidates.observe(tried as f64);
    }

    pub(crate) fn plan_answered(&self, accepted: u64, rejected: u64) {
        self.plan_parts.of(["accepted"]).inc_by(accepted);
        self.plan_parts.of(["rejected"]).inc_by(rejected);
    }

    /// Records the waiting jobs by wait code; `None`: this member does not place.
    pub(crate) fn jobs_wait(&self, waits: Option<Waits>) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    pub(crate) fn lease_granted(&self) {
        self.leases.inc();
    }

    pub(crate) fn lease_withheld(&self, cause: &'static str) {
        self.leases_withheld.of([cause]).inc();
    }

    pub(crate) fn lease_expired(&self) {
        self.leases_expired.inc();
    }

    pub(crate) fn nodes_silent(&self, nodes: usize, suspected: bool) {
        self.silent.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        self.mass_loss.set(i64::from(suspected));
    }

    pub(crate) fn checkpoint_skipped(&self) {
        self.checkpoints_skipped.inc();
    }

    pub(crate) fn quarantined(&self) {
        self.quarantines.inc();
    }

    pub(crate) fn fenced(&self, outcome: &'static str) {
        self.fencings.of([outcome]).inc();
    }

    pub(crate) fn session_opened(&self) {
        self.sessions_opened.inc();
    }

    pub(crate) fn session_ended(&self, cause: &'static str) {
        self.sessions_ended.of([cause]).inc();
    }

    /// Records the unusable share of the free room; `None`: this member does not place.
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
            self.fragmentation.of([resource]).set(ratio);
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

/// Returns what a queue is called on the page. Jobs may be known for longer than their queue.
fn label<'a>(queues: &QueueLabels, state: &State, queue: &'a str) -> &'a str {
    queues.of(queue, |queue| state.queue(queue).is_some())
}

#[cfg(test)]
mod size_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_ledger::DEFAULT_QUEUE;

    #[test]
    fn the_page_names_what_happened() {
        let metrics = Metrics::new();
        metrics.job_submitted(&State::new(), DEFAULT_QUEUE);
        metrics.plan_answered(3, 1);
        metrics.nodes_silent(2, true);
        let (free_blocks, unusable_blocks) = (400, 100);
        metrics.fragmented(Some(Fragmentation { free_blocks, unusable_blocks, ..Fragmentation::default() }));
        let page = metrics.encode().expect("every metric can be written");
        for line in [
            "tessera_jobs_submitted_total{queue=\"default\"} 1",
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
