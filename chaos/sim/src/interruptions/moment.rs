//! The moments: the steps of everything that is done to running work, as they are read off an entry of the log.

use std::collections::BTreeSet;

use tessera_agent::worker::WorkerId;
use tessera_ledger::{
    AllocationId, CheckpointKey, Command, Event, JobId, JobState, MoveId, MovePhase, NodeId, Observation, Rank, Reason,
    WorkerReport,
};

use super::Victim;
use crate::journal::Applied;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The target of a move is reserved; the source runs.
    Reserved,
    /// The source of a move is told to stop.
    Suspending,
    /// The source of a move has stopped.
    Transferring,
    /// The target of a move is told to start.
    Resuming,
    /// The target of a move runs: the move is over.
    Confirmed,
    /// A move is given up.
    GivenUp,
    /// A person suspends a job.
    Suspended,
    /// The last save of a job that was stopped is reported.
    Saved,
    /// A job that was suspended is granted a place again.
    Resumed,
    /// A job is told to give way.
    Preempted,
    /// The node of a job is to be empty by some time.
    Drained,
    /// One worker of a gang has saved, and another has not yet.
    PartSaved,
    /// A gang is stopped to grow.
    Growing,
}

/// A worker and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub node: NodeId,
    pub worker: WorkerId,
}

/// A moment that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub moment: Moment,
    pub job: JobId,
    /// The spot where the job computes or did, or where its checkpoint lies.
    pub source: Option<Spot>,
    /// The spot where the job is to compute.
    pub target: Option<Spot>,
}

impl Moment {
    pub const ALL: [Self; 13] = [
        Self::Reserved,
        Self::Suspending,
        Self::Transferring,
        Self::Resuming,
        Self::Confirmed,
        Self::GivenUp,
        Self::Suspended,
        Self::Saved,
        Self::Resumed,
        Self::Preempted,
        Self::Drained,
        Self::PartSaved,
        Self::Growing,
    ];

    /// Its name in a report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "target of a move reserved",
            Self::Suspending => "source of a move told to stop",
            Self::Transferring => "source of a move stopped",
            Self::Resuming => "target of a move told to start",
            Self::Confirmed => "target of a move runs",
            Self::GivenUp => "move given up",
            Self::Suspended => "job suspended",
            Self::Saved => "last checkpoint of an attempt told",
            Self::Resumed => "suspended job granted",
            Self::Preempted => "job preempted",
            Self::Drained => "node drained by some time",
            Self::PartSaved => "gang saved in part",
            Self::Growing => "gang stopped to grow",
        }
    }

    /// The victims that can be hit then: a worker only where one is or will be at once, a target only where there is
    /// one.
    pub const fn victims(self) -> &'static [Victim] {
        use Victim::{
            LeaderCutOff, LeaderDies, LeaderHandsOver, LeaderParted, SourceAgent, SourceMachine, SourceWorker,
            TargetAgent, TargetMachine, TargetWorker,
        };
        match self {
            Self::Reserved | Self::Suspending | Self::GivenUp => &[
                LeaderHandsOver,
                LeaderDies,
                LeaderParted,
                LeaderCutOff,
                SourceAgent,
                SourceWorker,
                SourceMachine,
                TargetAgent,
                TargetMachine,
            ],
            // The source has stopped, and the target was not told to start.
            Self::Transferring => &[
                LeaderHandsOver,
                LeaderDies,
                LeaderParted,
                LeaderCutOff,
                SourceAgent,
                SourceMachine,
                TargetAgent,
                TargetMachine,
            ],
            Self::Resuming | Self::Confirmed | Self::Resumed => &[
                LeaderHandsOver,
                LeaderDies,
                LeaderParted,
                LeaderCutOff,
                SourceAgent,
                SourceMachine,
                TargetAgent,
                TargetWorker,
                TargetMachine,
            ],
            // The worker has ended.
            Self::Saved => &[LeaderHandsOver, LeaderDies, LeaderParted, LeaderCutOff, SourceAgent, SourceMachine],
            Self::Suspended | Self::Preempted | Self::Drained | Self::PartSaved | Self::Growing => {
                &[LeaderHandsOver, LeaderDies, LeaderParted, LeaderCutOff, SourceAgent, SourceWorker, SourceMachine]
            }
        }
    }
}

/// The moments that come with an entry.
pub fn seen_in(entry: &Applied) -> Vec<Sighting> {
    let mut seen = moves(entry);
    seen.extend(entry.events.iter().filter_map(|event| turn(entry, event)));
    for command in entry.done() {
        match command {
            Command::DrainNode { node, .. } => seen.extend(drained(entry, *node)),
            Command::ReportWorkers { reports, .. } => {
                seen.extend(reports.iter().filter_map(|report| saved(entry, report)));
            }
            _ => {}
        }
    }
    seen
}

/// A worker as it is after an entry, or was before it.
fn spot(entry: &Applied, allocation: AllocationId, rank: Rank) -> Option<Spot> {
    let held = entry.after.allocation(allocation).or_else(|| entry.before.allocation(allocation))?;
    let worker = WorkerId { allocation, epoch: held.epoch, rank };
    Some(Spot { node: held.worker(rank)?.node, worker })
}

/// The spot where a job was, by its history.
fn left(entry: &Applied, job: JobId, allocation: AllocationId) -> Option<Spot> {
    let attempt = entry.after.job(job)?.history.iter().find(|attempt| attempt.allocation == allocation)?;
    let worker = WorkerId { allocation, epoch: attempt.epoch, rank: Rank(0) };
    Some(Spot { node: *attempt.nodes.first()?, worker })
}

/// The first worker of a job's allocation.
fn place_of(entry: &Applied, job: JobId) -> Option<Spot> {
    let of = |state: &tessera_ledger::State| state.job(job).and_then(|job| job.allocation);
    spot(entry, of(&entry.after).or_else(|| of(&entry.before))?, Rank(0))
}

fn moves(entry: &Applied) -> Vec<Sighting> {
    let changed: BTreeSet<MoveId> = entry.events.iter().filter_map(moved).collect();
    let seen = changed.into_iter().filter_map(|id| {
        let after = entry.after.move_in_progress(id);
        let movement = after.or_else(|| entry.before.move_in_progress(id))?;
        let moment = match after.map(|movement| movement.phase) {
            Some(MovePhase::Reserved) => Moment::Reserved,
            Some(MovePhase::Suspending) => Moment::Suspending,
            Some(MovePhase::Transferring) => Moment::Transferring,
            Some(MovePhase::Resuming) => Moment::Resuming,
            None => ended(entry, movement.job)?,
        };
        let source = left(entry, movement.job, movement.source);
        Some(Sighting { moment, job: movement.job, source, target: spot(entry, movement.target, Rank(0)) })
    });
    seen.collect()
}

const fn moved(event: &Event) -> Option<MoveId> {
    match event {
        Event::Move { id, .. } => Some(*id),
        _ => None,
    }
}

/// The moment of a move's end; `None`: it ended with its job, or for another purpose.
fn ended(entry: &Applied, of: JobId) -> Option<Moment> {
    entry.events.iter().find_map(|event| match event {
        Event::Job { job, to: JobState::Running, reason: Reason::Started, .. } if *job == of => Some(Moment::Confirmed),
        Event::Job { job, reason: Reason::MoveFailed, .. } if *job == of => Some(Moment::GivenUp),
        _ => None,
    })
}

fn turn(entry: &Applied, event: &Event) -> Option<Sighting> {
    let Event::Job { job, from, to, reason, .. } = event else { return None };
    let moment = match (from, to, reason) {
        (_, JobState::Suspending, Reason::SuspendedByUser) => Moment::Suspended,
        (_, JobState::Suspending, Reason::Preempted { .. }) => Moment::Preempted,
        (_, JobState::Suspending, Reason::Growing) => Moment::Growing,
        (Some(JobState::Suspended), JobState::Starting, _) => Moment::Resumed,
        _ => return None,
    };
    let place = place_of(entry, *job);
    if moment != Moment::Resumed {
        return Some(Sighting { moment, job: *job, source: place, target: None });
    }
    let resumed = place.and_then(|place| entry.after.allocation(place.worker.allocation))?;
    let from = entry.after.job(*job)?.checkpoints.get(resumed.from?)?;
    let keeper = from.parts.first()?.nodes.first().copied();
    let source = keeper.zip(place).map(|(node, place)| Spot { node, ..place });
    Some(Sighting { moment, job: *job, source, target: place })
}

fn drained(entry: &Applied, node: NodeId) -> Vec<Sighting> {
    let here = entry.after.allocations().filter_map(|held| {
        let source = spot(entry, held.id, Rank(0)).filter(|spot| spot.node == node)?;
        Some(Sighting { moment: Moment::Drained, job: held.job, source: Some(source), target: None })
    });
    here.collect()
}

fn saved(entry: &Applied, report: &WorkerReport) -> Option<Sighting> {
    let Observation::Saved(part) = &report.observation else { return None };
    let owner = entry.before.allocation(report.worker.allocation)?;
    let key = CheckpointKey { attempt: owner.attempt, sequence: part.sequence };
    let checkpoint = entry.after.job(owner.job)?.checkpoints.get(key)?;
    let (moment, rank) = match (0..checkpoint.workers).map(Rank).find(|rank| checkpoint.part(*rank).is_none()) {
        Some(missing) if key.sequence != CheckpointKey::LAST => (Moment::PartSaved, missing),
        None if key.sequence == CheckpointKey::LAST => (Moment::Saved, report.worker.rank),
        _ => return None,
    };
    Some(Sighting { moment, job: owner.job, source: spot(entry, owner.id, rank), target: None })
}
