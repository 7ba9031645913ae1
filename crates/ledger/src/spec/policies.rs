//! Policies for a job that is interrupted: its suspension, the cut-off of its node, and further attempts.

use std::time::Duration;

use crate::checkpoint::CHECKPOINTS_KEPT;

/// The label of nodes whose agents dump and restore programs that know nothing of it, and its value: by what.
pub const TRANSPARENT_LABEL: (&str, &str) = ("tessera.transparent", "criu");

/// Three honest ways to suspend (architecture section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckpointMode {
    /// A signal and a grace time; the program writes its checkpoint and exits.
    Cooperative,
    /// The process image is dumped.
    Transparent,
    /// Stopped, and started again from the beginning.
    #[default]
    Requeue,
}

impl CheckpointMode {
    /// Returns whether this mode can stand in for another one that is not possible at the moment.
    #[must_use]
    pub fn is_one_for(self, mode: Self) -> bool {
        self == Self::Requeue || (self, mode) == (Self::Cooperative, Self::Transparent)
    }
}

/// Policy for suspending a job and for keeping its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointPolicy {
    pub mode: CheckpointMode,
    /// Signal that asks the program to stop.
    pub signal: String,
    /// Time until it is killed.
    pub grace: Duration,
    /// Interval at which a cooperative program is asked to save while it runs on; `None`: only when it is stopped.
    pub every: Option<Duration>,
    /// Checkpoints that are kept, the newest that count; `None`: [`CHECKPOINTS_KEPT`].
    pub keep: Option<u32>,
    /// Mode for a program that was to be dumped and cannot be: [`CheckpointMode::Cooperative`] saves what it writes
    /// when it is told to stop; [`CheckpointMode::Requeue`] saves nothing.
    pub fallback: CheckpointMode,
}

impl CheckpointPolicy {
    /// The number of checkpoints that are retained, of those that count.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.keep.map_or(CHECKPOINTS_KEPT, |keep| keep as usize)
    }
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self {
            mode: CheckpointMode::Requeue,
            signal: "SIGTERM".to_owned(),
            grace: Duration::from_secs(10),
            every: None,
            keep: None,
            fallback: CheckpointMode::Requeue,
        }
    }
}

/// Policy for the work when its node is cut off for longer than its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnDisconnect {
    /// It is stopped and tried elsewhere.
    #[default]
    Stop,
    /// It goes on; its blocks are not granted again until the node is back or forgotten.
    Keep,
}

/// Policy for retries after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub max_retries: u32,
    /// Wait before the first one; doubled for each further one.
    pub backoff: Duration,
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 0, backoff: Duration::from_secs(1), max_backoff: Duration::from_secs(300) }
    }
}

impl RetryPolicy {
    /// The wait before retry number `retry`, counted from 1.
    #[must_use]
    pub fn wait_before(&self, retry: u32) -> Duration {
        let doubled = self.backoff.saturating_mul(1u32.checked_shl(retry.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.max_backoff)
    }
}
