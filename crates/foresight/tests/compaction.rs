//! Compaction: what it gains, what it leaves alone, and what it never does.

use std::time::Duration;

use proptest::prelude::*;
use tessera_foresight::{CompactionPlan, Measure, MoveRefusal, compact, make_way, move_job};
use tessera_ledger::*;
use tessera_placement::CompactionOrder;

use crate::world;
use crate::world::history::{nodes, step};
use crate::world::{World, cards, cases, job, reference_pool};

/// A job that can be moved without loss.
fn saving(tflops: u64, memory: u64) -> JobSpec {
    let mut spec = job(tflops, memory);
    spec.checkpoint.mode = CheckpointMode::Cooperative;
    spec
}

fn now(world: &World) -> LogTime {
    LogTime(world.time)
}

fn planned(world: &World, order: &CompactionOrder) -> CompactionPlan {
    compact(&world.state, now(world), order)
}

/// A dumped process is restored on a card like its own, and on no other; a program that saved itself takes what it may
/// use.
#[test]
fn only_dumped_processes_are_bound_to_cards_like_theirs() {
    for (mode, may) in [(CheckpointMode::Transparent, false), (CheckpointMode::Cooperative, true)] {
        let mut world = World::default();
        let (key, value) = TRANSPARENT_LABEL;
        let mut node = |name, kind| world.labelled_node(name, cards(&[(kind, 8, 64)]), &[(key, value)]);
        let (a, b) = (node("a", CardKind::Gpu), node("b", CardKind::Npu));
        let mut spec = job(5, 64);
        spec.checkpoint.mode = mode;
        let id = world.run(spec);
        let other = if world.slices(id)[0].card.node == a { b } else { a };
        let planned = move_job(&world.state, now(&world), id, None);
        match planned {
            Ok(planned) => assert!(may && planned.workers[0].node == other, "{mode:?}"),
            Err(refused) => assert!(!may && refused.to_string().contains("may go on with"), "{mode:?}: {refused}"),
        }
    }
}

fn everything() -> CompactionOrder {
    CompactionOrder { moves: 64, losing_work: true, not_preemptible: true, not_again_within: Duration::ZERO }
}

impl World {
    /// Carries a plan out through the ledger, step by step, as lifecycle and agents would.
    fn carry_out(&mut self, plan: &CompactionPlan) {
        for planned in &plan.moves {
            self.commit_parts(planned.parts());
            let id = self.state.job(planned.job).unwrap().moving.expect("it moves");
            let advance = |from| Command::AdvanceMove { id, from, proceed: true };
            assert_eq!(self.apply(advance(MovePhase::Reserved)), Outcome::Done);
            self.stop(planned.job);
            assert_eq!(self.apply(advance(MovePhase::Transferring)), Outcome::Done);
            self.start(planned.job);
            assert_eq!(self.job_state(planned.job), JobState::Running);
        }
        self.commit_parts(plan.renumbers.iter().map(|card| PlanPart::Renumber { card: *card }).collect());
    }

    fn commit_parts(&mut self, parts: Vec<PlanPart>) {
        let plan = Plan { revision: self.state.revision(), parts };
        self.commit(&tessera_placement::Decision { plan, next_wakeup: None, more: false });
    }
}

/// P10: app1 [1-3], app2 [4-6], app3 [7-8] on ten blocks; app1 ends and app4 asks for four. Compaction puts app2 on
/// [1-3] and app3 on [4-5], so that app4 gets [6-9] and block 10 stays free.
#[test]
fn the_patents_example_by_renumbering_alone() {
    let mut world = World::default();
    world.node("n", cards(&[(CardKind::Gpu, 10, 0)]));
    let apps: Vec<JobId> = [3, 3, 2].into_iter().map(|tflops| world.run(job(tflops, 0))).collect();
    world.finish(apps[0]);
    let plan = planned(&world, &CompactionOrder::default());
    assert!(plan.moves.is_empty(), "renumbering is free, moves are not");
    assert_eq!(plan.renumbers.len(), 1);
    world.carry_out(&plan);
    assert_eq!((world.numbers(apps[1]), world.numbers(apps[2])), (vec![(1, 3)], vec![(4, 5)]));
    let fourth = world.run(job(4, 0));
    assert_eq!(world.numbers(fourth), [(6, 9)]);
}

/// Whoever asks for what can never be made room for keeps nobody from it who is behind.
#[test]
fn of_many_who_ask_for_the_same_the_first_is_looked_at() {
    let mut world = World::default();
    for name in ["a", "b"] {
        world.node(name, cards(&[(CardKind::Gpu, 10, 100)]));
    }
    let both = [world.run(saving(6, 0)), world.run(saving(6, 0))];
    let third = world.run(saving(3, 0));
    world.finish(both[0]);
    let mut gang = job(10, 0);
    gang.gang = 2;
    for _ in 0..20 {
        world.submit(gang.clone());
    }
    let waiting = world.submit(job(10, 0));
    world.place();
    let plan = planned(&world, &CompactionOrder::default());
    assert_eq!((plan.moves[0].job, plan.moves[0].makes_room_for), (third, Some(waiting)), "{plan:#?}");
    assert_eq!(make_way(&world.state, now(&world), &CompactionOrder::automatic()).moves, [], "it is for other queues");
    let queue = QueueSettings { attained: Some(AttainedOrder::default()), ..QueueSettings::new("default") };
    assert_eq!(world.apply(Command::SetQueue { queue }), Outcome::Done);
    world.pass(Duration::from_secs(360));
    let moves = make_way(&world.state, now(&world), &CompactionOrder::automatic()).moves;
    assert_eq!((moves[0].job, moves[0].makes_room_for), (third, Some(waiting)), "{moves:#?}");
}

#[test]
fn nobody_of_a_queue_by_submission_makes_way() {
    let mut world = World::default();
    for name in ["a", "b"] {
        world.node(name, cards(&[(CardKind::Gpu, 10, 100)]));
    }
    world.queue("by-submission", "", None);
    let queue = QueueSettings { attained: Some(AttainedOrder::default()), ..QueueSettings::new("default") };
    assert_eq!(world.apply(Command::SetQueue { queue }), Outcome::Done);
    let there = |tflops| JobSpec { queue: "by-submission".to_owned(), ..saving(tflops, 0) };
    let both = [world.run(there(6)), world.run(there(6))];
    let third = world.run(there(3));
    world.finish(both[0]);
    world.submit(job(10, 0));
    world.place();
    world.pass(Duration::from_secs(360));
    assert_eq!(make_way(&world.state, now(&world), &CompactionOrder::automatic()).moves, []);
    let by_hand = planned(&world, &CompactionOrder::default());
    assert_eq!(by_hand.moves[0].job, third, "{by_hand:#?}");
}

/// Two half-used cards: one move makes a whole card free, and a job that asks for one starts.
#[test]
fn a_move_lets_a_waiting_job_start() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    world.node("b", cards(&[(CardKind::Gpu, 10, 100)]));
    let first = world.run(saving(6, 0));
    let second = world.run(saving(6, 0));
    let third = world.run(saving(3, 0));
    world.finish(first);
    assert_ne!(world.slices(third)[0].card, world.slices(second)[0].card, "the third was stacked beside the first");
    let waiting = world.submit(job(10, 0));
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending);
    let plan = planned(&world, &CompactionOrder::default());
    assert_eq!(plan.moves.len(), 1, "{plan:#?}");
    assert_eq!((plan.moves[0].job, plan.moves[0].makes_room_for), (third, Some(waiting)));
    assert_eq!((plan.before.startable, plan.after.startable), (0, 1));
    assert_eq!(plan.after.kinds[&CardKind::Gpu].empty_cards, 1);
    world.carry_out(&plan);
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Starting);
}

/// A job that runs on the only card of another kind could go to a processor, but then the largest job that fits the
/// processors would not.
#[test]
fn a_move_to_another_kind_of_card_would_take_from_what_fits_there() {
    let mut world = World::default();
    world.node("npu", cards(&[(CardKind::Npu, 8, 100)]));
    let runs = world.run(saving(5, 0));
    world.node("large", cards(&[(CardKind::Cpu, 20, 100)]));
    world.node("small", cards(&[(CardKind::Cpu, 10, 100)]));
    let waiting = world.submit(JobSpec { virtual_card: npu(8), ..job(8, 0) });
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending);
    let plan = planned(&world, &CompactionOrder::default());
    assert!(plan.moves.is_empty(), "30 TFLOPS of processors are free as long as {runs} stays: {plan:#?}");
}

/// Two jobs would have to leave a card, one after the other, and their queue could take only the first of them twice
/// while it moves: then that one stays as well.
#[test]
fn who_makes_room_together_moves_together_or_not_at_all() {
    let mut world = World::default();
    world.node("shared", cards(&[(CardKind::Gpu, 10, 100)]));
    world.queue("limited", "", Some((7, 1000)));
    let _jobs = [2, 3].map(|tflops| world.run(JobSpec { queue: "limited".to_owned(), ..saving(tflops, 0) }));
    world.node("free", cards(&[(CardKind::Gpu, 8, 100)]));
    let waiting = world.submit(job(10, 0));
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending);
    let plan = planned(&world, &CompactionOrder::default());
    assert!(plan.moves.is_empty(), "{plan:#?}");
}

/// A host whose processors are used up beside free cards: they are brought together for a job that asks for both.
#[test]
fn a_move_lets_a_job_start_that_lacks_processors() {
    let host = Some(HostCapacity { cpu: MilliCpus(10_000), memory: Mebibytes(1000) });
    let with_host =
        |tflops, cpu| JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(1) }, ..saving(tflops, 0) };
    let mut world = World::default();
    world.hosted_node("first", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]), &[], host);
    let mover = world.run(with_host(2, 9000));
    world.hosted_node("second", cards(&[(CardKind::Gpu, 4, 100)]), &[], host);
    let waiting = world.submit(with_host(10, 5000));
    world.place();
    let plan = planned(&world, &CompactionOrder::default());
    assert_eq!((plan.before.startable, plan.after.startable), (0, 1), "{plan:#?}");
    assert_eq!((plan.moves[0].job, plan.moves[0].makes_room_for), (mover, Some(waiting)));
    world.carry_out(&plan);
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Starting);
}

/// Two halves of one node come together on one card although the memory beside them is then out of reach.
#[test]
fn cards_are_filled_although_memory_is_left_beside() {
    let mut world = World::default();
    world.node("node", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    let jobs = [(); 4].map(|()| world.run(saving(5, 10)));
    world.finish(jobs[0]);
    world.finish(jobs[2]);
    let plan = planned(&world, &CompactionOrder::default());
    assert_eq!(plan.moves.len(), 1, "{plan:#?}");
    assert_eq!(plan.after.kinds[&CardKind::Gpu].empty_cards, 1);
}

/// A pool of four cards of ten, each of which runs a job of four that loses nothing.
fn four_cards(spec: impl Fn() -> JobSpec) -> (World, Vec<JobId>) {
    let mut world = World::default();
    for name in ["a", "b", "c", "d"] {
        world.node(name, cards(&[(CardKind::Gpu, 10, 100)]));
    }
    let fillers: Vec<JobId> = (0..4).map(|_| world.run(saving(6, 0))).collect();
    let jobs: Vec<JobId> = (0..4).map(|_| world.run(spec())).collect();
    fillers.into_iter().for_each(|filler| world.finish(filler));
    (world, jobs)
}

#[test]
fn free_room_is_brought_together_within_the_budget() {
    let (world, jobs) = four_cards(|| saving(4, 10));
    let full = planned(&world, &CompactionOrder::default());
    let (before, after) = (full.before.kinds[&CardKind::Gpu], full.after.kinds[&CardKind::Gpu]);
    assert_eq!(
        (before.largest_on_card.compute, after.largest_on_card.compute),
        (MilliTflops::from_tflops(6), MilliTflops::from_tflops(10))
    );
    assert_eq!((before.empty_cards, after.empty_cards, full.moves.len()), (0, 2, 2));
    assert!(after.fragmentation < before.fragmentation && after.fragmentation == 0 || after.fragmentation < 100);
    assert!(full.moves.iter().all(|planned| jobs.contains(&planned.job) && planned.loss.work == Duration::ZERO));

    let one = planned(&world, &CompactionOrder { moves: 1, ..CompactionOrder::default() });
    assert_eq!(one.moves, full.moves[..1], "a smaller budget takes the best of the same moves");
    let none = planned(&world, &CompactionOrder { moves: 0, ..CompactionOrder::default() });
    assert!(none.is_empty());
}

#[test]
fn jobs_that_would_lose_work_or_must_not_be_touched_stay() {
    let (world, _) = four_cards(|| job(4, 10));
    assert!(planned(&world, &CompactionOrder::default()).moves.is_empty(), "they start again from the beginning");
    let told = planned(&world, &CompactionOrder { losing_work: true, ..CompactionOrder::default() });
    assert_eq!(told.moves.len(), 2);

    let (mut world, _) = four_cards(|| JobSpec { preemptible: false, ..saving(4, 10) });
    assert!(planned(&world, &CompactionOrder::default()).moves.is_empty(), "they are not preemptible");
    let told = CompactionOrder { not_preemptible: true, ..CompactionOrder::default() };
    let plan = planned(&world, &told);
    assert_eq!(plan.moves.len(), 2);
    world.carry_out(&plan);
    world.pass(Duration::from_secs(60));
    let again = CompactionOrder { not_again_within: Duration::from_secs(3600), ..told };
    let moved: Vec<JobId> = plan.moves.iter().map(|planned| planned.job).collect();
    assert!(planned(&world, &again).moves.iter().all(|planned| !moved.contains(&planned.job)));
}

#[test]
fn what_it_costs_is_counted() {
    let (mut world, _) = four_cards(|| job(4, 10));
    world.pass(Duration::from_secs(100));
    let plan = planned(&world, &CompactionOrder { losing_work: true, ..CompactionOrder::default() });
    assert!(plan.moves.iter().all(|planned| planned.loss.work >= Duration::from_secs(100)));
    assert!(plan.tflops_seconds_lost() >= 800, "two jobs of 4 TFLOPS for 100 s");
}

#[test]
fn one_job_is_moved_where_an_operator_says() {
    let mut world = reference_pool();
    let id = world.run(JobSpec { virtual_card: npu(15), ..job(15, 100) });
    let here = world.slices(id)[0].card.node;
    let other =
        world.state.nodes().map(|node| node.id).find(|node| *node != here && has_npu(&world, *node, 15)).unwrap();
    assert!(matches!(move_job(&world.state, now(&world), JobId(99), None), Err(MoveRefusal::UnknownJob(_))));
    let planned = move_job(&world.state, now(&world), id, Some(other)).unwrap();
    assert_eq!(planned.workers[0].node, other, "cards of each node differ, and it begins again on any that it may use");

    let mut world = World::default();
    let (a, b) = (world.node("a", cards(&[(CardKind::Gpu, 8, 64)])), world.node("b", cards(&[(CardKind::Gpu, 8, 64)])));
    let id = world.run(saving(5, 64));
    let (from, to) = if world.slices(id)[0].card.node == a { (a, b) } else { (b, a) };
    let refused = move_job(&world.state, now(&world), id, Some(from)).unwrap_err();
    assert_eq!(refused, MoveRefusal::NoRoom { job: id, node: Some(from) });
    let planned = move_job(&world.state, now(&world), id, None).unwrap();
    assert_eq!((planned.workers[0].node, planned.loss.work), (to, Duration::ZERO), "of the same class before others");
    world.carry_out(&CompactionPlan { moves: vec![planned], ..CompactionPlan::default() });
    assert_eq!(world.slices(id)[0].card.node, to);
    let waiting = world.submit(JobSpec { held: true, ..job(1, 0) });
    assert!(matches!(
        move_job(&world.state, now(&world), waiting, None),
        Err(MoveRefusal::NotRunning { state: JobState::Pending, .. })
    ));
}

fn npu(tflops: u64) -> VirtualCardRequest {
    VirtualCardRequest { kinds: [CardKind::Npu].into(), ..job(tflops, 100).virtual_card }
}

fn has_npu(world: &World, node: NodeId, tflops: u32) -> bool {
    world.state.cards_of(node).any(|(_, card)| card.description.kind == CardKind::Npu && card.blocks.0 >= tflops)
}

/// A gang moves whole, and a job that is told to stay within labelled nodes stays there.
#[test]
fn gangs_move_whole_and_labels_hold() {
    let mut world = World::default();
    for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2"), ("d", "1")] {
        world.labelled_node(name, cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]), &[("zone", zone)]);
    }
    let mut spec = saving(9, 0);
    spec.gang = 2;
    spec.node_labels.insert("zone".to_owned(), "1".to_owned());
    let id = world.run(spec);
    let planned = move_job(&world.state, now(&world), id, None).unwrap();
    assert_eq!(planned.workers.len(), 2);
    let c = world.state.node_by_name("c").unwrap().id;
    assert!(planned.workers.iter().all(|worker| worker.node != c));
    assert!(matches!(move_job(&world.state, now(&world), id, Some(c)), Err(MoveRefusal::NoRoom { .. })));
    world.carry_out(&CompactionPlan { moves: vec![planned], ..CompactionPlan::default() });
}

/// A virtual card that spreads over several cards, or has whole ones, is moved as it is placed.
#[test]
fn a_virtual_card_over_several_cards_moves_whole() {
    for whole_cards in [false, true] {
        let mut world = World::default();
        for name in ["a", "b"] {
            world.node(name, cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
        }
        let mut spec = saving(15, 0);
        (spec.virtual_card.span, spec.virtual_card.whole_cards) = (Span::Node, whole_cards);
        let id = world.run(spec);
        let from = world.slices(id)[0].card.node;
        assert!(move_job(&world.state, now(&world), id, Some(from)).is_err(), "it still holds its place");
        let planned = move_job(&world.state, now(&world), id, None).unwrap();
        assert!(planned.workers.iter().all(|worker| worker.node != from));
        world.carry_out(&CompactionPlan { moves: vec![planned], ..CompactionPlan::default() });
        assert_eq!((world.slices(id).len(), world.slices(id)[0].card.node == from), (2, false));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]

    /// On any pool: a plan ends, is the same for equal states, is accepted step by step by `check` and the ledger with
    /// every law holding, stays within its budget, and never makes the largest request that fits smaller.
    #[test]
    fn a_plan_does_what_it_says_and_no_harm(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 20..90),
        saved in any::<u64>(),
        moves in 0u32..20,
    ) {
        let mut world = World::random(&nodes);
        for (number, step) in steps.iter().enumerate() {
            if let world::history::Step::Submit(request) = step {
                let mut spec = request.spec();
                if saved >> (number % 64) & 1 == 1 {
                    spec.checkpoint.mode = CheckpointMode::Cooperative;
                }
                world.try_submit(spec);
            } else {
                world.step(step);
            }
            if number % 3 == 0 {
                world.place();
                let started: Vec<JobId> = world.state.allocations().map(|allocation| allocation.job).collect();
                started.into_iter().for_each(|job| if world.job_state(job) == JobState::Starting { world.start(job) });
            }
        }
        for order in [CompactionOrder { moves, ..CompactionOrder::default() }, CompactionOrder { moves, ..everything() }] {
            let plan = planned(&world, &order);
            prop_assert_eq!(&plan, &planned(&world, &order));
            prop_assert!(plan.moves.len() <= moves as usize);
            let mut touched: Vec<JobId> = plan.moves.iter().map(|planned| planned.job).collect();
            touched.sort_unstable();
            touched.dedup();
            prop_assert_eq!(touched.len(), plan.moves.len(), "a job is moved twice");
            for (kind, before) in &plan.before.kinds {
                let after = plan.after.kinds[kind];
                for (before, after) in [
                    (before.largest_on_card, after.largest_on_card),
                    (before.largest_on_node, after.largest_on_node),
                    (before.free, after.free),
                ] {
                    prop_assert!(after.compute >= before.compute, "{:#?}", plan);
                }
                prop_assert!(after.largest_on_card.memory >= before.largest_on_card.memory, "{:#?}", plan);
            }
            let mut copy = World::default();
            copy.resume_from(&world);
            copy.carry_out(&plan);
            prop_assert_eq!(Measure::of(&copy.state), plan.after);
        }
    }
}
