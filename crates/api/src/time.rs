//! Times and durations on the wire.

use tessera_ledger::LogTime;

#[must_use]
pub fn timestamp(time: LogTime) -> prost_types::Timestamp {
    let seconds = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(time.0 % 1000 * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos }
}

/// A timestamp as log time, cut to milliseconds; times before 1970 are the beginning of 1970.
#[must_use]
pub fn log_time(timestamp: &prost_types::Timestamp) -> LogTime {
    let seconds = u64::try_from(timestamp.seconds).unwrap_or(0);
    let millis = u64::try_from(timestamp.nanos / 1_000_000).unwrap_or(0);
    LogTime(seconds.saturating_mul(1000).saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_back() {
        for millis in [0, 999, 1_000, 1_795_000_123_456] {
            assert_eq!(log_time(&timestamp(LogTime(millis))), LogTime(millis));
        }
        assert_eq!(log_time(&prost_types::Timestamp { seconds: -5, nanos: -1 }), LogTime(0));
    }
}
