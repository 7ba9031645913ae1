//! The gate: no operation starts before the slice has paid for those before it.
//!
//! A token bucket over measured device time. Time flows in at the slice's share of the device, up to a short burst, and
//! every operation takes out what it was measured to take. An operation cannot be interrupted, so the bucket may fall
//! below nothing; the next one waits until it is even. A strict slice gets its share and no more. An elastic slice
//! divides the device with those neighbours that compute just now, in proportion to their shares, and so never gets
//! less than its own.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{Error, neighbours::Neighbours};

/// How much time may be saved up, in time of the device: enough for even steps, too little to starve a neighbour.
const BURST: Duration = Duration::from_millis(10);

/// The bucket alone: no clock, no neighbours.
#[derive(Clone, Debug)]
pub struct Bucket {
    balance: f64,
    burst: f64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(burst: Duration) -> Self {
        Self { balance: burst.as_secs_f64(), burst: burst.as_secs_f64() }
    }

    /// Time has passed, of which `rate` belongs to the slice. What was taken in that time must have been taken before,
    /// or a long operation would meet a bucket that was full already.
    pub fn refill(&mut self, passed: Duration, rate: f64) {
        self.balance = (self.balance + passed.as_secs_f64() * rate).min(self.burst);
    }

    /// The device has worked for the slice.
    pub fn take(&mut self, measured: Duration) {
        self.balance -= measured.as_secs_f64();
    }

    /// How long until the next operation may start.
    pub fn wait(&self, rate: f64) -> Duration {
        if self.balance >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.balance / rate).unwrap_or(Duration::from_secs(1))
    }
}

/// The gate of one slice.
pub struct Gate {
    bucket: Bucket,
    share: f64,
    neighbours: Option<Neighbours>,
    refilled: Instant,
    worked: Duration,
    waited: Duration,
}

impl Gate {
    /// A gate for `share` of the device, above 0 and at most 1. With `card`, a file that the slices of one card share,
    /// it is elastic.
    pub fn new(share: f64, card: Option<&Path>) -> Result<Self, Error> {
        let share = share.clamp(0.001, 1.0);
        let neighbours = card.map(|path| Neighbours::join(path, share)).transpose()?;
        let (worked, waited) = Default::default();
        Ok(Self { bucket: Bucket::new(BURST), share, neighbours, refilled: Instant::now(), worked, waited })
    }

    /// Waits until the next operation may start.
    pub fn enter(&mut self) {
        if self.share >= 1.0 && self.neighbours.is_none() {
            return;
        }
        loop {
            let rate = self.rate();
            let now = Instant::now();
            self.bucket.refill(now - self.refilled, rate);
            self.refilled = now;
            let wait = self.bucket.wait(rate);
            if wait.is_zero() {
                return;
            }
            // Not all of it at once: a neighbour may stop meanwhile, and what it leaves is taken up.
            std::thread::sleep(wait.min(Duration::from_millis(20)));
            self.waited += now.elapsed();
        }
    }

    /// The device has worked this long for the slice.
    pub fn pay(&mut self, measured: Duration) {
        self.worked += measured;
        self.bucket.take(measured);
        if let Some(neighbours) = &self.neighbours {
            neighbours.tell_active();
        }
    }

    /// Device time used, and time spent waiting at the gate.
    pub fn spent(&self) -> (Duration, Duration) {
        (self.worked, self.waited)
    }

    fn rate(&self) -> f64 {
        match &self.neighbours {
            Some(neighbours) => self.share / neighbours.active_shares().max(self.share),
            None => self.share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// What part of the time a slice computes that always has an operation of this length to run.
    fn part_of_time(operation: Duration, rate: f64) -> f64 {
        let (mut bucket, mut now, mut worked) = (Bucket::new(BURST), Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(20) {
            let wait = bucket.wait(rate);
            bucket.refill(wait, rate);
            now += wait + operation;
            bucket.take(operation);
            bucket.refill(operation, rate);
            worked += operation;
        }
        worked.as_secs_f64() / now.as_secs_f64()
    }

    #[test]
    fn a_slice_gets_its_share_whatever_the_length_of_its_operations() {
        for share in [0.1, 0.25, 0.5, 0.9] {
            for operation in [MILLISECOND / 100, MILLISECOND, 40 * MILLISECOND] {
                let part = part_of_time(operation, share);
                assert!((part - share).abs() < 0.01, "{share} of the time, operations of {operation:?}: {part}");
            }
        }
    }

    #[test]
    fn time_that_was_not_used_is_saved_up_only_for_a_burst() {
        let mut bucket = Bucket::new(BURST);
        bucket.refill(Duration::from_secs(3600), 0.5);
        bucket.take(BURST + MILLISECOND);
        assert!(bucket.wait(0.5) >= 2 * MILLISECOND - Duration::from_micros(1));
    }

    #[test]
    fn an_elastic_slice_has_the_device_alone_until_a_neighbour_computes() {
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("card");
        let gate = Gate::new(0.25, Some(&card)).unwrap();
        assert!((gate.rate() - 1.0).abs() < 1e-6);
        let mut neighbour = Gate::new(0.75, Some(&card)).unwrap();
        neighbour.pay(MILLISECOND);
        assert!((gate.rate() - 0.25).abs() < 1e-6, "it has its share beside a neighbour: {}", gate.rate());
        drop(neighbour);
        assert!((gate.rate() - 1.0).abs() < 1e-6, "and all of it again once the neighbour is gone");
    }
}
