//! Gangs that may start with fewer virtual cards: as many as fit now, all or nothing at the least number; and jobs that
//! are left running as long as they asked to.

use std::time::Duration;

use tessera_explain::Preview;
use tessera_ledger::*;
use tessera_placement::Pool;

use CardKind::Gpu;

use crate::world::{World, cards, job};

fn pool(count: usize) -> World {
    let mut world = World::default();
    world.node("a", cards(&vec![(Gpu, 10, 100); count]));
    world
}

fn between(least: u32, most: u32) -> JobSpec {
    JobSpec { gang: most, gang_min: Some(least), ..job(10, 10) }
}

fn size(world: &World, id: JobId) -> usize {
    world.slices(id).len()
}

#[test]
fn as_many_start_as_fit() {
    let mut world = pool(5);
    world.submit(job(10, 10));
    world.settle(3);
    let id = world.submit(between(2, 8));
    world.settle(3);
    assert_eq!(size(&world, id), 4);
    let waits = world.submit(between(2, 8));
    world.settle(3);
    assert_eq!(world.job_state(waits), JobState::Pending, "it starts with two or not at all");
    let mut roomy = pool(9);
    let id = roomy.submit(between(2, 8));
    roomy.settle(3);
    assert_eq!(size(&roomy, id), 8, "and never with more than it asked for");
}

#[test]
fn the_maximum_of_a_queue_makes_a_gang_smaller() {
    let mut world = pool(5);
    world.queue("small", "", Some((30, 1000)));
    let id = world.submit(JobSpec { queue: "small".to_owned(), ..between(1, 5) });
    world.settle(3);
    assert_eq!(size(&world, id), 3);
    let waits = world.submit(JobSpec { queue: "small".to_owned(), ..between(1, 5) });
    world.settle(3);
    assert_eq!(world.job_state(waits), JobState::Pending);
}

#[test]
fn nobody_gives_way_for_more_than_the_least_number() {
    let mut world = pool(4);
    let low: Vec<JobId> = (0..4).map(|_| world.submit(JobSpec { priority: 10, ..job(10, 10) })).collect();
    world.settle(3);
    let id = world.submit(JobSpec { priority: 90, ..between(2, 4) });
    assert_eq!(world.settle(3).len(), 2);
    assert_eq!(size(&world, id), 2);
    assert_eq!(low.iter().filter(|id| world.job_state(**id) == JobState::Running).count(), 2);
}

#[test]
fn a_dry_run_says_of_an_elastic_gang_what_a_decision_does() {
    let preview = |world: &World, spec: &JobSpec| {
        tessera_explain::preview(&mut Pool::new(&world.state), &world.state, spec, LogTime(world.time))
    };
    let mut world = pool(5);
    world.queue("small", "", Some((30, 1000)));
    world.submit(job(10, 10));
    world.settle(3);
    for (queue, expected) in [("default", 4), ("small", 3)] {
        let Preview::Starts { workers } = preview(&world, &JobSpec { queue: queue.to_owned(), ..between(2, 8) }) else {
            panic!("two of eight have room");
        };
        assert_eq!(workers.len(), expected);
    }
    for _ in 0..4 {
        world.submit(job(10, 10));
    }
    world.settle(5);
    let urgent = JobSpec { priority: 90, ..between(2, 8) };
    let Preview::Preempts { victims, workers } = preview(&world, &urgent) else { panic!("two give way") };
    assert_eq!((victims.len(), workers.len()), (2, 2));
    world.submit(urgent);
    let told: Vec<JobId> = victims.iter().map(|victim| victim.job).collect();
    assert_eq!(world.settle(3), told);
}

#[test]
fn a_job_runs_as_long_as_it_asked_to_before_it_gives_way() {
    let mut world = pool(1);
    let shortest = Duration::from_secs(600);
    let victim = world.submit(JobSpec { priority: 10, min_runtime: shortest, ..job(10, 10) });
    world.settle(3);
    let urgent = world.submit(JobSpec { priority: 90, ..job(10, 10) });
    assert_eq!(world.settle(3), vec![]);
    world.pass(Duration::from_secs(599));
    assert_eq!(world.settle(3), vec![]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.settle(3), vec![victim]);
    assert_eq!(world.job_state(urgent), JobState::Running);
}

#[test]
fn a_loan_comes_back_within_an_hour_whatever_its_borrower_asked_for() {
    let mut world = pool(1);
    world.queue_of("owner", "", (10, 100), None, 1);
    let borrower = world.submit(JobSpec { min_runtime: Duration::from_secs(24 * 3600), ..job(10, 10) });
    world.settle(3);
    let owner = world.submit(JobSpec { queue: "owner".to_owned(), priority: 0, ..job(10, 10) });
    world.pass(Duration::from_secs(1800));
    assert_eq!(world.settle(3), vec![]);
    world.pass(Duration::from_secs(1800));
    assert_eq!(world.settle(3), vec![borrower]);
    assert_eq!(world.job_state(owner), JobState::Running);
}
