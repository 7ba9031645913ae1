//! Dry runs: where a job would start, whom it would preempt, and what those would lose.

use std::time::Duration;

use tessera_explain::Preview;
use tessera_ledger::*;
use tessera_placement::Loss;

use CardKind::Gpu;

use crate::world::{World, cards, job, preview, two_cards};

#[test]
fn a_dry_run_shows_where_and_whom_it_would_preempt_and_changes_nothing() {
    let world = two_cards();
    let before = world.state.digest();
    let Preview::Starts { workers } = preview(&world, &job(7, 10)) else { panic!("it fits on the second card") };
    assert_eq!(workers[0].slices[0].card.index, 1);
    let mut spec = job(7, 10);
    spec.gang = 2;
    assert!(matches!(preview(&world, &spec), Preview::Waits(_)));
    spec.priority = 80;
    let Preview::Preempts { victims, .. } = preview(&world, &spec) else { panic!("it would preempt") };
    let lost: Vec<(u64, u64)> = victims.iter().map(|victim| (victim.job.0, victim.loss.compute.0)).collect();
    assert_eq!(lost, [(2, 4000), (1, 6000)], "whoever loses least is named first");
    assert_eq!(world.state.digest(), before);
}

#[test]
fn a_dry_run_says_what_victims_would_lose() {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let saving = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    let first = world.submit(JobSpec { priority: 10, ..job(10, 10) });
    let second = world.submit(JobSpec { priority: 10, checkpoint: saving, ..job(8, 10) });
    world.settle(3);
    world.pass(Duration::from_secs(60));
    world.save(second, 1);
    world.pass(Duration::from_secs(40));
    let urgent = JobSpec { gang: 2, priority: 90, ..job(10, 10) };
    let Preview::Preempts { victims, .. } = preview(&world, &urgent) else { panic!("both would give way") };
    let lost: Vec<_> = victims.iter().map(|victim| (victim.job, victim.loss, victim.loss.tflops_seconds())).collect();
    let loss =
        |mode, work, tflops| Loss { mode, work: Duration::from_secs(work), compute: MilliTflops::from_tflops(tflops) };
    let expected = [
        (second, loss(CheckpointMode::Cooperative, 40, 8), 320),
        (first, loss(CheckpointMode::Requeue, 100, 10), 1000),
    ];
    assert_eq!(lost, expected);
}
