//! Room that is made by moves, whole cards, hosts, and the measure of fragmentation.

mod world;

use proptest::prelude::*;
use tessera_ledger::*;
use tessera_placement::{Decision, Pool, Preview, check};
use world::history::{nodes, step};
use world::{World, cards, job};

const HOST: HostCapacity = HostCapacity { cpu: MilliCpus(10_000), memory: Mebibytes(1000) };

fn with_host(tflops: u64, cpu: u64) -> JobSpec {
    JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(1) }, ..job(tflops, 0) }
}

impl World {
    fn run(&mut self, spec: JobSpec) -> JobId {
        let id = self.submit(spec);
        self.place();
        self.start(id);
        id
    }

    fn is_limited_move(&self, part: &PlanPart) -> bool {
        matches!(part, PlanPart::Move { job, .. } if self.is_limited(&self.state.job(*job).unwrap().spec.queue))
    }

    /// Carries moves out through the ledger, step by step, as lifecycle and agents would.
    fn carry_out(&mut self, parts: Vec<PlanPart>) {
        let movers: Vec<JobId> = parts
            .iter()
            .filter_map(|part| if let PlanPart::Move { job, .. } = part { Some(*job) } else { None })
            .collect();
        let plan = Plan { revision: self.state.revision(), parts };
        assert_eq!(check(&self.state, &plan), Ok(()));
        self.commit(&Decision { plan, next_wakeup: None, more: false });
        for job in movers {
            let id = self.state.job(job).unwrap().moving.expect("it moves");
            let advance = |from| Command::AdvanceMove { id, from, proceed: true };
            assert_eq!(self.apply(advance(MovePhase::Reserved)), Outcome::Done);
            self.stop(job);
            assert_eq!(self.apply(advance(MovePhase::Transferring)), Outcome::Done);
            self.start(job);
        }
    }
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
    let mut pool = Pool::new(&world.state);
    assert_eq!(pool.make_room(&world.state, waiting, 0), None);
    let moves = pool.make_room(&world.state, waiting, 1).expect("one move is enough");
    assert!(matches!(&moves[..], [PlanPart::Move { job, workers }] if *job == mover && workers[0].node == second));
    world.carry_out(moves);
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Starting);
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
    fn room_that_is_made_is_enough(nodes in nodes(), steps in prop::collection::vec(step(), 20..120)) {
        let mut world = World::random(&nodes);
        for step in &steps {
            world.step(step);
            if matches!(step, world::history::Step::Decide) {
                world.place();
            }
        }
        let waiting: Vec<JobId> = world.state.waiting().map(|job| job.id).collect();
        let mut pool = Pool::new(&world.state);
        let made = waiting.iter().find_map(|job| Some((*job, pool.make_room(&world.state, *job, 2)?)));
        let Some((job, moves)) = made else { return Ok(()) };
        prop_assert!(!moves.is_empty() && moves.len() <= 2);
        let spec = world.state.job(job).unwrap().spec.clone();
        if world.is_limited(&spec.queue) || moves.iter().any(|part| world.is_limited_move(part)) {
            return Ok(());
        }
        world.carry_out(moves);
        let preview = Pool::new(&world.state).preview(&world.state, &spec, world.state.time());
        prop_assert!(matches!(preview, Preview::Starts { .. }), "{:?}", preview);
    }
}
