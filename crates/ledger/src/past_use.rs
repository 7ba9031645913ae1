//! The past use of a queue, the distant past counting less: the memory of fair share. Pure integers, advanced by log
//! time alone, so that every member has the same (law L8).
//!
//! Time is cut into periods, 64 to a half-life. Within a period every millisecond counts in full, so that nothing is
//! lost however often the sum is brought up to date, and the result does not depend on how often that was. At the end
//! of each period everything so far is multiplied by 2^(-1/64).

use std::time::Duration;

use crate::config::PoolConfig;
use crate::queue::{Queue, QueueAmount, half_life};
use crate::units::{LogTime, Mebibytes, MilliTflops};

/// Periods in a half-life.
const PERIODS: u64 = 64;
/// 2^(-1/64), in units of 2^-32.
const KEPT: u128 = 4_248_701_965;
/// Limit that the sum for one unit approaches when it is held for ever, in periods: the sum of all powers of 2^(-1/64),
/// rounded down.
const STEADY: u128 = 92;
/// After so many periods, 64 half-lives, nothing is left of anything.
const FORGOTTEN: u64 = PERIODS * 64;

/// A sum over time of what a queue held, halved with every half-life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastUse {
    /// Thousandths of a TFLOPS times milliseconds.
    pub(crate) compute: u128,
    /// MiB times milliseconds.
    pub(crate) memory: u128,
    /// Up to when it is counted; zero: not yet begun.
    pub(crate) counted_to: LogTime,
}

fn period(half_life: Duration) -> u64 {
    u64::try_from(half_life.as_millis() / u128::from(PERIODS)).unwrap_or(u64::MAX).max(1)
}

impl PastUse {
    /// Counts what has been held since it was counted last.
    pub(crate) fn advance(&mut self, held: QueueAmount, now: LogTime, half_life: Duration) {
        let from = self.counted_to;
        self.counted_to = now.max(from);
        if from == LogTime(0) || now <= from {
            return;
        }
        let period = period(half_life);
        let (first, last) = (from.0 / period, now.0 / period);
        if first == last {
            return self.add(held, now.0 - from.0);
        }
        self.add(held, (first + 1).saturating_mul(period) - from.0);
        self.decay();
        for _ in 0..(last - first - 1).min(FORGOTTEN) {
            self.add(held, period);
            self.decay();
        }
        self.add(held, now.0 - last * period);
    }

    /// Counts on with another half-life. The mean up to `now` is the same before and after: sums are in units of the
    /// half-life, and are brought up to date in those of the old one before they are taken over into those of the
    /// new one.
    pub(crate) fn change_half_life(&mut self, held: QueueAmount, now: LogTime, old: Duration, new: Duration) {
        self.advance(held, now, old);
        let (old, new) = (u128::from(period(old)), u128::from(period(new)));
        for sum in [&mut self.compute, &mut self.memory] {
            let (whole, rest) = (*sum / old, *sum % old);
            *sum = whole.saturating_mul(new).saturating_add(rest * new / old);
        }
    }

    fn add(&mut self, held: QueueAmount, millis: u64) {
        let product = |amount: u64| u128::from(amount) * u128::from(millis);
        self.compute = self.compute.saturating_add(product(held.compute.0));
        self.memory = self.memory.saturating_add(product(held.memory.0));
    }

    fn decay(&mut self) {
        for sum in [&mut self.compute, &mut self.memory] {
            *sum = (*sum >> 32) * KEPT + (((*sum & 0xffff_ffff) * KEPT) >> 32);
        }
    }

    /// The mean of what was held, recent time counting more: of a queue that has always held the same, just that.
    pub(crate) fn mean(&self, half_life: Duration) -> QueueAmount {
        let steady = u128::from(period(half_life)) * STEADY;
        let mean = |sum: u128| u64::try_from(sum / steady).unwrap_or(u64::MAX);
        QueueAmount { compute: MilliTflops(mean(self.compute)), memory: Mebibytes(mean(self.memory)) }
    }
}

/// The past use of a queue, followed from one reading to the next, so that a queue whose holdings do not change costs
/// the time that has passed since it was read last, not since they changed. The means are those of [`Queue::mean_use`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedUse {
    /// The ledger's count that `past` began from, with the amount held since then and the half-life in force.
    from: (PastUse, QueueAmount, Duration),
    /// The same, counted on.
    past: PastUse,
    recounted: u64,
}

impl FollowedUse {
    /// The mean of what the queue has held up to `now`.
    pub fn mean(&mut self, queue: &Queue, now: LogTime, config: &PoolConfig) -> QueueAmount {
        let half_life = half_life(config);
        let from = (queue.past, queue.used, half_life);
        if self.from != from || now < self.past.counted_to {
            (self.from, self.past) = (from, queue.past);
            self.recounted += 1;
        }
        self.past.advance(queue.used, now, half_life);
        self.past.mean(half_life)
    }

    /// The number of times that the use was counted anew from the ledger's count.
    #[must_use]
    pub const fn recounted(&self) -> u64 {
        self.recounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    const START: u64 = 1_700_000_000_123;

    fn held(compute: u64) -> QueueAmount {
        QueueAmount { compute: MilliTflops(compute), memory: Mebibytes(compute * 2) }
    }

    fn after(steps: &[(u64, u64)]) -> PastUse {
        let mut past = PastUse::default();
        past.advance(held(0), LogTime(START), WEEK);
        let mut now = START;
        for (compute, millis) in steps {
            now += millis;
            past.advance(held(*compute), LogTime(now), WEEK);
        }
        past
    }

    #[test]
    fn a_constant_use_is_its_own_mean_and_halves_in_a_half_life() {
        let mean = after(&[(1_000_000, 365 * DAY)]).mean(WEEK);
        assert!((990_000..=1_010_000).contains(&mean.compute.0), "{mean:?}");
        assert_eq!(mean.memory.0 / mean.compute.0, 2);
        let half = after(&[(1_000_000, 365 * DAY), (0, 7 * DAY)]).mean(WEEK);
        assert!((490_000..=510_000).contains(&half.compute.0), "{half:?}");
        let gone = after(&[(1_000_000, 365 * DAY), (0, 3650 * DAY)]).mean(WEEK);
        assert_eq!(gone, QueueAmount::default());
    }

    #[test]
    fn it_does_not_matter_how_often_it_is_counted() {
        let once = after(&[(700, 40 * DAY + 17)]);
        let mut often = Vec::new();
        let mut left = 40 * DAY + 17;
        while left > 0 {
            let step = left.min(1 + (left * 7919) % (DAY / 3));
            often.push((700, step));
            left -= step;
        }
        assert_eq!(after(&often), once);
    }

    #[test]
    fn another_half_life_leaves_the_mean_as_it_is_and_counts_from_then_on() {
        let day = Duration::from_secs(24 * 3600);
        let year = after(&[(1_000_000, 365 * DAY)]);
        let now = year.counted_to;
        for new in [day, WEEK * 52, Duration::from_millis(1)] {
            let mut past = year;
            past.change_half_life(held(0), now, WEEK, new);
            let (was, is) = (year.mean(WEEK).compute.0, past.mean(new).compute.0);
            assert!(was.abs_diff(is) <= 1, "{was} became {is} with {new:?}");
        }
        // Half a week of nothing under the old half-life, then a day of nothing under the new one of a day.
        let mut past = year;
        past.change_half_life(held(0), LogTime(now.0 + 7 * DAY / 2), WEEK, day);
        past.advance(held(0), LogTime(now.0 + 7 * DAY / 2 + DAY), day);
        let mean = past.mean(day).compute.0;
        assert!((345_000..=362_000).contains(&mean), "1,000,000 over the square root of two and over two: {mean}");
    }

    #[test]
    fn the_half_life_of_a_queue_that_has_not_begun_can_change() {
        let mut past = PastUse::default();
        past.change_half_life(held(0), LogTime(START), WEEK, Duration::from_secs(u64::MAX));
        assert_eq!(past.mean(WEEK), QueueAmount::default());
    }

    #[test]
    fn a_use_that_is_followed_is_the_use_of_the_queue_and_is_recounted_only_after_changes() {
        let config = PoolConfig::default();
        let mut queue =
            crate::state::State::new().queue("default").map(|queue| Queue::clone(queue)).expect("it is there");
        let mut followed = FollowedUse::default();
        let mut now = START;
        for step in 0..200u64 {
            now += DAY / 7 + step;
            if step % 50 == 0 {
                queue.past.advance(queue.used, LogTime(now), WEEK);
                queue.used = held(step + 1);
            }
            assert_eq!(followed.mean(&queue, LogTime(now), &config), queue.mean_use(LogTime(now), &config));
        }
        assert_eq!(followed.recounted(), 4);
        let earlier = LogTime(now - DAY);
        assert_eq!(followed.mean(&queue, earlier, &config), queue.mean_use(earlier, &config), "a clock that went back");
    }

    #[test]
    fn what_was_held_before_the_first_count_is_not_known() {
        let mut past = PastUse::default();
        past.advance(held(1000), LogTime(START), WEEK);
        assert_eq!(past.mean(WEEK), QueueAmount::default());
    }

    #[test]
    fn time_that_stands_still_or_is_read_as_earlier_changes_nothing() {
        let mut past = after(&[(5, DAY)]);
        let before = past;
        past.advance(held(5), LogTime(START), WEEK);
        assert_eq!(past, before);
    }
}
