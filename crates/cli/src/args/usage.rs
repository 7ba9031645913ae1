//! `tessera usage`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use tessera_api::job_file::units::Time;

use super::client::ClientArgs;
use super::values::duration;

/// Rows that are told at most.
pub const MOST_ROWS: u32 = 10_000;

/// `tessera usage`.
#[derive(Debug, Args)]
pub struct UsageCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to sum up.
    #[command(flatten)]
    pub what: UsageArgs,
}

/// What to sum up.
#[derive(Debug, Args)]
pub struct UsageArgs {
    /// By what: job, user, queue, kind, or label=KEY; all together when it is not said
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// From when on: a time such as 2026-11-01T00:00:00Z, a day (in UTC), or how long ago, such as 7d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// Until when, said in the same ways; until now when it is not said
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// Only who held blocks before, and none for so long: owners who left something behind; needs --by
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "by", conflicts_with_all = ["to", "csv", "parquet"])]
    pub inactive: Option<Duration>,
    /// Only jobs of this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Only what this person submitted
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Most rows, those with the most blocks first; when it is not said, 1000, and 10000 for a Parquet file, which is
    /// not written when there are more
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS)))]
    pub rows: Option<u32>,
    /// Print comma-separated values with a header, for spreadsheets
    #[arg(long)]
    pub csv: bool,
    /// Write the same as a Parquet file
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    pub parquet: Option<PathBuf>,
}

/// By what sums are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Job by job.
    Job,
    /// By who submitted.
    User,
    /// By queue.
    Queue,
    /// By kind of card.
    Kind,
    /// By the value of a label.
    Label(String),
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "job" => Ok(Self::Job),
            "user" => Ok(Self::User),
            "queue" => Ok(Self::Queue),
            "kind" => Ok(Self::Kind),
            _ => match text.strip_prefix("label=") {
                Some(key) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
                _ => Err("must be job, user, queue, kind or label=KEY".to_owned()),
            },
        }
    }
}

/// A moment: itself, the beginning of a day, or so long ago.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(day) = text.parse::<jiff::civil::Date>() {
        let zoned = day.to_zoned(jiff::tz::TimeZone::UTC);
        return zoned.map(|zoned| zoned.timestamp()).map_err(|error| error.to_string());
    }
    let ago = Time::parse(text)
        .map_err(|_| "is neither a time such as 2026-11-01T00:00:00Z, nor a day, nor a duration such as 7d")?;
    Timestamp::now().checked_sub(ago.0).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_said_in_three_ways() {
        assert_eq!(time("2026-11-01").expect("a day").to_string(), "2026-11-01T00:00:00Z");
        assert_eq!(time("2026-11-01T12:30:00+01:00").expect("a time").to_string(), "2026-11-01T11:30:00Z");
        assert!(time("1h").expect("an hour ago") < Timestamp::now());
        assert!(time("yesterday").is_err());
    }

    #[test]
    fn sums_are_made_by_what_is_named() {
        assert_eq!("label=team".parse(), Ok(By::Label("team".to_owned())));
        assert_eq!("user".parse(), Ok(By::User));
        assert!("label=".parse::<By>().is_err());
    }
}
