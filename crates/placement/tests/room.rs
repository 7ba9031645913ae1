//! Room that is made by moves, whole cards, hosts, and the measure of fragmentation.

use proptest::prelude::*;
use tessera_check::check;
use tessera_explain::Preview;
use tessera_ledger::*;
use tessera_placement::{CompactionOrder, Decision, PlannedMove, Pool};

use crate::world;
use crate::world::history::{nodes, step};
use crate::world::{World, cards, job};

const HOST: HostCapacity = HostCapacity { cpu: MilliCpus(10_000), memory: Mebibytes(1000) };

fn with_host(tflops: u64, cpu: u64) -> JobSpec {
    JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(1) }, ..job(tflops, 0) }
}

impl World {
    fn is_limited_move(&self, planned: &PlannedMove) -> bool {
        self.is_limited(&self.state.job(planned.job).unwrap().spec.queue)
    }

    /// Carries moves out through the ledger, step by step, as lifecycle and agents would.
    fn carry_out(&mut self, moves: &[PlannedMove]) {
        for planned in moves {
            let plan = Plan { revision: self.state.revision(), parts: planned.parts() };
            assert_eq!(check(&self.state, &plan), Ok(()));
            self.commit(&Decision { plan, next_wakeup: None, more: false });
            let id = self.state.job(planned.job).unwrap().moving.expect("it moves");
            let advance = |from| Command::AdvanceMove { id, from, proceed: true };
            assert_eq!(self.apply(advance(MovePhase::Reserved)), Outcome::Done);
            self.stop(planned.job);
            assert_eq!(self.apply(advance(MovePhase::Transferring)), Outcome::Done);
            self.start(planned.job);
        }
    }

    /// Room for a job, made by so many moves of whoever may be disturbed.
    fn room(&self, job: JobId, moves: u32) -> Option<Vec<PlannedMove>> {
        let order = CompactionOrder { moves, losing_work: true, ..CompactionOrder::default() };
        self.room_by(job, &order)
    }

    fn room_by(&self, job: JobId, order: &CompactionOrder) -> Option<Vec<PlannedMove>> {
        let before = self.state.digest();
        let made = Pool::new(&self.state).make_room(&self.state, LogTime(self.time), job, order);
        assert_eq!(self.state.digest(), before);
        made
    }

    /// Carries out what makes room for a job, and demands that it starts; answers the jobs that were moved.
    fn make_room(&mut self, job: JobId, moves: u32) -> Vec<JobId> {
        assert!(self.place().is_empty(), "it does not fit before");
        let made = self.room(job, moves).expect("room can be made");
        self.carry_out(&made);
        self.place();
        assert_eq!(self.job_state(job), JobState::Starting);
        made.iter().map(|planned| planned.job).collect()
    }
}

/// A job that can be moved without loss.
fn saving(tflops: u64) -> JobSpec {
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    JobSpec { checkpoint, ..job(tflops, 0) }
}

/// Nodes of so many cards of ten, filled up with jobs of one block; answers the jobs card by card.
fn filled(nodes: &[usize]) -> (World, Vec<Vec<JobId>>) {
    let mut world = World::default();
    let mut jobs = Vec::new();
    for (number, count) in nodes.iter().enumerate() {
        world.node(&format!("n{number}"), cards(&vec![(CardKind::Gpu, 10, 100); *count]));
    }
    for _ in 0..10 * nodes.iter().sum::<usize>() {
        jobs.push(world.submit(saving(1)));
    }
    world.place();
    let mut by_card: std::collections::BTreeMap<CardId, Vec<JobId>> = std::collections::BTreeMap::new();
    for id in jobs {
        world.start(id);
        by_card.entry(world.slices(id)[0].card).or_default().push(id);
    }
    (world, by_card.into_values().collect())
}

#[test]
fn a_move_to_another_card_of_the_node_is_enough() {
    let (mut world, jobs) = filled(&[2]);
    jobs[0][..9].iter().chain(&jobs[1][..5]).for_each(|id| world.finish(*id));
    let waiting = world.submit(job(10, 0));
    assert_eq!(world.make_room(waiting, 1), [jobs[0][9]]);
}

#[test]
fn as_many_as_the_budget_allows_leave_a_card() {
    let (mut world, jobs) = filled(&[1, 1]);
    jobs[0][..6].iter().chain(&jobs[1][..5]).for_each(|id| world.finish(*id));
    let waiting = world.submit(job(10, 0));
    assert_eq!(world.room(waiting, 3), None);
    let mut moved = world.make_room(waiting, 4);
    moved.sort_unstable();
    assert_eq!(moved, jobs[0][6..]);
}

#[test]
fn each_virtual_card_of_a_gang_finds_room() {
    let (mut world, jobs) = filled(&[1, 1, 1, 1]);
    for (card, count) in [(0, 9), (1, 9), (2, 8), (3, 0)] {
        jobs[card][..count].iter().for_each(|id| world.finish(*id));
    }
    let waiting = world.submit(JobSpec { gang: 2, ..job(10, 0) });
    assert_eq!(world.room(waiting, 1), None);
    assert_eq!(world.make_room(waiting, 16).len(), 2);
}

#[test]
fn whole_cards_of_one_node_are_emptied_together() {
    let (mut world, jobs) = filled(&[2, 1]);
    jobs[0][..9].iter().chain(&jobs[1][..9]).chain(&jobs[2][..5]).for_each(|id| world.finish(*id));
    let mut spec = job(20, 0);
    (spec.virtual_card.span, spec.virtual_card.whole_cards) = (Span::Node, true);
    let waiting = world.submit(spec);
    assert_eq!(world.make_room(waiting, 2), [jobs[0][9], jobs[1][9]]);
}

/// Two nodes of two cards, in a queue by attained service: on the one somebody who gives way and somebody who does not,
/// who ran for so long; on the other one card is free. Answers who does not, and who asks for two cards of one node.
fn in_each_others_way(minutes: u32) -> (World, JobId, JobId) {
    const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);
    let mut world = World::default();
    for name in ["a", "b"] {
        world.node(name, cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    }
    let attained = Some(AttainedOrder { guard: Percent(0), ..AttainedOrder::default() });
    let queue = QueueSettings { attained, ..QueueSettings::new("default") };
    assert_eq!(world.apply(Command::SetQueue { queue }), Outcome::Done);
    // Who has had more than ten minutes of a card gives way to whoever comes.
    let first = world.run(saving(10));
    world.pass(12 * MINUTE);
    let (beside_first, apart) = (world.run(saving(10)), world.run(saving(10)));
    world.pass(minutes * MINUTE);
    let mut spec = job(20, 0);
    (spec.virtual_card.span, spec.virtual_card.whole_cards) = (Span::Node, true);
    let waiting = world.submit(spec);
    let node = |job| world.slices(job)[0].card.node;
    assert!(node(first) == node(beside_first) && node(first) != node(apart), "the one node was filled first");
    (world, beside_first, waiting)
}

#[test]
fn moves_free_only_what_those_do_not_who_give_way() {
    let (mut world, stays, waiting) = in_each_others_way(6);
    assert!(world.settle(4).is_empty(), "who gives way is not enough");
    let made = world.room_by(waiting, &CompactionOrder::automatic()).expect("room can be made");
    assert_eq!(made.iter().map(|planned| planned.job).collect::<Vec<_>>(), [stays]);
    world.carry_out(&made);
    assert_eq!(world.settle(4).len(), 1);
    assert_eq!(world.job_state(waiting), JobState::Running);
    // A move is a suspension: within the hour there is no other for a band.
    world.pass(std::time::Duration::from_secs(360));
    let (job, now) = (world.state.job(stays).unwrap(), LogTime(world.time));
    let started = world.state.allocation(job.allocation.unwrap()).unwrap().started_at.unwrap();
    assert!(job.preemptible_from(started, now, 10, Claim::Band).is_some());
    assert_eq!(job.preemptible_from(started, now, 10, Claim::Priority), None);
}

#[test]
fn nobody_is_moved_for_a_band_who_ran_less_than_five_minutes() {
    let (mut world, _, waiting) = in_each_others_way(4);
    assert!(world.settle(4).is_empty());
    assert_eq!(world.room_by(waiting, &CompactionOrder::automatic()), None);
    assert!(world.room(waiting, 4).is_some(), "unless a person asks for it");
}

#[test]
fn who_loses_work_stays_while_the_move_of_another_does() {
    let moved = |preemptible: bool, order: &CompactionOrder| {
        let mut world = World::default();
        world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
        let losing = world.run(job(2, 0));
        world.node("b", cards(&[(CardKind::Gpu, 10, 100)]));
        let saving = world.run(JobSpec { preemptible, ..saving(9) });
        world.node("c", cards(&[(CardKind::Gpu, 9, 100)]));
        world.pass(std::time::Duration::from_secs(10));
        let waiting = world.submit(job(10, 0));
        let made = world.room_by(waiting, order)?;
        Some(made.iter().map(|planned| (planned.job == losing, planned.job == saving)).collect::<Vec<_>>())
    };
    let saving_only = CompactionOrder { moves: 1, ..CompactionOrder::default() };
    let any = CompactionOrder { losing_work: true, ..saving_only };
    let (losing, saving) = (Some(vec![(true, false)]), Some(vec![(false, true)]));
    assert_eq!(moved(true, &any), saving, "although it holds more");
    assert_eq!(moved(true, &saving_only), saving);
    assert_eq!((moved(false, &any), moved(false, &saving_only)), (losing, None));
    assert_eq!(moved(false, &CompactionOrder { not_preemptible: true, ..any }), saving);
}

#[test]
fn a_move_brings_free_processors_and_free_cards_together() {
    let mut world = World::default();
    let gpu = [(CardKind::Gpu, 10, 100)];
    let first = world.hosted_node("first", cards(&[gpu[0], gpu[0]]), &[], Some(HOST));
    let mover = world.run(with_host(2, 9000));
    assert_eq!(world.slices(mover)[0].card.node, first);
    // The only card of the second node is small: what needs ten TFLOPS cannot go there.
    let second = world.hosted_node("second", cards(&[(CardKind::Gpu, 4, 100)]), &[], Some(HOST));
    let waiting = world.submit(with_host(10, 5000));
    assert!(world.place().is_empty());
    assert_eq!(world.room(waiting, 0), None);
    let moves = world.room(waiting, 1).expect("one move is enough");
    assert!(matches!(&moves[..], [planned] if planned.job == mover && planned.workers[0].node == second));
    assert_eq!(world.make_room(waiting, 1), [mover]);
}

#[test]
fn whole_cards_are_taken_whole_and_from_one_node() {
    let mut world = World::default();
    let gpu = (CardKind::Gpu, 10, 100);
    world.node("three", cards(&[gpu, gpu, gpu]));
    world.node("two", cards(&[gpu, gpu]));
    let mut spec = job(15, 10);
    spec.virtual_card.span = Span::Node;
    spec.virtual_card.whole_cards = true;
    let id = world.run(spec.clone());
    let slices = world.slices(id);
    assert_eq!(slices.len(), 2);
    assert!(slices.iter().all(|slice| slice.length == BlockCount(10)));
    let other = world.run(spec);
    let third = world.submit(job(1, 1));
    world.place();
    // One card is left of five; it is the only place for a part of a card.
    let taken: Vec<CardId> = [id, other].iter().flat_map(|id| world.slices(*id)).map(|slice| slice.card).collect();
    assert!(!taken.contains(&world.slices(third)[0].card));
}

#[test]
fn what_no_request_can_use_is_fragmented() {
    let mut world = World::default();
    world.node("node", cards(&[(CardKind::Gpu, 10, 100)]));
    let mut pool = Pool::new(&world.state);
    assert_eq!(pool.fragmentation(&world.state).unusable_blocks, 0);
    world.run(job(6, 10));
    let seen = Pool::new(&world.state).fragmentation(&world.state);
    assert_eq!((seen.free_blocks, seen.unusable_blocks), (4, 4));
    assert_eq!((seen.free_memory, seen.unusable_memory), (Mebibytes(90), Mebibytes(90)));
    let mut told = Pool::new(&world.state);
    told.observe(&job(2, 10), 3);
    assert_eq!(told.fragmentation(&world.state).unusable_blocks, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever has happened: moves that are said to make room are lawful, and after them the job fits.
    #[test]
    fn room_that_is_made_is_enough(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 20..120),
        moves in 1u32..6,
    ) {
        let mut world = World::random(&nodes);
        for step in &steps {
            world.step(step);
            if matches!(step, world::history::Step::Decide) {
                world.place();
            }
        }
        let waiting: Vec<JobId> = world.state.waiting().map(|job| job.id).collect();
        let made = waiting.iter().find_map(|job| Some((*job, world.room(*job, moves)?)));
        let Some((job, made)) = made else { return Ok(()) };
        prop_assert!(!made.is_empty() && made.len() <= moves as usize);
        let spec = world.state.job(job).unwrap().spec.clone();
        if world.is_limited(&spec.queue) || made.iter().any(|planned| world.is_limited_move(planned)) {
            return Ok(());
        }
        world.carry_out(&made);
        let preview = tessera_explain::preview(&mut Pool::new(&world.state), &world.state, &spec, world.state.time());
        prop_assert!(matches!(preview, Preview::Starts { .. }), "{:?}", preview);
    }
}
