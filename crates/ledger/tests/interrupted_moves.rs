//! Moves that are interrupted: the sequence of a move, cut off after each of its steps by everything that can happen
//! there, and by two of them after one another; and longer stories that are drawn. After every command the laws hold
//! (see `pool`), every block has one owner, the job has one place, and no place is given away before its worker is
//! known to have stopped. Then everything is mended, and the job comes to its end, from no earlier than what it saved
//! last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, BlockState, CardHealth, CardKind, CheckpointKey, CheckpointMode,
    Command, Eligibility, Event, Job, JobId, JobState, MilliTflops, Move, MovePhase, NodeId, NodeState, Observation,
    Owner, PlanPart, PlannedWorker, StopCause, WorkerReport, WorkerState,
};

use crate::pool::{Pool, card, exited, node, numbered, saved, slice, stopped};

/// Steps of a move, and those before and after it.
const STEPS: usize = 8;
/// Blocks of each node.
const BLOCKS: u32 = 4;

/// An event between two steps of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interruption {
    /// A node's lease is provably over.
    Lost(Side),
    /// A node is back.
    Back(Side),
    /// An agent is started anew.
    Anew(Side),
    /// A card is found unhealthy.
    Sick(Side),
    /// A node takes no more work.
    Closed(Side, Eligibility),
    /// A worker fails by itself.
    Fails(Side),
    /// Nothing is left of a worker.
    Vanishes(Side),
    /// A worker cannot be stopped.
    Stuck(Side),
    /// The leader takes the move to be over.
    GivenUp,
    Cancelled,
    Suspended,
    /// A member that was away is brought up to date, and leads.
    Restored,
    /// The next step of the sequence.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

const ALL: [Interruption; 22] = {
    use Interruption::{
        Anew, Back, Cancelled, Closed, Fails, GivenUp, Lost, Nothing, Restored, Sick, Stuck, Suspended, Vanishes,
    };
    use Side::{Source, Target};
    [
        Lost(Source),
        Lost(Target),
        Back(Source),
        Back(Target),
        Anew(Source),
        Anew(Target),
        Sick(Source),
        Sick(Target),
        Closed(Source, Eligibility::Draining),
        Closed(Target, Eligibility::Draining),
        Closed(Source, Eligibility::Cordoned),
        Closed(Target, Eligibility::Cordoned),
        Fails(Source),
        Fails(Target),
        Vanishes(Source),
        Vanishes(Target),
        Stuck(Source),
        GivenUp,
        Cancelled,
        Suspended,
        Restored,
        Nothing,
    ]
};

/// A job that saves itself, and three nodes of one card that it fills.
struct Journey {
    pool: Pool,
    job: JobId,
    /// Workers that are known to have stopped.
    stopped: BTreeSet<Owner>,
    /// The saved checkpoints, and the node that each lies on.
    saved: BTreeMap<CheckpointKey, NodeId>,
    /// Allocations that were seen in force.
    begun: BTreeSet<AllocationId>,
    progress: u64,
}

impl Journey {
    fn new() -> Self {
        let cards = [card(CardKind::Gpu, u64::from(BLOCKS))];
        let mut pool = Pool::with_nodes(&[&cards[..]; 3]);
        let job = pool.submit(|spec| {
            spec.virtual_card.compute = MilliTflops::from_tflops(u64::from(BLOCKS));
            spec.checkpoint.mode = CheckpointMode::Cooperative;
            spec.retry.max_retries = 50;
        });
        let (stopped, saved, begun) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        Self { pool, job, stopped, saved, begun, progress: 0 }
    }

    fn job(&self) -> &Job {
        self.pool.state.job(self.job).expect("it stays in the ledger")
    }

    fn movement(&self) -> Option<Move> {
        self.pool.state.moves().next().map(|movement| (**movement).clone())
    }

    /// A side of the move; without one, where the job is, and a node beside that.
    fn place(&self, side: Side) -> (NodeId, Option<Arc<Allocation>>) {
        let allocation = |id: AllocationId| self.pool.state.allocation(id).cloned();
        let held = match (self.movement(), side) {
            (Some(movement), Side::Source) => allocation(movement.source),
            (Some(movement), Side::Target) => allocation(movement.target),
            (None, Side::Source) => self.job().allocation.and_then(allocation),
            (None, Side::Target) => None,
        };
        let otherwise = NodeId(u32::from(side == Side::Target));
        (held.as_ref().map_or(otherwise, |held| held.workers[0].node), held)
    }

    /// Brings a command into the log and looks at what came of it.
    fn run(&mut self, command: Command) {
        let before = self.pool.state.clone();
        self.pool.run(command);
        let state = &self.pool.state;
        assert_eq!(state.cards().map(|(_, card)| u64::from(card.blocks.0)).sum::<u64>(), u64::from(BLOCKS) * 3);
        let in_force = |held: &&Arc<Allocation>| held.phase == AllocationPhase::Active;
        let places: Vec<AllocationId> = state.allocations().filter(in_force).map(|held| held.id).collect();
        assert!(places.len() <= 1, "the job has one place: {places:?}");
        if self.job().state == JobState::Running {
            assert_eq!(places, Vec::from_iter(self.job().allocation), "it runs where it is said to run");
        }
        let after = owners(state, |_| true);
        let ordered = |held: &Allocation| matches!(held.phase, AllocationPhase::Active | AllocationPhase::Ending);
        for owner in owners(&before, ordered) {
            let known = after.contains(&owner) || self.stopped.contains(&owner);
            assert!(known, "{owner:?} lost its blocks, and nobody said that it stopped");
        }
        for event in state.events_of(state.revision()).into_iter().flat_map(|entry| entry.events.iter()) {
            if let Event::Job { from: Some(from), to, .. } = event {
                assert!(from == to || from.can_become(*to), "{from:?} to {to:?}");
            }
        }
        for id in places.into_iter().filter(|id| !self.begun.contains(id)).collect::<Vec<_>>() {
            self.begins(id);
        }
    }

    /// An allocation is in force: it goes on from the newest that can be had.
    fn begins(&mut self, id: AllocationId) {
        let state = &self.pool.state;
        let there = |(key, node): &(&CheckpointKey, &NodeId)| {
            state.is_ready(**node) && self.job().checkpoints.get(**key).is_some()
        };
        let newest = self.saved.iter().rev().find(there).map(|(key, _)| *key);
        assert_eq!(state.allocation(id).expect("it is there").from, newest, "of {:?}", self.saved);
        self.begun.insert(id);
    }

    fn report(&mut self, held: &Allocation, observation: Observation) {
        let worker = &held.workers[0];
        let owner = held.owner(worker.rank);
        if matches!(observation, Observation::Stopped(_)) {
            self.stopped.insert(owner);
        }
        if let Observation::Saved(part) = &observation {
            let present = self.job().allocation == Some(held.id) && worker.state != WorkerState::Stopped;
            let key = CheckpointKey { attempt: held.attempt, sequence: part.sequence };
            if present {
                self.saved.insert(key, worker.node);
            }
        }
        let reports = vec![WorkerReport { worker: owner, observation }];
        self.run(Command::ReportWorkers { node: worker.node, reports });
    }

    /// A worker saves itself and ends, as it was told to.
    fn stops(&mut self, held: &Allocation) {
        self.progress += 1;
        self.report(held, saved(CheckpointKey::LAST, self.progress));
        self.report(held, stopped(StopCause::Ordered, Some(0)));
    }

    /// Takes the next step of the leader and the agents, as when nothing comes between.
    fn go_on(&mut self) {
        self.pool.time += 5_000;
        if let Some(movement) = self.movement() {
            return self.advance(&movement);
        }
        let held = self.job().allocation.and_then(|id| self.pool.state.allocation(id)).cloned();
        match (self.job().state, held) {
            (JobState::Running, Some(held)) if self.progress == 0 => {
                self.progress += 1;
                self.report(&held, saved(1, self.progress));
            }
            (JobState::Running, Some(_)) if self.begun.len() == 1 => self.plan(true),
            (JobState::Running, Some(held)) => self.report(&held, exited(0)),
            (JobState::Starting, Some(held)) => self.report(&held, Observation::Running),
            (JobState::Suspending | JobState::Completing, Some(held)) => self.stops(&held),
            (JobState::Pending | JobState::Suspended, _) if self.job().parked => {
                self.run(Command::ResumeJob { job: self.job });
            }
            (JobState::Pending | JobState::Suspended, _) => self.plan(false),
            _ => {}
        }
    }

    fn advance(&mut self, movement: &Move) {
        let (id, from) = (movement.id, movement.phase);
        let (source, target) = (self.place(Side::Source).1, self.place(Side::Target));
        match (from, source, target.1) {
            (MovePhase::Reserved | MovePhase::Transferring, ..) => {
                let proceed = self.takes_work(target.0);
                self.run(Command::AdvanceMove { id, from, proceed });
            }
            (MovePhase::Suspending, Some(source), _) if source.workers[0].state == WorkerState::Lost => {
                self.run(Command::AdvanceMove { id, from, proceed: false });
            }
            (MovePhase::Suspending, Some(source), _) => self.stops(&source),
            (MovePhase::Resuming, _, Some(target)) => self.report(&target, Observation::Running),
            stray => panic!("a move without its places: {stray:?}"),
        }
    }

    fn takes_work(&self, node: NodeId) -> bool {
        let healthy = |card: &tessera_ledger::Card| card.description.health == CardHealth::Healthy;
        self.pool.state.node(node).is_some_and(|node| node.grantable())
            && self.pool.state.cards_of(node).all(|(_, card)| healthy(card))
    }

    /// Grants the job a free node, or moves it to one.
    fn plan(&mut self, moves: bool) {
        let free = |node: &NodeId| {
            let all_free = |card: &tessera_ledger::Card| {
                card.extents.as_slice().iter().all(|extent| extent.state == BlockState::Free)
            };
            self.takes_work(*node) && self.pool.state.cards_of(*node).all(|(_, card)| all_free(card))
        };
        let Some(node) = (0..3).map(NodeId).find(free) else { return };
        let workers = vec![PlannedWorker { virtual_card: 0, node, slices: vec![slice(node.0, 0, 0, BLOCKS)] }];
        let job = self.job;
        let part =
            if moves { PlanPart::Move { job, workers } } else { PlanPart::Grant { job, workers, victims: vec![] } };
        let plan = tessera_ledger::Plan { revision: self.pool.state.revision(), parts: vec![part] };
        self.run(Command::CommitPlan { plan });
    }

    fn interrupt(&mut self, what: Interruption) {
        match what {
            Interruption::Lost(side) => self.lose(self.place(side).0),
            Interruption::Back(side) => self.back(self.place(side).0),
            Interruption::Anew(side) => self.anew(self.place(side).0),
            Interruption::Sick(side) => self.card_is(self.place(side).0, CardHealth::Unhealthy),
            Interruption::Closed(side, eligibility) => self.set_eligibility(self.place(side).0, eligibility),
            Interruption::Fails(side) => self.says(side, exited(1)),
            Interruption::Vanishes(side) => self.says(side, stopped(StopCause::Vanished, None)),
            Interruption::Stuck(side) => self.says(side, Observation::Unconfirmed { message: "there".to_owned() }),
            Interruption::GivenUp => {
                if let Some(Move { id, phase: from, .. }) = self.movement() {
                    self.run(Command::AdvanceMove { id, from, proceed: false });
                }
            }
            Interruption::Cancelled => self.run(Command::CancelJob { job: self.job }),
            Interruption::Suspended => self.run(Command::SuspendJob { job: self.job }),
            Interruption::Restored => {
                let written: Vec<_> = encode_snapshot(&self.pool.state).collect();
                self.pool.state = decode_snapshot(written).expect("what was written can be read");
            }
            Interruption::Nothing => self.go_on(),
        }
    }

    /// A worker that was given an order says something.
    fn says(&mut self, side: Side, observation: Observation) {
        let held = self.place(side).1.filter(|held| held.phase != AllocationPhase::Reserved);
        if let Some(held) = held {
            self.report(&held, observation);
        }
    }

    fn lose(&mut self, node: NodeId) {
        let epoch = self.pool.state.node(node).expect("it is registered").epoch;
        let here = owners(&self.pool.state, |held| held.workers[0].node == node);
        self.stopped.extend(here);
        self.run(Command::NodeLost { node, epoch });
    }

    fn back(&mut self, node: NodeId) {
        let incarnation = self.pool.state.node(node).expect("it is registered").description.incarnation;
        self.run(Command::NodeReturned { node, incarnation });
    }

    fn anew(&mut self, id: NodeId) {
        let known = self.pool.state.node(id).expect("it is registered").description.clone();
        let description =
            tessera_ledger::NodeDescription { incarnation: known.incarnation + 1, ..node(&format!("n{}", id.0)) };
        let cards = numbered(&[card(CardKind::Gpu, u64::from(BLOCKS))]);
        self.run(Command::RegisterNode { node: description, cards });
    }

    fn card_is(&mut self, node: NodeId, health: CardHealth) {
        let (_, card) = self.pool.state.cards_of(node).next().expect("it has one");
        let cards = vec![tessera_ledger::CardDescription { health, ..card.description.clone() }];
        self.run(Command::UpdateCards { node, cards });
    }

    fn set_eligibility(&mut self, node: NodeId, eligibility: Eligibility) {
        self.run(Command::SetEligibility { node, eligibility, reason: "why not".to_owned() });
    }

    /// Everything is mended, and the job comes to its end.
    fn ends(&mut self) {
        for node in (0..3).map(NodeId) {
            self.card_is(node, CardHealth::Healthy);
            self.set_eligibility(node, Eligibility::Eligible);
            if self.pool.state.node(node).is_some_and(|node| node.state == NodeState::Lost) {
                self.back(node);
            }
        }
        for _ in 0..2 * STEPS {
            if self.job().state.is_terminal() {
                break;
            }
            self.go_on();
        }
        assert!(self.job().state.is_terminal(), "{:?}: {:?}", self.job().state, self.job().reason);
        let state = &self.pool.state;
        assert_eq!((state.moves().count(), state.allocations().count()), (0, 0), "nothing is left over");
        assert_eq!(state.block_counts().free, u64::from(BLOCKS) * 3);
    }
}

/// The owners of blocks, of the allocations that are meant.
fn owners(state: &tessera_ledger::State, meant: impl Fn(&Allocation) -> bool) -> BTreeSet<Owner> {
    let live = state.allocations().filter(|held| meant(held)).filter(|held| !held.is_over());
    live.map(|held| held.owner(held.workers[0].rank)).collect()
}

fn tell(steps: usize, interruptions: &[Interruption]) {
    let mut journey = Journey::new();
    (0..steps).for_each(|_| journey.go_on());
    interruptions.iter().for_each(|what| journey.interrupt(*what));
    journey.ends();
}

#[test]
fn a_move_is_cut_off_after_each_step_by_everything_and_everything_else() {
    for steps in 0..=STEPS {
        for one in ALL {
            ALL.iter().for_each(|other| tell(steps, &[one, *other]));
        }
    }
}

/// The sequence without anything between is the sequence of a move.
#[test]
fn the_steps_are_those_of_a_move() {
    let mut journey = Journey::new();
    let phases: Vec<Option<MovePhase>> = (0..STEPS)
        .map(|_| {
            journey.go_on();
            journey.movement().map(|movement| movement.phase)
        })
        .collect();
    let moving = [MovePhase::Reserved, MovePhase::Suspending, MovePhase::Transferring, MovePhase::Resuming];
    let expected: Vec<Option<MovePhase>> = [None; 3].into_iter().chain(moving.map(Some)).chain([None]).collect();
    assert_eq!((phases, journey.job().state), (expected, JobState::Running));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_interrupts_a_move_leaves_one_place_and_the_job_ends(
        steps in 0..=STEPS,
        interruptions in prop::collection::vec(prop::sample::select(ALL.to_vec()), 1..12),
    ) {
        tell(steps, &interruptions);
    }
}
