//! The metrics of checkpoints on a node, for Prometheus.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tessera_metrics::{Counters, Gauges, Histograms, table};

use super::tickets::Tickets;

/// An operation on checkpoints.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Save,
    Fetch,
    Copy,
    Remove,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Save, Self::Fetch, Self::Copy, Self::Remove];

    const fn name(self) -> &'static str {
        match self {
            Self::Save => "save",
            Self::Fetch => "fetch",
            Self::Copy => "copy",
            Self::Remove => "remove",
        }
    }
}

/// The metrics of a node's checkpoints. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointMeters {
    kept: Gauges<1>,
    work: Counters<2>,
    took: Histograms<1>,
    saved_bytes: Counter,
}

impl Default for CheckpointMeters {
    fn default() -> Self {
        let work = table::CHECKPOINT_WORK.unregistered();
        let took = table::CHECKPOINT_SECONDS.unregistered();
        for operation in Operation::ALL {
            // There from the beginning, so that the first failure is an increase.
            let _ = (work.of([operation.name(), "failed"]), took.of([operation.name()]));
        }
        Self { kept: table::CHECKPOINTS.unregistered(), work, took, saved_bytes: Counter::default() }
    }
}

impl CheckpointMeters {
    /// Registers the metrics as they are now.
    pub(super) fn register(&self, registry: &mut Registry, tickets: &Tickets) {
        let (here, shared) = tickets.count();
        for (place, count) in [("node", here), ("shared", shared)] {
            self.kept.of([place]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.kept.register(registry);
        self.work.register(registry);
        self.took.register(registry);
        table::CHECKPOINT_SAVED_BYTES.register_as(registry, &self.saved_bytes);
    }

    /// Something was done, or failed, and took so long.
    pub(super) fn done(&self, operation: Operation, well: bool, took: Duration) {
        self.work.of([operation.name(), if well { "done" } else { "failed" }]).inc();
        self.took.of([operation.name()]).observe(took.as_secs_f64());
    }

    /// Counts `bytes` that were saved.
    pub(super) fn saved(&self, bytes: u64) {
        self.saved_bytes.inc_by(bytes);
    }
}
