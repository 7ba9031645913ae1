//! Declared histograms, to be registered and observed.

use std::time::{Duration, SystemTime};

use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::MetricConstructor;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::declare::{HistogramKind, Metric};
use crate::series::{Ending, Series};

/// Makes the histograms of a metric.
#[derive(Clone, Copy, Debug)]
pub struct WithBounds(&'static [f64]);

impl MetricConstructor<Histogram> for WithBounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl MetricConstructor<HistogramWithExemplars<TraceLabel>> for WithBounds {
    fn new_metric(&self) -> HistogramWithExemplars<TraceLabel> {
        HistogramWithExemplars::new(self.0.iter().copied())
    }
}

impl Metric<HistogramKind, 0> {
    pub fn register(&'static self, registry: &mut Registry) -> Histogram {
        let histogram = self.unregistered_alone();
        self.declaration.register(registry, histogram.clone());
        histogram
    }

    /// The same, to be registered later with [`Self::register_as`].
    #[must_use]
    pub fn unregistered_alone(&'static self) -> Histogram {
        Histogram::new(self.declaration.bounds.iter().copied())
    }

    /// Registers a histogram that was made before.
    pub fn register_as(&'static self, registry: &mut Registry, histogram: &Histogram) {
        self.declaration.register(registry, histogram.clone());
    }
}

impl<const N: usize> Metric<HistogramKind, N> {
    /// A histogram by labels, to be registered later.
    #[must_use]
    pub fn unregistered(&'static self) -> Histograms<N> {
        let series = Series::made_by(WithBounds(self.declaration.bounds));
        Histograms { metric: self, series }
    }

    /// Registers it, to be observed by labels, each observation with the trace that it belongs to.
    pub fn traced(&'static self, registry: &mut Registry) -> TracedHistograms<N> {
        let traced = self.traced_unregistered();
        traced.register(registry);
        traced
    }

    /// The same, to be registered later.
    #[must_use]
    pub fn traced_unregistered(&'static self) -> TracedHistograms<N> {
        let series = Series::made_by(WithBounds(self.declaration.bounds));
        TracedHistograms { metric: self, series }
    }
}

/// A histogram by labels. Clones count together.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize> {
    metric: &'static Metric<HistogramKind, N>,
    series: Series<N, Histogram, WithBounds>,
}

impl<const N: usize> Histograms<N> {
    pub fn register(&self, registry: &mut Registry) {
        self.metric.declaration.register(registry, self.series.clone());
    }

    #[must_use]
    pub fn of(&self, values: [&str; N]) -> Histogram {
        self.series.of(self.metric.values(values))
    }
}

impl<const N: usize> Ending for Histograms<N> {
    fn keep(&self, label: &str, is_there: &dyn Fn(&str) -> bool) {
        self.series.keep(label, is_there);
    }
}

/// Names the trace of an observation.
pub type TraceLabel = [(&'static str, String); 1];
type Traced = HistogramWithExemplars<TraceLabel>;

/// A histogram by labels that remembers, of each bucket, the trace of the newest observation for which one is known.
/// Readers that ask for OpenMetrics get them as exemplars. Clones count together.
#[derive(Clone, Debug)]
pub struct TracedHistograms<const N: usize> {
    metric: &'static Metric<HistogramKind, N>,
    series: Series<N, Traced, WithBounds>,
}

impl<const N: usize> TracedHistograms<N> {
    pub fn register(&self, registry: &mut Registry) {
        self.metric.declaration.register(registry, self.series.clone());
    }

    #[must_use]
    pub fn of(&self, values: [&str; N]) -> TracedHistogram {
        TracedHistogram(self.series.of(self.metric.values(values)))
    }
}

impl<const N: usize> Ending for TracedHistograms<N> {
    fn keep(&self, label: &str, is_there: &dyn Fn(&str) -> bool) {
        self.series.keep(label, is_there);
    }
}

/// One series of [`TracedHistograms`].
#[derive(Clone, Debug)]
pub struct TracedHistogram(Traced);

impl TracedHistogram {
    /// Adds a duration; `trace` is the trace's id in hexadecimal digits, where it is known.
    pub fn observe(&self, took: Duration, trace: Option<String>) {
        let at = trace.is_some().then(SystemTime::now);
        self.0.observe(took.as_secs_f64(), trace.map(|trace| [("trace_id", trace)]), at);
    }
}
