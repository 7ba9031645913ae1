//! Times and durations for people and for JSON.

use std::time::Duration;

use jiff::Timestamp;

/// A time of a message, or one in RFC 3339.
pub trait Moment {
    /// The time, if it is one.
    fn moment(&self) -> Option<Timestamp>;
}

impl Moment for prost_types::Timestamp {
    fn moment(&self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, self.nanos).ok()
    }
}

impl Moment for str {
    fn moment(&self) -> Option<Timestamp> {
        self.parse().ok()
    }
}

/// The time to which ages are told.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Timestamp);

impl Clock {
    /// The present.
    #[must_use]
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// A fixed time, for tests.
    #[must_use]
    pub fn at(seconds: i64) -> Self {
        Self(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// The time since `time`, in short; `-` when it is not known.
    #[must_use]
    pub fn ago<T: Moment + ?Sized>(&self, time: Option<&T>) -> String {
        let then = time.and_then(T::moment);
        then.map_or_else(|| "-".to_owned(), |then| short(self.since(then)))
    }

    /// The time until `time`, in short; `-` when it is not known.
    #[must_use]
    pub fn until<T: Moment + ?Sized>(&self, time: &T) -> String {
        let then = time.moment();
        then.map_or_else(|| "-".to_owned(), |then| short(Clock(then).since(self.0)))
    }

    /// From `start` to `end`, or to the present while it goes on.
    #[must_use]
    pub fn between<T: Moment + ?Sized>(&self, start: Option<&T>, end: Option<&T>) -> String {
        let Some(start) = start.and_then(T::moment) else { return "-".to_owned() };
        let end = end.and_then(T::moment).map_or(*self, Clock);
        short(end.since(start))
    }

    /// The same in seconds; 0 when it never began.
    #[must_use]
    pub fn seconds_between<T: Moment + ?Sized>(&self, start: Option<&T>, end: Option<&T>) -> f64 {
        let end = end.and_then(T::moment).map_or(*self, Clock);
        start.and_then(T::moment).map_or(0.0, |start| end.since(start).as_secs_f64())
    }

    fn since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.0.duration_since(then)).unwrap_or_default()
    }
}

/// A time of the wire in RFC 3339.
#[must_use]
pub fn text(time: Option<&prost_types::Timestamp>) -> Option<String> {
    time.and_then(Moment::moment).map(|time| time.to_string())
}

/// A duration of the wire in seconds.
#[must_use]
pub fn seconds(duration: Option<&prost_types::Duration>) -> Option<f64> {
    duration.map(|duration| duration.seconds as f64 + f64::from(duration.nanos) / 1e9)
}

/// Two units at most: `12s`, `3m20s`, `5h10m`, `9d4h`.
#[must_use]
pub fn short(duration: Duration) -> String {
    let total = duration.as_secs();
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3_600 % 24, total / 60 % 60, total % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{seconds:02}s"),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        let ages = [0, 59, 60, 200, 3_600, 18_601, 788_400].map(|seconds| short(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0s", "59s", "1m00s", "3m20s", "1h00m", "5h10m", "9d3h"]);
    }

    #[test]
    fn times_of_the_wire_are_rfc_3339() {
        let time = prost_types::Timestamp { seconds: 1_795_000_000, nanos: 250_000_000 };
        let text = text(Some(&time)).expect("a time");
        assert_eq!(text, "2026-11-18T11:06:40.25Z");
        assert_eq!(Clock::at(1_795_000_010).ago(Some(text.as_str())), "9s");
        assert_eq!(Clock::at(0).ago(Some(text.as_str())), "0s", "a clock that is behind shows no negative age");
        assert_eq!(Clock::at(0).ago::<str>(None), "-");
    }
}
