//! Golden explanations of jobs that others are in the way of: guarantees, whose turn it is, and who may not be
//! preempted yet.

use std::time::Duration;

use tessera_explain::WaitCode;
use tessera_ledger::*;

use CardKind::{Gpu, Npu};

use crate::world::{World, cards, explain, job};

/// A pool of 20 TFLOPS of which `owner` is guaranteed 10.
fn lent_out() -> World {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("borrower", "", (0, 0), None, 2);
    for _ in 0..4 {
        world.submit(JobSpec { queue: "borrower".to_owned(), ..job(5, 10) });
    }
    world.settle(3);
    world
}

#[test]
fn a_job_beyond_the_guarantee_of_its_queue_is_told_so() {
    let mut world = lent_out();
    let id = world.submit(JobSpec { queue: "owner".to_owned(), gang: 3, ..job(5, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::BeyondGuarantee);
    assert_eq!(
        explanation.sentence,
        "queue \"owner\" holds 0 TFLOPS and 0 MiB of the 10 TFLOPS and 1000 MiB that it is guaranteed, and the job needs \
         15 TFLOPS and 30 MiB: beyond its guarantee it cannot call back what others have borrowed"
    );
    assert_eq!(
        explanation.change.as_deref(),
        Some("guarantee queue \"owner\" 5 TFLOPS and 0 MiB more, or wait until something is free")
    );
}

/// Teams call back what their department is guaranteed: that is the guarantee that binds, not the team's own.
#[test]
fn a_team_beyond_the_guarantee_of_its_department_is_told_so() {
    let mut world = lent_out();
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("team", "owner", (2, 1000), None, 1);
    let id = world.submit(JobSpec { queue: "team".to_owned(), gang: 3, ..job(5, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::BeyondGuarantee, "{explanation:?}");
    let change = explanation.change.expect("there is one");
    assert!(change.starts_with("guarantee queue \"owner\" 5 TFLOPS"), "{change}");
}

/// Room that others have borrowed is of no use to the job: more of a guarantee would not start it.
#[test]
fn a_guarantee_is_not_named_where_it_would_not_help() {
    let mut world = lent_out();
    world.node("npu", cards(&[(Npu, 10, 100)]));
    let of = |kind, gang| {
        let mut spec = JobSpec { queue: "owner".to_owned(), gang, ..job(5, 10) };
        spec.virtual_card.kinds.insert(kind);
        spec
    };
    world.submit(of(Npu, 2));
    world.settle(3);
    let id = world.submit(of(Npu, 1));
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort, "{explanation:?}");
    let id = world.submit(of(Gpu, 1));
    assert_eq!(explain(&world, id).code, WaitCode::BeyondGuarantee);
}

#[test]
fn a_queue_that_waits_for_other_cards_is_not_in_the_way() {
    let mut world = lent_out();
    let of = |queue: &str, kind, tflops| {
        let mut spec = JobSpec { queue: queue.to_owned(), ..job(tflops, 10) };
        spec.virtual_card.kinds.insert(kind);
        spec
    };
    world.node("npu", cards(&[(Npu, 3, 100)]));
    world.submit(of("default", Npu, 2));
    world.settle(3);
    let npu = world.submit(of("default", Npu, 2));
    let id = world.submit(of("borrower", Gpu, 5));
    assert_eq!(explain(&world, id).code, WaitCode::ComputeShort);
    world.apply(Command::CancelJob { job: npu });
    world.submit(of("default", Gpu, 5));
    assert_eq!(explain(&world, id).code, WaitCode::FairShareTurn);
}

#[test]
fn another_queue_whose_turn_it_is_is_named_with_both_shares() {
    let mut world = lent_out();
    world.submit(JobSpec { queue: "borrower".to_owned(), ..job(5, 10) });
    world.submit(JobSpec { queue: "default".to_owned(), ..job(5, 10) });
    let id = world.state.waiting().find(|job| job.spec.queue == "borrower").expect("it waits").id;
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::FairShareTurn);
    assert_eq!(
        explanation.sentence,
        "too little is free, and what becomes free goes to queue \"default\" first: it has borrowed 0.00 % of the pool for \
         its weight, or is within its guarantee, and queue \"borrower\" has borrowed 50.00 %"
    );
}

#[test]
fn protected_jobs_are_named_with_the_time_that_is_left() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(300), ..job(10, 10) });
    world.settle(3);
    world.pass(Duration::from_secs(100));
    let id = world.submit(JobSpec { priority: 90, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::VictimsProtected);
    assert_eq!(
        explanation.sentence,
        "jobs that would give way are left running for 200 s more: they were preempted too often within the last hour, or \
         have not run as long as they asked to"
    );
    assert_eq!(explanation.numbers, [("milliseconds_left", 200_000)]);
}

/// The end of the protection would free one of the two cards that the job needs, and nobody gives way on the other.
#[test]
fn protected_jobs_are_not_named_where_they_would_not_be_enough() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(300), ..job(10, 10) });
    world.submit(JobSpec { priority: 90, ..job(10, 10) });
    world.settle(3);
    let id = world.submit(JobSpec { priority: 90, gang: 2, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort, "{explanation:?}");
}

/// Two of three protected jobs must give way: the explanation gives the time at which the second may.
#[test]
fn the_time_until_enough_jobs_are_not_protected_any_more_is_named() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100)]));
    for seconds in [100, 200, 300] {
        world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(seconds), ..job(10, 10) });
    }
    world.settle(3);
    let id = world.submit(JobSpec { priority: 90, gang: 2, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::VictimsProtected);
    assert_eq!(explanation.numbers, [("milliseconds_left", 200_000)]);
}
