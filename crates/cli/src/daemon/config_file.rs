//! Configuration files of members and agents: TOML, in which every field is known, with line and column in every error.

mod agent;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use tessera_api::job_file::units::{Size, Time};
use tessera_api::job_file::values::Kind;
use tessera_controller::backup::BackupPlan;
use tessera_objects::Location;
use tessera_server::ServerConfig;

pub use agent::{AgentFile, CardsWord};

use crate::args::LogFormat;
use crate::bundle::redact::redact;
use crate::exit::Exit;
use crate::failure::Failure;

/// The settings of the log, and the collector for spans and metrics; the same in both files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSection {
    /// The filter of the log, such as `info`.
    pub filter: Option<String>,
    /// `auto`, `text` or `json`.
    pub format: Option<LogFormat>,
    /// Collector of traces and metrics (OTLP over gRPC).
    pub otlp_endpoint: Option<String>,
}

/// The file of a member.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerFile {
    pub data_dir: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub advertise: Option<String>,
    pub name: Option<String>,
    pub http: Option<SocketAddr>,
    http_names: Option<Vec<String>>,
    disk_reserve: Option<Size>,
    session_outbox: Option<usize>,
    #[serde(default)]
    pub log: LogSection,
    #[serde(default)]
    consensus: ConsensusSection,
    #[serde(default)]
    timings: TimingsSection,
    #[serde(default)]
    mass_loss: MassLossSection,
    #[serde(default)]
    limits: MemberLimitsSection,
    backup: Option<BackupSection>,
    #[serde(default)]
    usage: UsageSection,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageSection {
    retention: Option<Time>,
    currency: Option<String>,
    #[serde(default)]
    prices: BTreeMap<Kind, Price>,
}

/// Backups that the leader saves.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "BackupFields")]
struct BackupSection(BackupPlan);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupFields {
    dir: Option<PathBuf>,
    url: Option<String>,
    interval: Option<Time>,
    keep: Option<usize>,
    max_age: Option<Time>,
}

impl TryFrom<BackupFields> for BackupSection {
    type Error = String;

    fn try_from(fields: BackupFields) -> Result<Self, String> {
        let place = match (fields.dir, fields.url) {
            (Some(dir), None) => Location::from(dir),
            (None, Some(url)) if url.contains("://") => Location::parse(&url).map_err(|error| error.to_string())?,
            (None, Some(url)) => return Err(format!("{url:?} is no URL; a folder is named by `dir`")),
            _ => return Err("one of `dir` (a folder) and `url` (such as s3://bucket/prefix) must be given".to_owned()),
        };
        let mut plan = BackupPlan::new(place);
        set(&mut plan.interval, fields.interval.map(|time| time.0));
        set(&mut plan.keep, fields.keep);
        plan.max_age = fields.max_age.map(|time| time.0);
        Ok(Self(plan))
    }
}

/// A price, in millionths.
#[derive(Clone, Copy, Debug)]
struct Price(u64);

impl<'de> Deserialize<'de> for Price {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 10^15
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let price = f64::deserialize(deserializer)?;
        if !(0.0..=1e9).contains(&price) {
            return Err(D::Error::custom(format!("a price is between 0 and a thousand million, not {price}")));
        }
        Ok(Self((price * 1e6).round() as u64))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsensusSection {
    heartbeat: Option<Time>,
    election_timeout_min: Option<Time>,
    election_timeout_max: Option<Time>,
    stagger: Option<Time>,
    snapshot_entries: Option<u64>,
    snapshot_size: Option<Size>,
    keep_entries: Option<u64>,
    keep_size: Option<Size>,
    max_batch_commands: Option<usize>,
    max_in_flight: Option<usize>,
    mailbox: Option<usize>,
    mailbox_size: Option<Size>,
    max_clock_offset: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingsSection {
    check: Option<Time>,
    propose: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MassLossSection {
    share_percent: Option<u32>,
    window: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberLimitsSection {
    connections: Option<usize>,
    silence: Option<Time>,
    requests: Option<usize>,
    request_bytes: Option<Size>,
    watches: Option<usize>,
    watch_bytes: Option<Size>,
    log_streams: Option<usize>,
    submission_streams: Option<usize>,
    verifications: Option<usize>,
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

impl ServerFile {
    /// Puts what the file says, beyond what flags can say, into `config`.
    pub fn apply(&self, config: &mut ServerConfig) {
        let time = |time: Option<Time>| time.map(|time| time.0);
        set(&mut config.disk_reserve_bytes, self.disk_reserve.map(|size| size.0));
        set(&mut config.http_names, self.http_names.clone());
        set(&mut config.session_outbox, self.session_outbox);

        let consensus = &self.consensus;
        set(&mut config.consensus.heartbeat, time(consensus.heartbeat));
        set(&mut config.consensus.election_timeout_min, time(consensus.election_timeout_min));
        set(&mut config.consensus.election_timeout_max, time(consensus.election_timeout_max));
        set(&mut config.consensus.stagger, time(consensus.stagger));
        set(&mut config.consensus.snapshot_entries, consensus.snapshot_entries);
        set(&mut config.consensus.snapshot_bytes, consensus.snapshot_size.map(|size| size.0));
        set(&mut config.consensus.keep_entries, consensus.keep_entries);
        set(&mut config.consensus.keep_bytes, consensus.keep_size.map(|size| size.0));
        set(&mut config.consensus.max_batch_commands, consensus.max_batch_commands);
        set(&mut config.consensus.max_in_flight, consensus.max_in_flight);
        set(&mut config.consensus.mailbox, consensus.mailbox);
        let mailbox_size = consensus.mailbox_size.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
        set(&mut config.consensus.mailbox_bytes, mailbox_size);
        set(&mut config.consensus.max_clock_offset, time(consensus.max_clock_offset));

        let timings = &self.timings;
        set(&mut config.timings.check, time(timings.check));
        set(&mut config.timings.propose, time(timings.propose));

        set(&mut config.mass_loss.share_percent, self.mass_loss.share_percent);
        set(&mut config.mass_loss.window, time(self.mass_loss.window));

        config.backup = self.backup.as_ref().map(|section| section.0.clone());
        let usage = &self.usage;
        set(&mut config.usage.retention, time(usage.retention));
        set(&mut config.usage.currency, usage.currency.clone());
        config.usage.prices = usage.prices.iter().map(|(kind, price)| ((*kind).into(), price.0)).collect();

        let bytes = |size: Option<Size>| size.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
        let limits = &self.limits;
        set(&mut config.limits.connections, limits.connections);
        set(&mut config.limits.silence, time(limits.silence));
        set(&mut config.limits.requests, limits.requests);
        set(&mut config.limits.request_bytes, bytes(limits.request_bytes));
        set(&mut config.limits.watches, limits.watches);
        set(&mut config.limits.watch_bytes, bytes(limits.watch_bytes));
        set(&mut config.limits.log_streams, limits.log_streams);
        set(&mut config.limits.submission_streams, limits.submission_streams);
        set(&mut config.limits.verifications, limits.verifications);
    }
}

/// Reads a configuration file; without one everything is left to flags and defaults.
///
/// # Errors
/// A [`Failure`] that names the line and the column.
pub fn load<T: DeserializeOwned + Default>(path: Option<&Path>) -> Result<T, Failure> {
    let Some(path) = path else { return Ok(T::default()) };
    let what = || format!("the configuration file {} cannot be used", path.display());
    let text = fs::read_to_string(path).map_err(|error| Failure::from_error(Exit::Usage, what(), &error))?;
    toml::from_str(&text).map_err(|error| {
        let (line, column) = crate::position::of(&text, error.span().map_or(0, |span| span.start));
        let why = format!("{}:{line}:{column}: {}", path.display(), error.message());
        Failure::new(Exit::Usage, what(), why).next("docs/configuration.md describes every field")
    })
}

/// Has the process tell its configuration to whoever looks for a fault, without secrets.
pub fn tell_configuration(path: Option<&Path>) {
    let shown = path.and_then(|path| fs::read_to_string(path).ok()).and_then(|text| redact(&text).ok());
    if let Some(text) = shown {
        tessera_diagnostics::configured(text);
    }
}

#[cfg(test)]
#[path = "config_file_tests.rs"]
mod tests;
