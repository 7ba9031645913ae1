//! Time windows of queues and jobs: how they are written, and when they are open.
//!
//! A window is written as one line, `0 20 * * mon-fri for 10h in Europe/Berlin`: when it opens, as cron writes it
//! (minute, hour, day of the month, month, day of the week), for how long, and by whose clock; without a zone, by UTC.
//! A [`Calendar`] is all windows of one queue or job: open while at least one of them is.
//!
//! [`Judge`] says what follows from the windows of a pool's queues and jobs.
//!
//! Nothing here reads a clock. Rules of time zones come with the program, so that they are the same on a host that has
//! none; they change with releases, and that is why the ledger keeps what was decided by them, and never decides by
//! them itself (law L8).

mod judge;
mod written;

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

pub use judge::Judge;
pub use written::Error;

/// Most windows that are followed to find out when a calendar closes. One that is open for longer is taken to close
/// when the last of them does, and is asked again then.
const FOLLOWED: usize = 16;

#[derive(Clone, Debug)]
struct Window {
    schedule: croner::Cron,
    lasts: SignedDuration,
    zone: TimeZone,
}

/// The state of a calendar at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    Open {
        /// The closing time; the calendar does not close earlier. `None`: never.
        until: Option<Timestamp>,
    },
    Closed {
        /// The next opening time; `None`: never again.
        until: Option<Timestamp>,
    },
}

/// All windows of one queue or job.
#[derive(Clone, Debug)]
pub struct Calendar(Vec<Window>);

impl Calendar {
    /// Reads windows; none at all make a calendar that is always open.
    ///
    /// # Errors
    /// [`Error`] with the place of the first one that cannot be read.
    pub fn read<T: AsRef<str>>(windows: &[T]) -> Result<Self, Error> {
        let read = |(place, text): (usize, &T)| Window::read(text.as_ref()).map_err(|why| Error { place, why });
        windows.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the calendar is open at `now`, and until when.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Now {
        if self.0.is_empty() {
            return Now::Open { until: None };
        }
        let Some(mut end) = self.covered_from(now) else {
            return Now::Closed { until: self.0.iter().filter_map(|window| window.next_opening(now)).min() };
        };
        for _ in 0..FOLLOWED {
            match self.covered_from(end) {
                Some(later) if later > end => end = later,
                _ => break,
            }
        }
        Now::Open { until: Some(end) }
    }

    /// The latest closing time among the windows that are open at `time`; `None`: none is open.
    fn covered_from(&self, time: Timestamp) -> Option<Timestamp> {
        self.0.iter().filter_map(|window| window.open_at(time)).max()
    }
}

impl Window {
    fn civil(&self, time: Timestamp) -> Zoned {
        time.to_zoned(self.zone.clone())
    }

    /// The closing time of the window, if it is open at `time`.
    fn open_at(&self, time: Timestamp) -> Option<Timestamp> {
        let began = self.schedule.find_previous_occurrence(&self.civil(time), true).ok()?.timestamp();
        let end = began.checked_add(self.lasts).ok()?;
        (began <= time && time < end).then_some(end)
    }

    /// The next opening time of the window after `time`.
    fn next_opening(&self, time: Timestamp) -> Option<Timestamp> {
        self.schedule.find_next_occurrence(&self.civil(time), false).ok().map(|next| next.timestamp())
    }
}

/// The moment of so many milliseconds since the Unix epoch, which is how the ledger tells time.
fn moment(millis: u64) -> Timestamp {
    i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(Timestamp::MAX)
}

/// The same the other way round.
fn millis(moment: Timestamp) -> u64 {
    u64::try_from(moment.as_millisecond()).unwrap_or(0)
}

/// Longest time that one window stays open: windows that last longer are better written as more of them.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(test)]
mod tests;
