//! Bugs that are planted on purpose, one at a time (or one together with the rule behind it that hides it), to show
//! that the simulation finds them (docs/failure-model.md).
//!
//! Code asks [`is`] at the one place where a rule is kept. Without the feature `armed`, which only the simulation sets,
//! the answer is a constant `false` and nothing of the question is left in the program.

use std::fmt;
use std::str::FromStr;

macro_rules! bugs {
    ($($(#[$what:meta])* $bug:ident = $name:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[$what])* $bug,)*
        }

        impl Bug {
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// Its name on command lines and in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A member says that an entry is on its disk before it is.
    AcknowledgedBeforeFsync = "acknowledged-before-fsync",
    /// An agent counts a lease from when it came, not from when it sent the heartbeat, however late that is.
    LeaseFromReceipt = "lease-from-receipt",
    /// A leader grants leases without asking a quorum whether it still leads.
    LeaseWithoutQuorum = "lease-without-quorum",
    /// A new leader declares nodes lost without waiting for the leases of the one before.
    NewLeaderDoesNotWait = "new-leader-does-not-wait",
    /// Whoever leads waits only for leases as they are granted now, not for those of before the timings were shortened.
    CeilingIgnored = "ceiling-ignored",
    /// A supervisor obeys leaders and allocations that were superseded.
    FenceUncheckedAtSupervisor = "fence-unchecked-at-supervisor",
    /// An agent obeys leaders that were deposed.
    TermUncheckedAtAgent = "term-unchecked-at-agent",
    /// The ledger takes the loss of a node, and what is reported, whatever epoch it is of.
    EpochUncheckedInLedger = "epoch-unchecked-in-ledger",
    /// A plan is carried out without being validated again.
    PlanNotValidated = "plan-not-validated",
    /// Snapshots leave out the requests that were answered.
    RequestsForgotten = "requests-forgotten",
    /// A watch that goes on at another member begins with what happens from then on.
    WatchSkips = "watch-skips",
    /// Snapshots leave out the newest job.
    SnapshotWithoutLast = "snapshot-without-last",
    /// A state that was read from a snapshot is taken whatever its digest.
    RestoredUnchecked = "restored-unchecked",
    /// A kill counts as done once the signal was sent.
    KillBelieved = "kill-believed",
    /// The silence of a node that cannot end what its work forked is taken for a stop.
    SilenceBelieved = "silence-believed",
    /// The order to a worker names the block before each run of its blocks, which is its neighbour's.
    BlocksOfNeighbour = "blocks-of-neighbour",
    /// A job that is refused uses up a number all the same.
    RefusedTakesNumber = "refused-takes-number",
    /// An entry without commands is not noted.
    EntryUnnoted = "entry-unnoted",
    /// A watch of what is not remembered any more goes on with what is.
    WatchPastForgotten = "watch-past-forgotten",
    /// Log time is what the leader's wall clock shows.
    LogTimeFromWallClock = "log-time-from-wall-clock",
    /// A leader that cannot have its leadership confirmed keeps its agents, and they keep it.
    AgentsKept = "agents-kept",
    /// The source of a move counts as stopped once it is told to stop.
    SourceBelieved = "source-believed",
    /// An attempt goes on from the checkpoint before the newest.
    CheckpointPassedOver = "checkpoint-passed-over",
    /// A checkpoint that an agent does not name counts as gone, though the list may be older than it.
    AbsenceBelieved = "absence-believed",
    /// A member takes what it cannot read for the leader's own without asking the leader, and stops.
    StrangerBelieved = "stranger-believed",
    /// A copy of a member that fell silent goes on to count, so that each message of the member renews the minute in
    /// which neither is listened to.
    DeafnessRenewed = "deafness-renewed",
    /// A follower takes a leader that does not answer for one whose process has ended.
    SilenceIsEvidence = "silence-is-evidence",
    /// A follower that took its leader's process to have ended elects others though it hears the leader again.
    LeaseNotHonoured = "lease-not-honoured",
    /// A leader that stood still for longer than a lease says nothing, as its core does.
    SilentAfterPause = "silent-after-pause",
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no bug has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBug(pub String);

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no bug is called {:?}; there are:", self.0)?;
        Bug::ALL.iter().try_for_each(|bug| write!(f, " {bug}"))
    }
}

impl std::error::Error for UnknownBug {}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        let found = Self::ALL.iter().find(|bug| bug.name() == name);
        found.copied().ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

#[cfg(not(feature = "armed"))]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "armed")]
mod armed {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Bug;

    /// A bit for each planted bug.
    static PLANTED: AtomicU32 = AtomicU32::new(0);

    const fn bit(bug: Bug) -> u32 {
        1 << bug as u32
    }

    #[must_use]
    pub fn is(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) & bit(bug) != 0
    }

    /// Plants a bug, beside those that are planted already, for the whole process.
    pub fn plant(bug: Bug) {
        PLANTED.fetch_or(bit(bug), Ordering::Relaxed);
    }
}

#[cfg(feature = "armed")]
pub use armed::{is, plant};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_known_by_name() {
        for bug in Bug::ALL {
            assert_eq!(bug.name().parse(), Ok(*bug));
        }
        assert!("none".parse::<Bug>().is_err_and(|error| error.to_string().contains("kill-believed")));
    }

    #[test]
    #[cfg(not(feature = "armed"))]
    fn without_the_feature_nothing_is_planted() {
        assert!(Bug::ALL.iter().all(|bug| !is(*bug)));
    }

    #[test]
    #[cfg(feature = "armed")]
    fn only_what_was_planted_is_there() {
        plant(Bug::WatchSkips);
        assert!(is(Bug::WatchSkips) && !is(Bug::KillBelieved));
        plant(Bug::KillBelieved);
        assert!(is(Bug::WatchSkips) && is(Bug::KillBelieved) && !is(Bug::EpochUncheckedInLedger));
    }
}
