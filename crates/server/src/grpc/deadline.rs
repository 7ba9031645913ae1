//! Deadlines of calls: what the caller allows, read once on arrival and carried along with the request.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

/// Header in which gRPC callers say how long they wait.
pub(crate) const TIMEOUT_HEADER: &str = "grpc-timeout";

/// The time allowed to a caller that sets no deadline.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);

/// The longest that a call may take, whatever its caller says.
const LONGEST: Duration = Duration::from_secs(3600);

/// The moment by which a call must be answered. Kept in the extensions of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub Instant);

impl Deadline {
    /// The deadline of a call that arrives now with these headers: a little before the caller gives up, so that it
    /// learns what happened instead of timing out.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let allowed = headers.get(TIMEOUT_HEADER).and_then(parse_timeout).unwrap_or(DEFAULT_PATIENCE).min(LONGEST);
        let margin = (allowed / 10).min(Duration::from_millis(100));
        Self(Instant::now() + (allowed - margin))
    }

    #[must_use]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// The value of the header for a call that may take this long. The wire allows eight digits.
#[must_use]
pub(crate) fn timeout_value(left: Duration) -> HeaderValue {
    let micros = left.as_micros();
    let text =
        if micros < 100_000_000 { format!("{micros}u") } else { format!("{}m", left.as_millis().min(99_999_999)) };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("1S"))
}

/// Reads `TimeoutValue TimeoutUnit` of the gRPC protocol; `None` for anything else.
fn parse_timeout(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> Option<Duration> {
        parse_timeout(&HeaderValue::from_static(text))
    }

    #[test]
    fn timeouts_of_the_wire_are_read() {
        assert_eq!(parsed("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parsed("150m"), Some(Duration::from_millis(150)));
        assert_eq!(parsed("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "S", "5", "-1S", "123456789S", "1x"] {
            assert_eq!(parsed(bad), None, "{bad:?} was read");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for left in [Duration::from_micros(7), Duration::from_secs(99), Duration::from_secs(4_000)] {
            assert_eq!(parse_timeout(&timeout_value(left)), Some(left));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_comes_before_the_caller_gives_up() {
        let mut headers = HeaderMap::new();
        assert_eq!(Deadline::of(&headers).left(), DEFAULT_PATIENCE - Duration::from_millis(100));
        headers.insert(TIMEOUT_HEADER, HeaderValue::from_static("100m"));
        assert_eq!(Deadline::of(&headers).left(), Duration::from_millis(90));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_longer_than_an_hour() {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT_HEADER, HeaderValue::from_static("99999999H"));
        assert_eq!(Deadline::of(&headers).left(), LONGEST - Duration::from_millis(100));
    }
}
