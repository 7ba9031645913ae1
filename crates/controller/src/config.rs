//! The numbers an operator may turn, their defaults, and the inequalities between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tessera_consensus::{BadConfig, ConsensusConfig};
use tessera_ledger::wire::FieldError;
use tessera_ledger::{CardKind, LeaseTimings, Level};

use crate::limits::MemberLimits;

/// How often the leader's actors look and how long they wait. For how long leases are granted is a setting of the pool
/// ([`LeaseTimings`]), the same whoever leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How often the lifecycle actor looks at nodes.
    pub check: Duration,
    /// How long one proposal of an actor may take before its outcome counts as unknown.
    pub propose: Duration,
    /// How often the ledger's time is moved on when nothing else does.
    pub tick: Duration,
    /// How much longer than its time limit a job may run before the leader stops it, its agent having failed to.
    pub limit_slack: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            check: Duration::from_millis(500),
            propose: Duration::from_secs(5),
            tick: Duration::from_secs(30),
            limit_slack: Duration::from_secs(30),
        }
    }
}

/// When a leader no longer believes that so many nodes failed by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassLoss {
    /// Largest share of the nodes, in percent, that may be silent or newly lost at once; one node always may.
    pub share_percent: u32,
    /// How long a lost node counts as newly lost.
    pub window: Duration,
}

impl Default for MassLoss {
    fn default() -> Self {
        Self { share_percent: 33, window: Duration::from_secs(60) }
    }
}

impl MassLoss {
    /// How many of `nodes` may be silent or newly lost at once.
    #[must_use]
    pub fn allowed(&self, nodes: usize) -> usize {
        let share = usize::try_from(self.share_percent).unwrap_or(usize::MAX);
        (nodes.saturating_mul(share) / 100).max(1)
    }
}

/// For how long is kept what jobs held, and what it costs. All members should say the same: whoever is asked answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSettings {
    /// For how long what was held is kept after it ended.
    pub retention: Duration,
    /// Price of a block-hour by kind of card, in millionths of the currency.
    pub prices: BTreeMap<CardKind, u64>,
    /// The currency, as it is shown.
    pub currency: String,
}

impl Default for UsageSettings {
    /// Somewhat more than a year, so that every month can be compared with the same one a year before.
    fn default() -> Self {
        Self { retention: Duration::from_secs(400 * 24 * 3600), prices: BTreeMap::new(), currency: String::new() }
    }
}

/// Settings of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Folder for everything this member keeps; made if it is not there. It belongs to one member for ever.
    pub data_dir: PathBuf,
    /// Where gRPC is served.
    pub listen: SocketAddr,
    /// `host:port` under which members, agents and clients reach it.
    pub advertise: String,
    /// Its name for people; may be empty.
    pub name: String,
    /// Where metrics and health are served; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Settings of consensus, the same on all members.
    pub consensus: ConsensusConfig,
    /// How often the leader's actors look and how long they wait.
    pub timings: Timings,
    /// When a leader suspects itself instead of the nodes.
    pub mass_loss: MassLoss,
    /// Bytes that must be free on the disk, below which a leader takes no more jobs and hands leadership over.
    pub disk_reserve_bytes: u64,
    /// Messages that may wait for one agent before its session is cut.
    pub session_outbox: usize,
    /// How much clients may have open or under way at once.
    pub limits: MemberLimits,
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
            consensus: ConsensusConfig::default(),
            timings: Timings::default(),
            mass_loss: MassLoss::default(),
            disk_reserve_bytes: DEFAULT_DISK_RESERVE_BYTES,
            session_outbox: 256,
            limits: MemberLimits::default(),
            usage: UsageSettings::default(),
            clock_offset_ms: 0,
            highest_level: Level::NEWEST,
        }
    }

    /// How long a change of leader may take.
    fn failover(&self) -> Duration {
        self.consensus.election_timeout_max * 4
    }

    /// Whether leases under these timings outlast a change of leader. What the timings have to do with one another the
    /// ledger checks; this rule is about a setting that only members know.
    ///
    /// # Errors
    /// [`FieldError`] with the rule; the path begins with `config.leases`.
    pub fn outlasts_failover(&self, leases: &LeaseTimings) -> Result<(), FieldError> {
        let least = leases.heartbeat.saturating_add(self.failover());
        if leases.stop_after >= least {
            return Ok(());
        }
        let problem = format!(
            "must be at least a heartbeat and four times election_timeout_max ({least:?} here), or a change of leader stops all work"
        );
        Err(FieldError::invalid("config.leases.stop_after", problem))
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
    /// Those of consensus.
    #[error(transparent)]
    Consensus(#[from] BadConfig),
    /// Those of this member.
    #[error("settings: {0}")]
    Broken(&'static str),
}

#[cfg(test)]
mod tests {
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
        assert!(broken(|c| c.consensus.mailbox = 0).contains("mailbox"));
    }

    #[test]
    fn leases_must_outlast_a_change_of_leader() {
        let hasty = LeaseTimings {
            heartbeat: Duration::from_millis(50),
            stop_after: Duration::from_millis(200),
            ..LeaseTimings::default()
        };
        let refused = config().outlasts_failover(&hasty).expect_err("must be refused").to_string();
        assert!(refused.contains("config.leases.stop_after") && refused.contains("930ms"), "{refused}");
        assert_eq!(config().outlasts_failover(&LeaseTimings::default()), Ok(()));
    }

    #[test]
    fn one_node_may_always_be_lost() {
        let policy = MassLoss::default();
        assert_eq!([1, 2, 4, 10, 1200].map(|nodes| policy.allowed(nodes)), [1, 1, 1, 3, 396]);
    }
}
