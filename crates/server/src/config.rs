//! The numbers an operator may turn, their defaults, and the inequalities between them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tessera_connection::names::name_of;
use tessera_consensus::{BadConfig, ConsensusConfig};
use tessera_controller::backup::BackupPlan;
use tessera_controller::config::{ControllerConfig, MassLoss, Timings, UsageSettings};
use tessera_ledger::Level;

use crate::limits::MemberLimits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Folder for everything this member keeps; made if it is not there. It belongs to one member for ever.
    pub data_dir: PathBuf,
    /// The address on which gRPC is served.
    pub listen: SocketAddr,
    /// `host:port` under which members, agents and clients reach it.
    pub advertise: String,
    /// The name that the cluster knows it by, unless whoever makes it a member gives another; may be empty.
    pub name: String,
    /// The address on which metrics and health are served; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Names beside that of `advertise` by which people reach the console and the questions as JSON.
    pub http_names: Vec<String>,
    /// Settings of consensus, the same on all members.
    pub consensus: ConsensusConfig,
    /// The intervals and waits of the leader's actors.
    pub timings: Timings,
    /// The loss of nodes at which a leader suspects itself instead of the nodes.
    pub mass_loss: MassLoss,
    /// Bytes that must be free on the disk, below which a leader takes no more jobs and hands leadership over.
    pub disk_reserve_bytes: u64,
    /// Messages that may wait for one agent before its session is cut.
    pub session_outbox: usize,
    /// Limits on the resources that clients may have open or under way at once.
    pub limits: MemberLimits,
    /// The backups that this member saves while it leads; `None`: none.
    pub backup: Option<BackupPlan>,
    /// For how long is kept what jobs held, and what it costs.
    pub usage: UsageSettings,
    /// For drills: by how many milliseconds this member's wall clock is taken to be ahead; negative: behind.
    pub clock_offset_ms: i64,
    /// The highest release level that this member announces and applies: that of this release, but in drills
    /// of upgrades.
    pub highest_level: Level,
}

/// Most time between two looks at nodes.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

/// Bytes that must be free on the disk unless configured otherwise.
pub const DEFAULT_DISK_RESERVE_BYTES: u64 = 512 << 20;

impl ServerConfig {
    /// The defaults for a member with this folder and address.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen,
            advertise: listen.to_string(),
            name: String::new(),
            http: None,
            http_names: Vec::new(),
            consensus: ConsensusConfig::default(),
            timings: Timings::default(),
            mass_loss: MassLoss::default(),
            disk_reserve_bytes: DEFAULT_DISK_RESERVE_BYTES,
            session_outbox: 256,
            limits: MemberLimits::default(),
            backup: None,
            usage: UsageSettings::default(),
            clock_offset_ms: 0,
            highest_level: Level::NEWEST,
        }
    }

    /// The names by which people reach it.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        std::iter::once(name_of(&self.advertise).to_owned()).chain(self.http_names.iter().cloned())
    }

    /// The longest time that a change of leader may take.
    fn failover(&self) -> Duration {
        self.consensus.election_timeout_max * 4
    }

    /// The part of the settings that the controller goes by.
    #[must_use]
    pub fn controller(&self) -> ControllerConfig {
        ControllerConfig {
            timings: self.timings,
            mass_loss: self.mass_loss,
            session_outbox: self.session_outbox,
            backup: self.backup.clone(),
            usage: self.usage.clone(),
            highest_level: self.highest_level,
            failover: self.failover(),
            advertise: self.advertise.clone(),
            name: self.name.clone(),
        }
    }

    /// Checks the inequalities between the settings.
    ///
    /// # Errors
    /// [`InvalidConfig`] naming the first one that does not hold.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.consensus.validate()?;
        let times = &self.timings;
        let failover = self.failover();
        let rules = [
            (
                !times.check.is_zero() && times.check <= LONGEST_CHECK,
                "check must be positive and at most a second, or lost nodes are noticed late",
            ),
            (times.propose >= failover, "propose must be at least four times election_timeout_max"),
            (times.tick >= Duration::from_secs(1), "tick must be at least a second"),
            ((1..=100).contains(&self.mass_loss.share_percent), "mass_loss.share_percent must be 1 to 100"),
            (self.session_outbox >= 8, "session_outbox must be at least 8"),
            (
                self.backup.as_ref().is_none_or(|plan| plan.interval >= BackupPlan::SHORTEST),
                "backup.interval must be at least a second",
            ),
            (self.backup.as_ref().is_none_or(|plan| plan.keep > 0), "backup.keep must be at least 1"),
            (!self.advertise.is_empty(), "advertise must be host:port, as others reach this member"),
        ];
        match rules.into_iter().chain(self.limits.rules()).find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, broken)) => Err(InvalidConfig::Broken(broken)),
        }
    }
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    #[error(transparent)]
    Consensus(#[from] BadConfig),
    #[error("settings: {0}")]
    Broken(&'static str),
}

#[cfg(test)]
mod tests {
    use tessera_objects::Location;

    use super::*;

    fn config() -> ServerConfig {
        ServerConfig::new("/var/lib/tessera", SocketAddr::from(([127, 0, 0, 1], 7001)))
    }

    #[test]
    fn the_defaults_fit_together() {
        config().validate().expect("defaults must be valid");
    }

    #[test]
    fn each_broken_inequality_is_named() {
        let broken = |change: fn(&mut ServerConfig)| {
            let mut config = config();
            change(&mut config);
            config.validate().expect_err("must be refused").to_string()
        };
        assert!(broken(|c| c.timings.check = Duration::ZERO).contains("check"));
        assert!(broken(|c| c.mass_loss.share_percent = 0).contains("share_percent"));
        assert!(broken(|c| c.limits.watches = 0).contains("limits"));
        assert!(broken(|c| c.advertise.clear()).contains("advertise"));
        assert!(
            broken(|c| c.backup =
                Some(BackupPlan { interval: Duration::ZERO, ..BackupPlan::new(Location::Local("/b".into())) }))
            .contains("interval")
        );
        assert!(
            broken(|c| c.backup = Some(BackupPlan { keep: 0, ..BackupPlan::new(Location::Local("/b".into())) }))
                .contains("keep")
        );
        assert!(broken(|c| c.consensus.mailbox = 0).contains("mailbox"));
    }
}
