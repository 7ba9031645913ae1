//! Behaviour that differs from a release level on: one row for each change of what old commands do.

use crate::level::Level;
use crate::state::State;

/// A change in what `apply` does, or in what a snapshot holds, that counts from one release level on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The digest is one of the state itself; before, it was one of all answers and events, sentences for
    /// people included.
    DigestOfState,
    /// A request whose id is not remembered, and is no newer than one that was forgotten, is refused; before, only the
    /// member that took it looked, and two copies under way at once could both be carried out.
    ForgottenRequestsRefused,
    /// A job is blamed for faults of nodes only when it met them on several: before, two sick nodes were enough.
    BlameTakesSeveralNodes,
    /// A job can be suspended while it is being moved; before, whoever wanted that had to wait for the end of the move.
    MovesGiveWay,
    /// The workers of each allocation meet at another port of their node; before, at the lowest free one: one that
    /// something else on the host has was given to the same job again and again.
    PortsTakeTurns,
    /// A gang of which a worker failed while the node of another one was lost, or could not run it, is tried again and
    /// not blamed; before, only when the loss was known before the failure.
    LossesExcuseGangs,
    /// A worker that is lost stays so when its node is lost; before, it was lost once more, or taken for one that had
    /// ended with its lease, though its agent had said that it could not be ended.
    LostUntilKnown,
    /// A snapshot says its level at its end too; before, damage that made it 0 at its beginning, where nothing can be
    /// checked, was not noticed.
    SnapshotsEndWithLevel,
    /// A request id that was made within [`REQUEST_AHEAD`](crate::REQUEST_AHEAD) is not forgotten; before, one from a
    /// clock which was a little ahead could make every id of now look old.
    LateRequestsRemembered,
    /// A gang ends with the exit code of the worker that was the first to fail; before, with that of the failed program
    /// of the lowest rank, which may have been stopped for the failure of another.
    FirstFailureDecides,
    /// A node carries its name as the label [`NODE_KEY`](crate::NODE_KEY) of those that a job asks for; before, only a
    /// label of that key that its agent said.
    NodesCarryTheirNames,
    /// A request that was refused stays refused under its id; before, a copy of it that came late was carried out,
    /// though whoever sent it had been told that it was refused.
    RefusalsLast,
    /// A queue may not be called [`DRILL_QUEUE`]: a new refusal, as a release may bring.
    DrillQueueRefused,
}

/// The name that is refused at [`Level::Drill`].
pub const DRILL_QUEUE: &str = "drill";

impl Rule {
    /// The level from which on it is followed.
    #[must_use]
    pub const fn since(self) -> Level {
        match self {
            Self::DigestOfState | Self::ForgottenRequestsRefused | Self::BlameTakesSeveralNodes => Level::One,
            Self::MovesGiveWay
            | Self::PortsTakeTurns
            | Self::LossesExcuseGangs
            | Self::LostUntilKnown
            | Self::SnapshotsEndWithLevel
            | Self::LateRequestsRemembered
            | Self::NodesCarryTheirNames
            | Self::RefusalsLast
            | Self::FirstFailureDecides => Level::Two,
            Self::DrillQueueRefused => Level::Drill,
        }
    }
}

impl State {
    /// Returns whether a rule applies at the level in force.
    #[must_use]
    pub fn follows(&self, rule: Rule) -> bool {
        self.level >= rule.since()
    }
}
