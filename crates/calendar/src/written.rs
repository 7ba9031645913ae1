//! The written form of a window.

use std::sync::LazyLock;

use croner::parser::{CronParser, Seconds, Year};
use jiff::SignedDuration;
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

use crate::{LONGEST, Window};

/// A window that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Error {
    /// Its place among those that were given, from 0.
    pub place: usize,
    /// The problem of the window, and a form that would be valid.
    pub why: String,
}

/// The rules of time zones that come with the program: those of a host may be older, other or not there, and then
/// another leader would judge otherwise.
static RULES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The form of a window, for messages.
const SHAPE: &str = "\"0 20 * * mon-fri for 10h in Europe/Berlin\": when it opens as cron writes it, how long it stays \
                     open, and the time zone (without one: UTC)";

impl Window {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (schedule, rest) = text.split_once(" for ").ok_or_else(|| format!("must be like {SHAPE}"))?;
        let (lasts, zone) = rest.split_once(" in ").map_or((rest, "UTC"), |(lasts, zone)| (lasts, zone.trim()));
        let lasts = humantime::parse_duration(lasts.trim()).map_err(|error| {
            format!("how long it stays open, {:?}, cannot be read: {error}; write 90m or 10h", lasts.trim())
        })?;
        if lasts.is_zero() || lasts > LONGEST {
            return Err("must stay open for more than no time and at most 366 days".to_owned());
        }
        let zone = RULES
            .get(zone)
            .map_err(|_| format!("the time zone {zone:?} is not known; name one like Europe/Berlin, or UTC"))?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let schedule = parser.parse(schedule.trim()).map_err(|error| {
            format!("when it opens, {:?}, cannot be read: {error}; write minute, hour, day of the month, month and day of the week", schedule.trim())
        })?;
        let lasts = SignedDuration::try_from(lasts).map_err(|error| error.to_string())?;
        let window = Self { schedule, lasts, zone };
        if window.next_opening(Timestamp::UNIX_EPOCH).is_none() {
            return Err("never opens: no day is like that".to_owned());
        }
        Ok(window)
    }
}
