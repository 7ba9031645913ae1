//! Meters of watches.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tessera_metrics::{Counters, Gauges, Histograms, table};

/// Metrics of watches. Clones count together.
#[derive(Clone, Debug)]
pub struct WatchMeters {
    streams: Gauges<1>,
    cut: Counters<2>,
    lag: Histograms<1>,
}

impl Default for WatchMeters {
    fn default() -> Self {
        Self {
            streams: table::WATCH_STREAMS.unregistered(),
            cut: table::WATCHES_CUT.unregistered(),
            lag: table::WATCH_LAG.unregistered(),
        }
    }
}

impl WatchMeters {
    /// Adds the meters to a registry without prefix.
    pub fn register(&self, registry: &mut Registry) {
        self.streams.register(registry);
        self.cut.register(registry);
        self.lag.register(registry);
    }

    /// Counts a watch as open until what is answered is dropped.
    pub(super) fn open(&self, watch: &'static str) -> OpenWatch {
        let streams = self.streams.of([watch]);
        streams.inc();
        OpenWatch { streams, lag: self.lag.of([watch]), cut: self.cut.clone(), watch }
    }
}

#[derive(Debug)]
pub(super) struct OpenWatch {
    streams: Gauge,
    lag: Histogram,
    cut: Counters<2>,
    watch: &'static str,
}

impl OpenWatch {
    /// The number of other open watches of this kind.
    pub(super) fn others(&self) -> u32 {
        u32::try_from(self.streams.get() - 1).unwrap_or(0)
    }

    /// Counts the watch as cut.
    pub(super) fn cut(&self, reason: &'static str) {
        self.cut.of([self.watch, reason]).inc();
    }

    /// The watch goes on, so many entries behind what this member has applied.
    pub(super) fn behind(&self, entries: u64) {
        self.lag.observe(entries as f64);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.streams.dec();
    }
}
