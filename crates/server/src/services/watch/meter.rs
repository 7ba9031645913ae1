//! Meters of watches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    watch: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    watch: &'static str,
    reason: &'static str,
}

/// What is counted of watches. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct WatchMeters {
    streams: Family<WatchLabels, Gauge>,
    cut: Family<CutLabels, Counter>,
}

impl WatchMeters {
    /// Adds the meters to a registry without prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tessera_watch_streams", "Watches that are open on this member", self.streams.clone());
        registry.register("tessera_watches_cut", "Watches that this member ended, by reason", self.cut.clone());
    }

    /// Counts a watch as open until what is answered is dropped.
    pub(super) fn open(&self, watch: &'static str) -> OpenWatch {
        let streams = self.streams.get_or_create_owned(&WatchLabels { watch });
        streams.inc();
        OpenWatch { streams, cut: self.cut.clone(), watch }
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(super) struct OpenWatch {
    streams: Gauge,
    cut: Family<CutLabels, Counter>,
    watch: &'static str,
}

impl OpenWatch {
    /// Counts the watch as cut.
    pub(super) fn cut(&self, reason: &'static str) {
        self.cut.get_or_create_owned(&CutLabels { watch: self.watch, reason }).inc();
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.streams.dec();
    }
}
