//! Release levels: what every member of a pool can apply (law L7). Here it is said what is new, but for whole commands,
//! whose levels are in the table of [`Command`], and for what is done otherwise, which is in [`Rule`](crate::Rule).
//!
//! Every release has a [`Level`]. Members announce the highest one that they can apply; the level *in force* is part of
//! the state, begins at the lowest one with an empty log, and is raised by [`Command::RaiseLevel`], which the leader
//! proposes by itself once every member announces it. It is never lowered. Until then nothing that is new is written
//! anywhere, so that members of the release before can take part, or come back.
//!
//! What a release brings is declared, and is in force only from its level on:
//!
//! * **A command**: its row in the table of [`Command`].
//! * **A field** of one: `Needs`. Everything that a command carries is taken apart field by field, so that nothing can
//!   be added without saying its level. [`State::apply`] refuses what needs a level that is not in force, and
//!   [`encode_request`](crate::wire::encode_request) does not write it.
//! * **A rule**, that is a change of what `apply` does with what older releases have written already: a
//!   [`Rule`](crate::Rule). `apply` asks `self.follows(Rule::..)` and keeps the old way in the other branch, for as
//!   long as logs of the old level are read. A new refusal is such a change: an entry that was accepted once must be
//!   accepted whenever the log is replayed.
//! * **A part of the state**: nothing has to be declared. It has a meaning when it is absent, it is not written while
//!   it means that, and only commands or rules of the new level change it. So the digest of a state stays what it was.

use std::fmt;

use crate::affinity::Affinity;
use crate::allocation::{PlannedWorker, Slice, WorkerExit};
use crate::card::CardDescription;
use crate::checkpoint::SavedPart;
use crate::command::{Command, Observation, Plan, PlanPart, WorkerReport};
use crate::config::{CompactionPolicy, PoolConfig, PoolLimits};
use crate::lease::LeaseTimings;
use crate::node::{AgentStart, Containment, NodeDescription};
use crate::queue::QueueSettings;
use crate::rejection::Rejection;
use crate::spec::{CheckpointPolicy, JobSpec};
use crate::state::State;
use crate::virtual_card::VirtualCardRequest;

/// What a release can apply. Levels are ordered: a release can apply every level up to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// 0.1, the first release: the level of an empty log.
    #[default]
    One,
    /// No release: it stands for the next one in tests of upgrades, and only members that are told so announce it. Its
    /// number is above every release's, so that no release takes a pool that was drilled for its own.
    Drill,
}

impl Level {
    /// Every level, lowest first.
    pub const ALL: [Self; 2] = [Self::One, Self::Drill];

    /// The level of this release.
    pub const NEWEST: Self = Self::One;

    /// Its number in the log, in snapshots and between members. None is 0: what carries no number says no level. Nor
    /// will one be 2, which builds before 0.1 had.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Drill => 1_000,
        }
    }

    /// The level of that number; `None` when this release does not know it.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.number() == number)
    }

    /// The highest level that a member which announces `number` can apply and this release knows; `None` when there is
    /// none.
    #[must_use]
    pub fn up_to(number: u32) -> Option<Self> {
        Self::ALL.into_iter().filter(|level| level.number() <= number).max()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

impl State {
    /// The release level in force.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }
}

/// Refuses what needs a level that is not in force.
///
/// # Errors
/// [`Rejection::LevelNotInForce`].
pub(crate) fn check(command: &Command, in_force: Level) -> Result<(), Rejection> {
    let needs = command.needs();
    if needs <= in_force { Ok(()) } else { Err(Rejection::LevelNotInForce { needs, in_force }) }
}

/// Something that the log carries.
pub(crate) trait Needs {
    /// The level that must be in force for it. Whoever adds a field names it here: what it needs when it says
    /// something, and the lowest level when it says what its absence means.
    fn needs(&self) -> Level;
}

/// The most that any of them needs.
fn all<'a, T: Needs + 'a>(things: impl IntoIterator<Item = &'a T>) -> Level {
    things.into_iter().map(Needs::needs).max().unwrap_or_default()
}

impl Needs for Command {
    fn needs(&self) -> Level {
        let fields = match self {
            Self::RegisterNode { node, cards } => node.needs().max(all(cards)),
            Self::UpdateCards { node: _, cards } => all(cards),
            Self::SubmitJob { spec, traceparent: _, secret: _ } => spec.needs(),
            Self::SetQueue { queue } => queue.needs(),
            Self::SetConfig { config, expected } => config.needs().max(all(expected.as_deref())),
            Self::CommitPlan { plan } => plan.needs(),
            Self::ReportWorkers { node: _, reports } => all(reports),
            Self::NoteKept { node: _, kept: _, gone: _ }
            | Self::CloseUntil { whose: _, windows: _, time: _ }
            | Self::GrowJob { job: _, allocation: _ }
            | Self::NoteIdle { job: _, attempt: _, since: _, step: _ }
            | Self::SetEligibility { node: _, eligibility: _, reason: _ }
            | Self::DrainNode { node: _, reason: _, within: _ }
            | Self::NodeLost { node: _, epoch: _ }
            | Self::NodeReturned { node: _, incarnation: _ }
            | Self::ForgetNode { node: _ }
            | Self::ConfirmStopped { node: _ }
            | Self::UpdateCached { node: _, cached: _ }
            | Self::CancelJob { job: _ }
            | Self::ExpireJob { job: _, allocation: _ }
            | Self::HoldJob { job: _ }
            | Self::ReleaseJob { job: _ }
            | Self::SuspendJob { job: _ }
            | Self::ResumeJob { job: _ }
            | Self::RemoveQueue { name: _ }
            | Self::AdvanceMove { id: _, from: _, proceed: _ }
            | Self::SettleLeases { changed_at: _ }
            | Self::Tick
            | Self::Drill
            | Self::RaiseLevel { to: _ } => Level::One,
        };
        fields.max(self.kind().since)
    }
}

impl Needs for PoolConfig {
    fn needs(&self) -> Level {
        let Self {
            reference_precision: _,
            block_size: _,
            request_retention: _,
            request_limit: _,
            job_retention: _,
            ended_job_limit: _,
            job_limit: _,
            output_retention: _,
            event_limit: _,
            preemptions_per_hour: _,
            first_master_port: _,
            master_ports: _,
            packing: _,
            fair_share_half_life: _,
            oversubscription: _,
            compaction: CompactionPolicy { automatic: _, threshold: _, moves_per_hour: _ },
            leases: LeaseTimings { heartbeat: _, stop_after: _, kill_after: _, regrant_after: _ },
            limits: PoolLimits { spec_bytes: _, queues: _, nodes: _, cards: _, events: _ },
            hold_level: _,
        } = self;
        Level::One
    }
}

impl Needs for NodeDescription {
    fn needs(&self) -> Level {
        let Self {
            name: _,
            uid: _,
            incarnation: _,
            agent_version: _,
            address: _,
            worker_host: _,
            labels: _,
            host: _,
            cached: _,
            start: AgentStart { boot_id: _, nonce: _ },
            containment: Containment::Whole | Containment::Partial { missing: _ },
        } = self;
        Level::One
    }
}

impl Needs for CardDescription {
    fn needs(&self) -> Level {
        let Self {
            index: _,
            kind: _,
            vendor: _,
            model: _,
            uuid: _,
            memory: _,
            rated: _,
            measured: _,
            links: _,
            isolation: _,
            simulated: _,
            pci_address: _,
            max_slices: _,
            health: _,
        } = self;
        Level::One
    }
}

impl Needs for JobSpec {
    fn needs(&self) -> Level {
        let Self {
            name: _,
            queue: _,
            command: _,
            environment: _,
            working_directory: _,
            script: _,
            gang: _,
            virtual_card,
            priority: _,
            preemptible: _,
            checkpoint,
            on_disconnect: _,
            time_limit: _,
            retry: _,
            labels: _,
            node_labels: _,
            output_retention: _,
            held: _,
            host: _,
            gang_min: _,
            grow_after: _,
            min_runtime: _,
            affinity: Affinity { preferred: _, together: _, spread: _, avoid: _, data: _ },
            packing: _,
            windows: _,
        } = self;
        virtual_card.needs().max(checkpoint.needs())
    }
}

impl Needs for CheckpointPolicy {
    fn needs(&self) -> Level {
        let Self { mode: _, signal: _, grace: _, every: _, keep: _, fallback: _ } = self;
        Level::One
    }
}

impl Needs for VirtualCardRequest {
    fn needs(&self) -> Level {
        let Self {
            compute: _,
            memory: _,
            precision: _,
            span: _,
            kinds: _,
            mixed: _,
            isolation: _,
            vendors: _,
            models: _,
            whole_cards: _,
            slice_memory: _,
            access: _,
            elastic: _,
        } = self;
        Level::One
    }
}

impl Needs for QueueSettings {
    fn needs(&self) -> Level {
        let Self {
            name: _,
            parent: _,
            guaranteed: _,
            maximum: _,
            weight: _,
            packing: _,
            windows: _,
            idle: _,
            checkpoints: _,
            attained: _,
        } = self;
        Level::One
    }
}

impl Needs for Plan {
    fn needs(&self) -> Level {
        let Self { revision: _, parts } = self;
        all(parts)
    }
}

impl Needs for PlanPart {
    fn needs(&self) -> Level {
        match self {
            Self::Grant { job: _, workers, victims: _ } | Self::Move { job: _, workers } => all(workers),
            Self::Evict { job: _, node: _ } | Self::Renumber { card: _ } => Level::One,
        }
    }
}

impl Needs for PlannedWorker {
    fn needs(&self) -> Level {
        let Self { virtual_card: _, node: _, slices } = self;
        all(slices)
    }
}

impl Needs for Slice {
    fn needs(&self) -> Level {
        let Self { card: _, start: _, length: _, memory: _, isolation: _ } = self;
        Level::One
    }
}

impl Needs for WorkerReport {
    fn needs(&self) -> Level {
        let Self { worker: _, observation } = self;
        match observation {
            Observation::Running
            | Observation::Unconfirmed { message: _ }
            | Observation::Stopped(WorkerExit {
                cause: _,
                code: _,
                signal: _,
                checkpointed: _,
                message: _,
                not_saved: _,
                ended_at: _,
            })
            | Observation::Saved(SavedPart {
                sequence: _,
                progress: _,
                bytes: _,
                hash: _,
                ticket: _,
                shared: _,
                mode: _,
            })
            | Observation::Unusable { lost: _, message: _ } => Level::One,
        }
    }
}

#[cfg(test)]
#[path = "level_tests.rs"]
mod tests;
