//! Durations, and what is said of them: median, 99th percentile, longest.

use std::time::Duration;

use serde::Serialize;
use tessera_metrics::quantile;

/// Durations in order.
#[derive(Clone, Debug, Default)]
pub struct Distribution(Vec<Duration>);

/// Summary of durations, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of durations.
    pub count: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Distribution {
    /// Makes the distribution of these durations.
    #[must_use]
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Self(durations)
    }

    /// The [`quantile`] of the share `q`; `None` when there is no duration.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        quantile(&self.0, q)
    }

    /// The summary of the durations; `None` when there are none.
    #[must_use]
    pub fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            count: self.0.len(),
            p50_ms: milliseconds(self.quantile(0.50)?),
            p99_ms: milliseconds(self.quantile(0.99)?),
            max_ms: milliseconds(*self.0.last()?),
        })
    }
}

impl Percentiles {
    #[must_use]
    pub fn of_one(duration: Duration) -> Self {
        let ms = milliseconds(duration);
        Self { count: 1, p50_ms: ms, p99_ms: ms, max_ms: ms }
    }
}

#[must_use]
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The median of some figures; `None` when there are none.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    quantile(&figures, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_durations_that_happened() {
        let hundred = Distribution::of((1..=100).rev().map(Duration::from_millis).collect());
        let said = hundred.percentiles().expect("there are some");
        assert_eq!(said, Percentiles { count: 100, p50_ms: 50.0, p99_ms: 99.0, max_ms: 100.0 });
        assert_eq!(Distribution::of(vec![Duration::from_millis(7)]).quantile(0.01), Some(Duration::from_millis(7)));
        assert_eq!(Distribution::default().percentiles(), None);
    }

    #[test]
    fn the_median_is_one_of_the_figures() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }
}
