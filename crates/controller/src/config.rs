//! The settings that the leader's actors and whoever holds the pool go by.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::wire::FieldError;
use tessera_ledger::{CardKind, LeaseTimings, Level};

use crate::backup::BackupPlan;

/// Intervals and time limits of the leader's actors. The duration of leases is a setting of the pool
/// ([`LeaseTimings`]), the same whoever leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// The interval at which the lifecycle actor looks at nodes.
    pub check: Duration,
    /// The time limit for one proposal of an actor, after which its outcome counts as unknown.
    pub propose: Duration,
    /// The interval after which the ledger's time is advanced when nothing else does so.
    pub tick: Duration,
    /// The time by which a job may exceed the sum of its time limit and its checkpoint's grace before the leader ends
    /// it, because its agent failed to.
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

/// The threshold above which a leader no longer believes that nodes failed independently of one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MassLoss {
    /// Largest share of the nodes, in percent, that may be silent or newly lost at once; one node always may.
    pub share_percent: u32,
    /// The time for which a lost node counts as newly lost.
    pub window: Duration,
}

impl Default for MassLoss {
    fn default() -> Self {
        Self { share_percent: 33, window: Duration::from_secs(60) }
    }
}

impl MassLoss {
    /// Largest number of `nodes` that may be silent or newly lost at once; at least one.
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

/// The settings of a member that the controller uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Intervals and time limits of the leader's actors.
    pub timings: Timings,
    /// The threshold above which a leader suspects itself instead of the nodes.
    pub mass_loss: MassLoss,
    /// Messages that may wait for one agent before its session is cut.
    pub session_outbox: usize,
    /// For how long is kept what jobs held, and what it costs.
    pub usage: UsageSettings,
    /// The backups that this member saves while it leads; `None`: none.
    pub backup: Option<BackupPlan>,
    /// The highest release level that this member announces and applies.
    pub highest_level: Level,
    /// The longest time that a change of leader may take.
    pub failover: Duration,
    /// The address at which the others were to reach this member when it was started.
    pub advertise: String,
    /// The name that this member was started with; may be empty.
    pub name: String,
}

impl ControllerConfig {
    /// Checks that leases under these timings outlast a change of leader. The ledger checks the timings against one
    /// another; this rule involves a setting that only members know.
    ///
    /// # Errors
    /// [`FieldError`] with the rule; the path begins with `config.leases`.
    pub fn outlasts_failover(&self, leases: &LeaseTimings) -> Result<(), FieldError> {
        let least = leases.heartbeat.saturating_add(self.failover);
        if leases.stop_after >= least {
            return Ok(());
        }
        let problem = format!(
            "must be at least a heartbeat and four times election_timeout_max ({least:?} here), or a change of leader stops all work"
        );
        Err(FieldError::invalid("config.leases.stop_after", problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_must_outlast_a_change_of_leader() {
        let hasty = LeaseTimings {
            heartbeat: Duration::from_millis(50),
            stop_after: Duration::from_millis(200),
            ..LeaseTimings::default()
        };
        let config = ControllerConfig {
            timings: Timings::default(),
            mass_loss: MassLoss::default(),
            session_outbox: 8,
            backup: None,
            usage: UsageSettings::default(),
            highest_level: Level::NEWEST,
            failover: Duration::from_millis(880),
            advertise: String::new(),
            name: String::new(),
        };
        let refused = config.outlasts_failover(&hasty).expect_err("must be refused").to_string();
        assert!(refused.contains("config.leases.stop_after") && refused.contains("930ms"), "{refused}");
        assert_eq!(config.outlasts_failover(&LeaseTimings::default()), Ok(()));
    }

    #[test]
    fn one_node_may_always_be_lost() {
        let policy = MassLoss::default();
        assert_eq!([1, 2, 4, 10, 1200].map(|nodes| policy.allowed(nodes)), [1, 1, 1, 3, 396]);
    }
}
