//! Programs of jobs whose workers serve them: with most of their cards where the host has room, else wherever one has.

use std::time::Duration;

use proptest::prelude::*;
use tessera_explain::WaitCode;
use tessera_ledger::*;
use tessera_placement::Pool;

use crate::world::{World, cards, explain, job};

const LABELS: [(&str, &str); 2] = [DEVICE_LABEL, (DEVICE_VERSION_LABEL, "2.9.1")];

fn host(cpu: u64) -> Option<HostCapacity> {
    Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(8_192) })
}

/// A node with cards of so many TFLOPS each, and a host with so many milli-CPUs.
fn node(world: &mut World, name: &str, tflops: &[u64], cpu: u64) -> NodeId {
    let list: Vec<_> = tflops.iter().map(|tflops| (CardKind::Gpu, *tflops, 1_000)).collect();
    world.hosted_node(name, cards(&list), &LABELS, host(cpu))
}

/// A job with a card of so many TFLOPS over nodes, whose program needs so many milli-CPUs.
fn device(tflops: u64, cpu: u64) -> JobSpec {
    let mut spec = job(tflops, 10);
    (spec.virtual_card.access, spec.virtual_card.span) = (Access::Device, Span::Pool);
    spec.host = HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) };
    spec.with_needs_of_its_access()
}

/// The node of each worker of a job in order of rank, and how many blocks it has there.
fn places(world: &World, job: JobId) -> Vec<(u32, u32)> {
    let allocation = world.state.job(job).and_then(|job| world.state.allocation(job.allocation?));
    let workers = allocation.into_iter().flat_map(|allocation| allocation.workers.iter());
    workers.map(|worker| (worker.node.0, worker.slices.iter().map(|slice| slice.length.0).sum())).collect()
}

fn placed(world: &mut World, spec: JobSpec) -> Vec<(u32, u32)> {
    let job = world.submit(spec);
    world.place();
    places(world, job)
}

#[test]
fn a_program_is_where_most_of_its_card_is_if_that_host_has_room() {
    for (small, large, expected) in [
        (4_000, 4_000, vec![(1, 8), (0, 4)]),
        (4_000, 1_000, vec![(0, 4), (1, 8)]),
        (1_000, 1_000, vec![(3, 0), (0, 4), (1, 8)]),
    ] {
        let mut world = World::of_this_release();
        node(&mut world, "small", &[4], small);
        node(&mut world, "large", &[8], large);
        world.hosted_node("stranger", vec![], &[], host(64_000));
        node(&mut world, "host", &[], 4_000);
        assert_eq!(placed(&mut world, device(12, 2_000)), expected);
    }
}

#[test]
fn a_program_that_is_dumped_is_with_its_card() {
    let mut world = World::of_this_release();
    node(&mut world, "busy", &[8], 2_000);
    assert_eq!(placed(&mut world, device(1, 2_000)), [(0, 1)]);
    node(&mut world, "host", &[], 64_000);
    let mut dumped = device(4, 2_000);
    dumped.checkpoint.mode = CheckpointMode::Transparent;
    let waits = world.submit(dumped);
    world.place();
    assert_eq!(places(&world, waits), []);
    assert_eq!(explain(&world, waits).code, WaitCode::HostShort);
    node(&mut world, "card", &[4], 2_000);
    world.place();
    assert_eq!(places(&world, waits), [(2, 4)]);
}

#[test]
fn nobody_is_told_to_leave_out_what_comes_with_every_device() {
    let mut world = World::of_this_release();
    node(&mut world, "small", &[4], 4_000);
    world.node("stranger", cards(&[(CardKind::Gpu, 8, 1_000)]));
    let mut large = device(8, 1_000);
    large.virtual_card.span = Span::Card;
    let waits = world.submit(large);
    let told = explain(&world, waits);
    assert_eq!(told.change.as_deref(), Some("ask for at most 4 TFLOPS per virtual card"), "{told:?}");
}

#[test]
fn hosts_without_cards_come_before_those_that_others_need() {
    let mut world = World::of_this_release();
    node(&mut world, "busy", &[10], 1_000);
    world.hosted_node("cards", cards(&[(CardKind::Fpga, 10, 1_000)]), &LABELS, host(4_000));
    node(&mut world, "first", &[], 4_000);
    node(&mut world, "second", &[], 4_000);
    let all: Vec<u32> = (0..6).map(|_| placed(&mut world, device(1, 2_000))[0].0).collect();
    assert_eq!(all, [2, 2, 3, 3, 1, 1]);
    assert_eq!(placed(&mut world, device(1, 2_000)), [], "no host has room for the last one");
}

#[test]
fn it_is_where_its_pytorch_is() {
    let mut world = World::of_this_release();
    node(&mut world, "a", &[4], 1_000);
    node(&mut world, "b", &[8], 1_000);
    let other = [DEVICE_LABEL, (DEVICE_VERSION_LABEL, "2.8.0")];
    world.hosted_node("older", vec![], &other, host(64_000));
    let waits = world.submit(device(12, 2_000));
    world.place();
    assert_eq!(places(&world, waits), []);
    let told = explain(&world, waits);
    assert_eq!(told.code, WaitCode::Affinity, "{told:?}");
    node(&mut world, "host", &[], 2_000);
    world.place();
    assert_eq!(places(&world, waits), [(3, 0), (0, 4), (1, 8)]);
}

#[test]
fn a_host_that_comes_or_is_given_back_lets_a_program_start() {
    let mut world = World::of_this_release();
    node(&mut world, "a", &[10], 1_000);
    node(&mut world, "large", &[], 2_000);
    let first = world.submit(device(1, 2_000));
    let mut pool = Pool::new(&world.state);
    world.decide(&mut pool);
    world.start(first);
    let [second, third] = [0, 1].map(|_| world.submit(device(1, 2_000)));
    world.decide(&mut pool);
    assert_eq!(places(&world, second), []);
    let told = explain(&world, second);
    assert_eq!(told.code, WaitCode::HostShort);
    assert!(told.sentence.contains("the program of each virtual card needs 2000 milli-CPUs"), "{}", told.sentence);
    world.finish(first);
    world.decide(&mut pool);
    assert_eq!(places(&world, second), [(1, 0), (0, 1)]);
    node(&mut world, "late", &[], 2_000);
    world.decide(&mut pool);
    assert_eq!(places(&world, third), [(2, 0), (0, 1)]);
}

#[test]
fn whoever_holds_its_host_gives_way() {
    let mut world = World::of_this_release();
    node(&mut world, "a", &[10], 1_000);
    node(&mut world, "host", &[], 2_000);
    let victim = world.submit(JobSpec { priority: 10, ..device(1, 2_000) });
    world.place();
    world.start(victim);
    let urgent = world.submit(JobSpec { priority: 90, ..device(1, 2_000) });
    assert_eq!(world.settle(8), [victim]);
    assert_eq!(world.job_state(urgent), JobState::Running);
    assert_eq!(places(&world, urgent)[0], (1, 0));
}

#[test]
fn room_on_a_host_is_kept_for_a_program_that_waits_long() {
    let mut world = World::of_this_release();
    node(&mut world, "a", &[10], 1_000);
    node(&mut world, "host", &[], 4_000);
    let short = |cpu| JobSpec { time_limit: Some(Duration::from_secs(600)), ..device(1, cpu) };
    let [first, second] = [0, 1].map(|_| world.submit(short(2_000)));
    world.place();
    [first, second].iter().for_each(|job| world.start(*job));
    let large = world.submit(device(1, 4_000));
    world.pass(Duration::from_secs(60));
    world.submit(device(1, 2_000));
    world.finish(first);
    world.place();
    assert_eq!(world.state.allocations().count(), 1, "what is free is kept for the one that needs all of it");
    world.finish(second);
    world.place();
    assert_eq!(places(&world, large)[0], (1, 0));
}

#[test]
fn room_on_a_host_is_kept_once_a_lost_program_is_known_to_have_stopped() {
    let mut world = World::of_this_release();
    node(&mut world, "a", &[10], 1_000);
    node(&mut world, "host", &[], 4_000);
    let mut pool = Pool::new(&world.state);
    let [lost, running] = [0, 1].map(|_| world.submit(device(1, 2_000)));
    world.decide(&mut pool);
    [lost, running].iter().for_each(|job| world.start(*job));
    let held = world.state.job(lost).and_then(|job| job.allocation).expect("it is placed");
    world.report(held, Rank(0), Observation::Unconfirmed { message: "it cannot be ended".to_owned() });
    let large = world.submit(device(1, 4_000));
    world.pass(Duration::from_secs(60));
    world.decide(&mut pool);
    assert_eq!(places(&world, large), [], "no host could have it while that one is lost");
    world.decide(&mut pool);
    world.finish(lost);
    world.submit(device(1, 2_000));
    world.decide(&mut pool);
    world.finish(running);
    world.decide(&mut pool);
    assert_eq!(places(&world, large)[0], (1, 0), "what comes back is kept for the one that needs all of it");
}

/// Returns whether a gang of programs fits, by a scan of the ledger: cards and hosts apart, because neither asks for
/// the other.
fn scan(state: &State, spec: &JobSpec) -> bool {
    let nodes = || state.nodes().filter(|node| node.grantable());
    let free = |node: &Node| state.cards_of(node.id).map(|(_, card)| card.extents.counts().free).sum::<u64>();
    let blocks: u64 = nodes().map(|node| free(node)).sum();
    let programs = nodes().map(|node| {
        let left = state.host_left(node.id).map_or(u64::MAX, |left| left.cpu.0);
        left.checked_div(spec.host.cpu.0).unwrap_or(u64::MAX)
    });
    let gang = u64::from(spec.gang);
    blocks >= spec.virtual_card.compute.0 / 1000 * gang && programs.fold(0, u64::saturating_add) >= gang
}

proptest! {
    #[test]
    fn a_gang_waits_only_where_a_scan_finds_no_room(
        nodes in prop::collection::vec((prop::collection::vec(1u64..9, 0..3), 0u64..6), 1..7),
        jobs in prop::collection::vec((1u64..12, 0u64..4, 1u32..4), 1..12),
    ) {
        let mut world = World::of_this_release();
        for (number, (tflops, cpu)) in nodes.iter().enumerate() {
            node(&mut world, &format!("n{number}"), tflops, cpu * 1_000);
        }
        for (tflops, cpu, gang) in jobs {
            let mut spec = JobSpec { gang, ..device(tflops, cpu * 1_000) };
            spec.virtual_card.memory = Mebibytes(1);
            spec.virtual_card.slice_memory = Mebibytes(1);
            let Some(id) = world.try_submit(spec.clone()) else { continue };
            let fits = scan(&world.state, &spec);
            world.place();
            prop_assert_eq!(!places(&world, id).is_empty(), fits, "{:?}", spec);
            if !fits {
                world.apply(Command::CancelJob { job: id });
            }
        }
    }
}
