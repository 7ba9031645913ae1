//! Elastic gangs grow when that is good for them and bad for nobody.

use std::time::Duration;

use tessera_foresight::Growth;
use tessera_ledger::*;

use crate::world::{World, cards, job};

/// A pool of two cards of 10 TFLOPS each.
fn pool() -> World {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    world
}

fn elastic() -> JobSpec {
    let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    JobSpec {
        gang: 2,
        gang_min: Some(1),
        grow_after: Some(Duration::from_secs(60)),
        priority: 10,
        checkpoint,
        ..job(8, 0)
    }
}

/// A gang that runs with one virtual card, because somebody else has the other card; and that one.
fn crowded(world: &mut World) -> (JobId, JobId) {
    let other = world.submit(job(8, 0));
    world.place();
    world.start(other);
    let gang = world.submit(elastic());
    world.place();
    world.start(gang);
    assert_eq!(world.state.job(gang).unwrap().state, JobState::Running);
    (gang, other)
}

/// The gang that would grow now.
fn grows(world: &World) -> Option<Growth> {
    tessera_foresight::growth(&world.state, LogTime(world.time), None).growth
}

#[test]
fn a_gang_grows_when_there_is_room_and_its_work_is_saved_and_it_ran_long_enough() {
    let mut world = pool();
    let (gang, other) = crowded(&mut world);
    world.pass(Duration::from_secs(120));
    assert_eq!(grows(&world), None, "there is no room");
    world.finish(other);
    assert_eq!(grows(&world), None, "nothing of it is saved");
    world.save(gang, 1);
    let allocation = world.state.job(gang).unwrap().allocation.unwrap();
    let digest = world.state.digest();
    let grown = grows(&world);
    assert_eq!(grown, Some(Growth { job: gang, allocation, from: 1, to: 2 }));
    assert_eq!(world.state.digest(), digest, "nothing is changed by asking");
    assert_eq!(world.apply(Command::GrowJob { job: gang, allocation }), Outcome::Done);
    let told = world.state.job(gang).unwrap();
    assert_eq!((told.state, &told.reason), (JobState::Suspending, &Reason::Growing));
    world.stop(gang);
    world.place();
    world.start(gang);
    let job = world.state.job(gang).unwrap();
    assert_eq!(world.state.allocation(job.allocation.unwrap()).unwrap().virtual_cards(), 2);
    assert_eq!(grows(&world), None, "it has all that it wants");
}

#[test]
fn it_is_left_alone_while_somebody_else_would_take_the_room() {
    let mut world = pool();
    let (gang, other) = crowded(&mut world);
    world.save(gang, 1);
    // Waits for a card of its own, and more than is left beside the gang.
    let waiting = world.submit(JobSpec { gang: 2, ..job(9, 0) });
    world.pass(Duration::from_secs(120));
    world.finish(other);
    assert_eq!(grows(&world), None, "stopped, it would let {waiting} in");
}

#[test]
fn the_ledger_refuses_what_need_not_grow() {
    let mut world = pool();
    let (gang, other) = crowded(&mut world);
    let allocation = world.state.job(gang).unwrap().allocation.unwrap();
    let early = world.apply(Command::GrowJob { job: gang, allocation });
    assert!(matches!(early, Outcome::Rejected(_)), "it has not run long enough");
    world.pass(Duration::from_secs(61));
    let stale = world.apply(Command::GrowJob { job: gang, allocation: AllocationId(allocation.0 + 7) });
    assert!(matches!(stale, Outcome::Rejected(_)));
    let rigid = world.state.job(other).unwrap().allocation.unwrap();
    assert!(matches!(world.apply(Command::GrowJob { job: other, allocation: rigid }), Outcome::Rejected(_)));
}
