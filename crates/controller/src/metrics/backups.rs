//! The metrics of the backups that a leader saves.

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tessera_metrics::declare::Number;
use tessera_metrics::{Counters, table};

use super::Metrics;

#[derive(Debug)]
pub(super) struct BackupMeters {
    saved: Counters<1>,
    interval: Number,
    newest: Number,
    bytes: Gauge,
    took: Number,
}

impl BackupMeters {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            saved: table::BACKUPS.by_label(registry),
            interval: table::BACKUP_INTERVAL.by_label_numbers(registry).of([]),
            newest: table::BACKUP_NEWEST.by_label_numbers(registry).of([]),
            bytes: table::BACKUP_SIZE.register(registry),
            took: table::BACKUP_DURATION.by_label_numbers(registry).of([]),
        }
    }
}

impl Metrics {
    /// Records the interval at which this member saves backups when it leads; `None`: it saves none.
    pub(crate) fn backups_are_due(&self, interval: Option<Duration>) {
        self.backups.interval.set(interval.unwrap_or_default().as_secs_f64());
    }

    /// The newest backup was taken then.
    pub(crate) fn backup_is_from(&self, taken_at_ms: u64) {
        self.backups.newest.set(Duration::from_millis(taken_at_ms).as_secs_f64());
    }

    pub(crate) fn backup_saved(&self, bytes: u64, took: Duration) {
        self.backups.saved.of(["saved"]).inc();
        self.backups.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.backups.took.set(took.as_secs_f64());
    }

    pub(crate) fn backup_failed(&self) {
        self.backups.saved.of(["failed"]).inc();
    }

    /// This member leads no more: another one tells.
    pub(crate) fn backups_are_elsewhere(&self) {
        self.backups.newest.set(0.0);
    }
}
