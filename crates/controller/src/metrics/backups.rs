//! What Prometheus sees of the backups that a leader saves.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BySuccess {
    outcome: &'static str,
}

/// Meters of backups.
#[derive(Debug, Default)]
pub(super) struct BackupMeters {
    saved: Family<BySuccess, Counter>,
    interval: Gauge<f64, AtomicU64>,
    newest: Gauge<f64, AtomicU64>,
    bytes: Gauge,
    took: Gauge<f64, AtomicU64>,
}

impl BackupMeters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tessera_backups",
            "Backups that this member tried to save as the leader",
            self.saved.clone(),
        );
        registry.register(
            "tessera_backup_interval_seconds",
            "Time from one backup to the next as this member is configured; 0: it saves none",
            self.interval.clone(),
        );
        registry.register(
            "tessera_backup_newest_timestamp_seconds",
            "When the newest backup in the folder was taken; the leader tells",
            self.newest.clone(),
        );
        registry.register(
            "tessera_backup_size_bytes",
            "Size of the newest backup that this member saved",
            self.bytes.clone(),
        );
        registry.register(
            "tessera_backup_duration_seconds",
            "How long it took to save; it rests between pieces",
            self.took.clone(),
        );
    }
}

impl Metrics {
    /// How often this member saves a backup when it leads.
    pub(crate) fn backups_are_due(&self, interval: Option<Duration>) {
        self.backups.interval.set(interval.unwrap_or_default().as_secs_f64());
    }

    /// The newest backup was taken then.
    pub(crate) fn backup_is_from(&self, taken_at_ms: u64) {
        self.backups.newest.set(Duration::from_millis(taken_at_ms).as_secs_f64());
    }

    pub(crate) fn backup_saved(&self, bytes: u64, took: Duration) {
        self.backups.saved.get_or_create(&BySuccess { outcome: "saved" }).inc();
        self.backups.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.backups.took.set(took.as_secs_f64());
    }

    pub(crate) fn backup_failed(&self) {
        self.backups.saved.get_or_create(&BySuccess { outcome: "failed" }).inc();
    }

    /// This member leads no more: another one tells.
    pub(crate) fn backups_are_elsewhere(&self) {
        self.backups.newest.set(0.0);
    }
}
