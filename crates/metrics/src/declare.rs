//! Declarations of metrics, and what they become: registered families to count in. What is only looked up when
//! Prometheus asks is written by [`Scrape`](crate::Scrape).

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use crate::series::{Ending, Series};

/// The publisher of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Member,
    Agent,
    /// Members and agents.
    Every,
    /// Members, on a page of its own that tells job by job.
    JobsPage,
}

/// The type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, but for restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word of the text formats.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Last words of names that are units, as the text formats have them, and how documents show them.
const UNITS: [(&str, &str); 9] = [
    ("seconds", "seconds"),
    ("bytes", "bytes"),
    ("ratio", "ratio"),
    ("tflops", "TFLOPS"),
    ("celsius", "°C"),
    ("watts", "watts"),
    ("joules", "joules"),
    ("entries", "entries"),
    ("blocks", "blocks"),
];

/// All that there is to say of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// Its name in Prometheus' text format and in queries; that of a counter ends with `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// Bounds of its buckets, if it is a histogram.
    pub bounds: &'static [f64],
    /// The process that publishes the metric.
    pub of: Process,
    /// The meaning of the metric, in one sentence without its full stop.
    pub help: &'static str,
}

impl Declaration {
    /// Returns whether the metric is on the page of a process.
    #[must_use]
    pub fn is_of(&self, process: Process) -> bool {
        self.of == process || (self.of == Process::Every && process != Process::JobsPage)
    }

    /// Its name in OpenMetrics, which adds `_total` to samples of counters itself.
    #[must_use]
    pub fn family(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }

    /// Its unit, which is the last word of its name: that in the text format, and that for people.
    #[must_use]
    pub fn unit(&self) -> Option<(&'static str, &'static str)> {
        let last = self.family().rsplit('_').next()?;
        UNITS.into_iter().find(|(word, _)| *word == last && self.family() != "tessera_blocks")
    }

    /// The name without the unit, and the unit.
    pub(crate) fn parts(&self) -> (&'static str, Option<Unit>) {
        match self.unit() {
            Some((unit, _)) => {
                let stem = self.family().strip_suffix(unit).and_then(|stem| stem.strip_suffix('_'));
                (stem.unwrap_or(self.family()), Some(Unit::Other(unit.to_owned())))
            }
            None => (self.family(), None),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry, metric: impl prometheus_client::registry::Metric) {
        match self.parts() {
            (stem, Some(unit)) => registry.register_with_unit(stem, self.help, unit, metric),
            (name, None) => registry.register(name, self.help, metric),
        }
    }
}

/// Marks a counter.
#[derive(Debug)]
pub enum CounterKind {}
/// Marks a gauge.
#[derive(Debug)]
pub enum GaugeKind {}
/// Marks a histogram.
#[derive(Debug)]
pub enum HistogramKind {}

/// A declared metric with `N` labels.
#[derive(Debug)]
pub struct Metric<K, const N: usize> {
    pub declaration: Declaration,
    pub(crate) labels: [&'static str; N],
    kind: PhantomData<fn() -> K>,
}

impl<K, const N: usize> Metric<K, N> {
    pub(crate) const fn new(declaration: Declaration, labels: [&'static str; N]) -> Self {
        Self { declaration, labels, kind: PhantomData }
    }

    pub(crate) fn values(&self, values: [&str; N]) -> Labels<N> {
        Labels { names: self.labels, values: values.map(str::to_owned) }
    }
}

/// The labels of one series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels<const N: usize> {
    names: [&'static str; N],
    values: [String; N],
}

impl<const N: usize> Labels<N> {
    /// The value of a label; `None`: it is none of them.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let place = self.names.iter().position(|known| *known == name)?;
        Some(&self.values[place])
    }
}

impl<const N: usize> EncodeLabelSet for Labels<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for pair in self.names.iter().zip(&self.values) {
            let (name, value) = (*pair.0, pair.1.as_str());
            prometheus_client::encoding::EncodeLabel::encode(&(name, value), encoder.encode_label())?;
        }
        Ok(())
    }
}

/// A counter of what need not be whole.
pub type Sum = Counter<f64, AtomicU64>;

/// A gauge of a number that need not be whole.
pub type Number = Gauge<f64, AtomicU64>;

impl Metric<CounterKind, 0> {
    pub fn register(&'static self, registry: &mut Registry) -> Counter {
        let counter = Counter::default();
        self.register_as(registry, &counter);
        counter
    }

    /// Registers a counter that was made before.
    pub fn register_as(&'static self, registry: &mut Registry, counter: &Counter) {
        self.declaration.register(registry, counter.clone());
    }

    /// Registers a count that does not change.
    pub fn register_value(&'static self, registry: &mut Registry, count: u64) {
        self.declaration.register(registry, ConstCounter::new(count));
    }
}

impl<const N: usize> Metric<CounterKind, N> {
    /// Registers it, to be counted by labels.
    pub fn by_label(&'static self, registry: &mut Registry) -> Counters<N> {
        let counters = self.unregistered();
        counters.register(registry);
        counters
    }

    /// The same for sums that need not be whole.
    pub fn by_label_numbers(&'static self, registry: &mut Registry) -> Counters<N, Sum> {
        let counters = Counters { metric: self, series: Series::default() };
        self.declaration.register(registry, counters.series.clone());
        counters
    }

    /// The same, to be registered later.
    #[must_use]
    pub fn unregistered(&'static self) -> Counters<N> {
        Counters { metric: self, series: Series::default() }
    }
}

/// A counter by labels. Clones count together.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize, C = Counter> {
    metric: &'static Metric<CounterKind, N>,
    series: Series<N, C>,
}

impl<const N: usize> Counters<N> {
    /// Registers what was made unregistered.
    pub fn register(&self, registry: &mut Registry) {
        self.metric.declaration.register(registry, self.series.clone());
    }
}

impl<const N: usize, C: Clone + Default> Counters<N, C> {
    #[must_use]
    pub fn of(&self, values: [&str; N]) -> C {
        self.series.of(self.metric.values(values))
    }
}

impl<const N: usize, C: fmt::Debug + Send + Sync> Ending for Counters<N, C> {
    fn keep(&self, label: &str, is_there: &dyn Fn(&str) -> bool) {
        self.series.keep(label, is_there);
    }
}

impl Metric<GaugeKind, 0> {
    pub fn register(&'static self, registry: &mut Registry) -> Gauge {
        let gauge = Gauge::default();
        self.declaration.register(registry, gauge.clone());
        gauge
    }

    /// Registers a value that does not change.
    pub fn register_value(&'static self, registry: &mut Registry, value: f64) {
        self.declaration.register(registry, ConstGauge::new(value));
    }
}

impl<const N: usize> Metric<GaugeKind, N> {
    /// Registers it, to be set by labels.
    pub fn by_label(&'static self, registry: &mut Registry) -> Gauges<N> {
        let gauges = self.unregistered();
        gauges.register(registry);
        gauges
    }

    /// The same for numbers that need not be whole.
    pub fn by_label_numbers(&'static self, registry: &mut Registry) -> Gauges<N, Number> {
        let gauges = Gauges { metric: self, series: Series::default() };
        self.declaration.register(registry, gauges.series.clone());
        gauges
    }

    /// A gauge by labels, to be registered later.
    #[must_use]
    pub fn unregistered(&'static self) -> Gauges<N> {
        Gauges { metric: self, series: Series::default() }
    }
}

/// A gauge by labels. Clones are the same gauge.
#[derive(Clone, Debug)]
pub struct Gauges<const N: usize, G = Gauge> {
    metric: &'static Metric<GaugeKind, N>,
    series: Series<N, G>,
}

impl<const N: usize> Gauges<N> {
    /// Registers what was made unregistered.
    pub fn register(&self, registry: &mut Registry) {
        self.metric.declaration.register(registry, self.series.clone());
    }
}

impl<const N: usize, G: Clone + Default> Gauges<N, G> {
    #[must_use]
    pub fn of(&self, values: [&str; N]) -> G {
        self.series.of(self.metric.values(values))
    }

    /// Forgets all series.
    pub fn clear(&self) {
        self.series.retain(|_| false);
    }
}
