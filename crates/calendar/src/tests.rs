use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn calendar(windows: &[&str]) -> Calendar {
    Calendar::read(windows).expect("windows that can be read")
}

fn open(until: &str) -> Now {
    Now::Open { until: Some(time(until)) }
}

fn closed(until: &str) -> Now {
    Now::Closed { until: Some(time(until)) }
}

#[test]
fn nights_of_working_days_by_the_clock_of_berlin() {
    let nights = calendar(&["0 20 * * mon-fri for 10h in Europe/Berlin"]);
    // Friday, 27 November 2026, 19:59 in Berlin, which is an hour ahead of UTC in winter.
    assert_eq!(nights.at(time("2026-11-27T18:59:59Z")), closed("2026-11-27T19:00:00Z"));
    assert_eq!(nights.at(time("2026-11-27T19:00:00Z")), open("2026-11-28T05:00:00Z"));
    assert_eq!(nights.at(time("2026-11-28T04:59:59.999Z")), open("2026-11-28T05:00:00Z"));
    // Over the weekend nothing opens.
    assert_eq!(nights.at(time("2026-11-28T05:00:00Z")), closed("2026-11-30T19:00:00Z"));
    // In summer it is two hours.
    assert_eq!(nights.at(time("2026-07-01T17:30:00Z")), closed("2026-07-01T18:00:00Z"));
}

#[test]
fn windows_that_touch_or_overlap_are_one() {
    let both = calendar(&["0 20 * * * for 4h", "0 0 * * sat for 30h", "0 23 * * fri for 2h"]);
    assert_eq!(both.at(time("2026-11-27T21:00:00Z")), open("2026-11-29T06:00:00Z"));
    // Every hour for two hours never closes; what is said is a time from which it is to be asked again.
    let always = calendar(&["0 * * * * for 2h"]);
    let Now::Open { until: Some(until) } = always.at(time("2026-11-27T21:10:00Z")) else { panic!("it is open") };
    assert!(until > time("2026-11-28T06:00:00Z"));
    assert_eq!(calendar(&[]).at(time("2026-11-27T21:00:00Z")), Now::Open { until: None });
}

#[test]
fn a_window_lasts_as_long_as_it_says_when_clocks_are_put_back() {
    // On 25 October 2026 Berlin's clocks go back from 3:00 to 2:00.
    let night = calendar(&["0 22 * * sat for 6h in Europe/Berlin"]);
    assert_eq!(night.at(time("2026-10-24T20:00:00Z")), open("2026-10-25T02:00:00Z"));
    // On 29 March 2026 half past two does not exist there; the window is not lost.
    let gap = calendar(&["30 2 * * sun for 1h in Europe/Berlin"]);
    let Now::Closed { until: Some(opens) } = gap.at(time("2026-03-28T12:00:00Z")) else { panic!("it is closed") };
    assert!((time("2026-03-29T00:30:00Z")..=time("2026-03-29T01:30:00Z")).contains(&opens), "{opens}");
}

#[test]
fn what_cannot_be_read_says_what_would_be_right() {
    for (text, says) in [
        ("every night", "must be like"),
        ("0 20 * * * for ten hours", "10h"),
        ("0 20 * * * for 10h in Berlin", "time zone"),
        ("0 25 * * * for 10h", "minute, hour"),
        ("0 0 20 * * * for 10h", "minute, hour"),
        ("0 20 * * * for 0s", "more than no time"),
        ("0 0 30 2 * for 1h", "never opens"),
    ] {
        let error = Calendar::read(&["* * * * * for 1m", text]).expect_err(text);
        assert_eq!(error.place, 1);
        assert!(error.why.contains(says), "{text}: {}", error.why);
    }
}

proptest! {
    /// Whatever a calendar says of a moment, it says of every other one until then.
    #[test]
    fn it_stays_as_it_is_until_it_says(
        minute in 0u8..60, hour in 0u8..24, hours in 1u8..30, second in 0i64..63_072_000, part in 0.0f64..1.0,
    ) {
        let windows = [format!("{minute} {hour} * * * for {hours}h in America/New_York"), format!("{minute} 3 1 * * for 90m")];
        let calendar = Calendar::read(&windows).expect("windows that can be read");
        let now = time("2026-01-01T00:00:00Z") + SignedDuration::from_secs(second);
        let (is_open, until) = match calendar.at(now) {
            Now::Open { until } => (true, until),
            Now::Closed { until } => (false, until),
        };
        let until = until.expect("daily windows change");
        prop_assert!(until > now);
        let between = now + (until - now).to_duration(&now.to_zoned(TimeZone::UTC)).expect("a time").mul_f64(part);
        if between < until {
            prop_assert_eq!(matches!(calendar.at(between), Now::Open { .. }), is_open, "at {}", between);
        }
        if hours < 24 {
            prop_assert_eq!(matches!(calendar.at(until), Now::Open { .. }), !is_open, "at the end, {}", until);
        }
    }
}
