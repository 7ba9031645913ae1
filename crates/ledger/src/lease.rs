//! For how long agents may let work run without hearing from the leader, and for how long blocks are not granted again.
//!
//! The timings in force are settings of the pool ([`crate::PoolConfig::leases`]), so that every leader grants leases by
//! the same ones. They can be changed while leases run. A lease that was granted under longer timings is not shortened
//! by that: the ledger therefore keeps a [`LeaseCeiling`] beside them, and whoever leads waits for that before a node
//! counts as lost (law L2).

use std::time::Duration;

use crate::rejection::Rejection;
use crate::units::Revision;

/// The times of the protocol between the leader and agents (architecture section 5).
///
/// A lease counts from the moment the agent sent its heartbeat. Workers are told to stop when `stop_after` has passed
/// since then, and are killed by `kill_after`. Their blocks are granted again no earlier than `regrant_after` after the
/// leader heard the heartbeat: what lies between the two covers the journey of the heartbeat, clocks that run at
/// different speeds, and the kill itself (law L2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseTimings {
    /// Interval at which agents send heartbeats.
    pub heartbeat: Duration,
    /// Age of a lease at which workers are told to stop.
    pub stop_after: Duration,
    /// Age of a lease by which workers are killed.
    pub kill_after: Duration,
    /// Silence after which a node is declared lost; a new leader counts from the moment it won.
    pub regrant_after: Duration,
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            stop_after: Duration::from_secs(9),
            kill_after: Duration::from_secs(12),
            regrant_after: Duration::from_secs(20),
        }
    }
}

impl LeaseTimings {
    /// Bounds of the heartbeat; agents send none more often or more rarely.
    pub const HEARTBEAT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));
    /// Longest time of all: for so long no setting can take back what was granted under it.
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

    /// Refuses timings with which work would be stopped for nothing, or blocks be granted while work still runs
    /// on them.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] with the field and the rule that does not hold. Paths begin with `config.leases`.
    pub fn check(&self) -> Result<(), Rejection> {
        let rules = [
            ("heartbeat", self.heartbeat >= Self::HEARTBEAT.0, "must be at least 20 ms"),
            ("heartbeat", self.heartbeat <= Self::HEARTBEAT.1, "must be at most a minute"),
            (
                "stop_after",
                self.stop_after >= self.heartbeat.saturating_mul(3),
                "must be at least three heartbeats, or two lost ones stop all work of a node",
            ),
            (
                "kill_after",
                self.kill_after >= self.stop_after.saturating_add(self.heartbeat / 2),
                "must be at least half a heartbeat later than stop_after, or workers have no time to stop",
            ),
            (
                "regrant_after",
                self.regrant_after >= self.kill_after.saturating_add(self.kill_after / 4),
                "must be at least a quarter longer than kill_after: the margin covers clocks that run at different speeds and \
                 the kill itself",
            ),
            (
                "regrant_after",
                self.regrant_after <= Self::LONGEST,
                "must be at most a day: for so long a lost node's blocks are kept, and for so long a change back waits",
            ),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            None => Ok(()),
            Some((field, _, problem)) => Err(Rejection::invalid(format!("config.leases.{field}"), problem)),
        }
    }
}

/// The longest leases that may be out there, whoever granted them.
///
/// A change of the timings raises it at once where they become longer. It comes down only by
/// [`Command::SettleLeases`](crate::Command::SettleLeases), which a leader proposes when it has itself led for longer
/// than the ceiling with the change applied: whatever was granted under earlier timings is over by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseCeiling {
    /// The longest `regrant_after` that a lease can have been granted under: never less than the one in force. The time
    /// until work is killed is covered by it, as in every timings it is a quarter longer.
    pub regrant_after: Duration,
    /// The entry that changed the timings last; 0: they never were.
    pub changed_at: Revision,
}

impl LeaseCeiling {
    /// The ceiling where no other timings than these were ever in force.
    #[must_use]
    pub const fn of(timings: &LeaseTimings) -> Self {
        Self { regrant_after: timings.regrant_after, changed_at: Revision(0) }
    }

    /// The ceiling once the timings are changed at an entry. `granted` tells whether any lease can have been
    /// granted before.
    #[must_use]
    pub fn after_change(self, to: &LeaseTimings, at: Revision, granted: bool) -> Self {
        let before = if granted { self.regrant_after } else { Duration::ZERO };
        Self { regrant_after: before.max(to.regrant_after), changed_at: at }
    }
}
