//! Times and durations on the wire.

use tessera_ledger::LogTime;
use tessera_ledger::wire::FieldError;

/// The seconds that a timestamp may have: the years 1 to 9999, as protocol buffers say.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

#[must_use]
pub fn timestamp(time: LogTime) -> prost_types::Timestamp {
    let seconds = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(time.0 % 1000 * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos }
}

/// The timestamp in a field of a request as log time, cut to milliseconds; times before 1970 are the beginning of 1970.
///
/// # Errors
/// When it is no time of the years 1 to 9999.
pub fn log_time(field: &str, timestamp: &prost_types::Timestamp) -> Result<LogTime, FieldError> {
    let prost_types::Timestamp { seconds, nanos } = *timestamp;
    if !SECONDS.contains(&seconds) {
        let problem = format!("must be a time of the years 1 to 9999, has {seconds} seconds");
        return Err(FieldError::invalid(field, problem));
    }
    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let Some(nanos) = nanos else {
        let problem = format!("must have 0 to 999999999 nanoseconds, has {}", timestamp.nanos);
        return Err(FieldError::invalid(field, problem));
    };
    Ok(u64::try_from(seconds).map_or(LogTime(0), |seconds| LogTime(seconds * 1000 + nanos / 1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_back() {
        for millis in [0, 999, 1_000, 1_795_000_123_456] {
            assert_eq!(log_time("from", &timestamp(LogTime(millis))), Ok(LogTime(millis)));
        }
        let early = prost_types::Timestamp { seconds: -5, nanos: 999_999_999 };
        assert_eq!(log_time("from", &early), Ok(LogTime(0)));
    }

    #[test]
    fn what_is_no_time_is_refused_with_its_field() {
        for (seconds, nanos) in [(3_000_000_000_000_000, 0), (i64::MIN, 0), (1, -1), (1, 1_000_000_000)] {
            let refused = log_time("from", &prost_types::Timestamp { seconds, nanos }).expect_err("it is no time");
            assert_eq!(refused.field, "from", "{seconds} {nanos}");
        }
    }
}
