//! Metrics that are written while Prometheus waits, of what can be looked up.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::declare::{CounterKind, Declaration, GaugeKind, HistogramKind, Metric};

/// Writes metrics while Prometheus waits.
#[derive(Debug)]
pub struct Scrape<'a>(DescriptorEncoder<'a>);

impl<'a> Scrape<'a> {
    #[must_use]
    pub const fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn gauge<V>(&mut self, metric: &'static Metric<GaugeKind, 0>, value: V) -> fmt::Result
    where
        V: EncodeGaugeValue + Copy,
        ConstGauge<V>: EncodeMetric,
    {
        let (stem, unit) = metric.declaration.parts();
        let help = sentence(&metric.declaration);
        let encoder = self.0.encode_descriptor(stem, &help, unit.as_ref(), MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    /// Writes the series of a gauge.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn gauges<'v, V, const N: usize>(
        &mut self,
        metric: &'static Metric<GaugeKind, N>,
        series: impl IntoIterator<Item = ([&'v str; N], V)>,
    ) -> fmt::Result
    where
        V: EncodeGaugeValue + Copy,
        ConstGauge<V>: EncodeMetric,
    {
        let (stem, unit) = metric.declaration.parts();
        let help = sentence(&metric.declaration);
        let mut encoder = self.0.encode_descriptor(stem, &help, unit.as_ref(), MetricType::Gauge)?;
        for (values, value) in series {
            let labels: [(&str, &str); N] = std::array::from_fn(|place| (metric.labels[place], values[place]));
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn counter(&mut self, metric: &'static Metric<CounterKind, 0>, value: u64) -> fmt::Result {
        let (stem, unit) = metric.declaration.parts();
        let help = sentence(&metric.declaration);
        let encoder = self.0.encode_descriptor(stem, &help, unit.as_ref(), MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    /// Writes a histogram that is counted elsewhere: its counts by the bounds declared, and of what is above the last.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn histogram(
        &mut self,
        metric: &'static Metric<HistogramKind, 0>,
        sum: Duration,
        counts: &[u64],
    ) -> fmt::Result {
        let (stem, unit) = metric.declaration.parts();
        let help = sentence(&metric.declaration);
        let bounds = metric.declaration.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let mut encoder = self.0.encode_descriptor(stem, &help, unit.as_ref(), MetricType::Histogram)?;
        encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), counts.iter().sum(), &buckets, None)
    }
}

/// The meaning as registered metrics have it on the page.
fn sentence(declaration: &Declaration) -> String {
    format!("{}.", declaration.help)
}
