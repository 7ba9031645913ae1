//! Durations of synced writes, as a histogram that a metrics endpoint can export as it is.

use std::time::Duration;

/// Upper bounds of the buckets in microseconds; the last bucket has none.
pub const SYNC_BOUNDS_MICROS: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// Counts of synced writes by duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncHistogram {
    /// Number of synced writes.
    pub count: u64,
    /// Number of requests they made durable; divided by `count`, the average group.
    pub requests: u64,
    /// Sum of their durations.
    pub sum: Duration,
    /// Number of writes per bucket (not cumulative): those not longer than the bound of the same position in
    /// [`SYNC_BOUNDS_MICROS`], then the rest.
    pub buckets: [u64; SYNC_BOUNDS_MICROS.len() + 1],
}

impl SyncHistogram {
    /// Adds one synced write that took `took` and made `requests` requests durable.
    pub fn record(&mut self, took: Duration, requests: u64) {
        self.count += 1;
        self.requests += requests;
        self.sum += took;
        let bucket = SYNC_BOUNDS_MICROS.partition_point(|bound| Duration::from_micros(*bound) < took);
        self.buckets[bucket] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_of_its_bound() {
        let mut histogram = SyncHistogram::default();
        for micros in [1, 100, 101, 20_000_000] {
            histogram.record(Duration::from_micros(micros), 2);
        }
        assert_eq!(histogram.buckets[0], 2);
        assert_eq!(histogram.buckets[1], 1);
        assert_eq!(histogram.buckets[SYNC_BOUNDS_MICROS.len()], 1);
        assert_eq!((histogram.count, histogram.requests), (4, 8));
        assert_eq!(histogram.sum, Duration::from_micros(20_000_202));
    }
}
