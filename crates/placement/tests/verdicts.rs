//! Verdicts about a job before a decision agree with the decision: a job that is told that it starts does, one that is
//! told that it waits does not, and a dry run names the same places and victims.

use std::time::Duration;

use proptest::prelude::*;
use tessera_explain::{Explanation, Preview, WaitCode};
use tessera_ledger::*;
use tessera_placement::{Decision, Pool};

use CardKind::Gpu;

use crate::world::history::{Step, limits, nodes, request, step};
use crate::world::{World, cards, cases, job};

fn now(world: &World) -> LogTime {
    LogTime(world.time)
}

/// Decides and commits until nothing more is decided; answers the pool as it then stands, with what is kept for whom.
/// That every plan is accepted is not this test's business.
fn settled(world: &mut World) -> Option<Pool> {
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    for _ in 0..64 {
        let plan = decide(world, &mut pool).plan;
        if plan.parts.is_empty() {
            return Some(pool);
        }
        world.apply(Command::CommitPlan { plan });
    }
    None
}

fn decide(world: &mut World, pool: &mut Pool) -> Decision {
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    pool.decide(&world.state, LogTime(world.time), &limits())
}

fn explain(world: &World, pool: &mut Pool, id: JobId) -> Explanation {
    let job = world.state.job(id).expect("it is known").clone();
    tessera_explain::explain(pool, &world.state, &job, LogTime(world.time))
}

/// The workers that a decision grants a job, and the victims that give way for it; `None`: it grants nothing.
fn granted(decision: &Decision, id: JobId) -> Option<(Vec<PlannedWorker>, Vec<JobId>)> {
    decision.plan.parts.iter().find_map(|part| match part {
        PlanPart::Grant { job, workers, victims } if *job == id => Some((workers.clone(), victims.clone())),
        _ => None,
    })
}

/// The workers and victims that a dry run promises; `None`: the job does not start.
fn promised(preview: Preview) -> Option<(Vec<PlannedWorker>, Vec<JobId>)> {
    match preview {
        Preview::Starts { workers } => Some((workers, Vec::new())),
        Preview::Preempts { workers, victims } => {
            Some((workers, victims.into_iter().map(|victim| victim.job).collect()))
        }
        Preview::Waits(_) | Preview::Refused(_) => None,
    }
}

/// Asks for a dry run, submits, asks why, and decides; answers what was said and done.
fn foretold(world: &mut World, pool: &mut Pool, spec: JobSpec) -> (Preview, Explanation, Option<Vec<JobId>>) {
    let preview = tessera_explain::preview(pool, &world.state, &spec, now(world));
    let id = world.submit(spec);
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    let explanation = explain(world, pool, id);
    let granted = granted(&decide(world, pool), id);
    assert_eq!(promised(preview.clone()), granted, "{preview:?}");
    assert_eq!(explanation.code == WaitCode::Ready, granted.is_some(), "{explanation:?}");
    (preview, explanation, granted.map(|(_, victims)| victims))
}

/// Two cards of ten on each of which a job of six runs for a thousand seconds, and a gang that needs both has waited
/// for them.
fn kept_for_a_gang() -> (World, Pool) {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    for _ in 0..2 {
        world.submit(JobSpec { time_limit: Some(Duration::from_secs(1000)), ..job(6, 10) });
    }
    world.settle(3);
    world.submit(JobSpec { gang: 2, ..job(8, 10) });
    world.pass(Duration::from_secs(100));
    let pool = settled(&mut world).expect("it settles");
    (world, pool)
}

#[test]
fn who_is_over_in_time_is_not_told_that_cards_are_kept() {
    let (mut world, mut pool) = kept_for_a_gang();
    let (_, late, _) = foretold(&mut world, &mut pool, job(3, 10));
    assert_eq!(late.code, WaitCode::ReservedForEarlier);
    let (mut world, mut pool) = kept_for_a_gang();
    let brief = JobSpec { time_limit: Some(Duration::from_secs(60)), ..job(3, 10) };
    let (_, brief, granted) = foretold(&mut world, &mut pool, brief);
    assert_eq!((brief.code, granted), (WaitCode::Ready, Some(Vec::new())));
}

/// Each zone is too small for the gang, whatever else runs: that is its wish, and no wait helps.
#[test]
fn a_gang_that_can_never_be_together_is_told_so_whatever_else_runs() {
    let mut gang = JobSpec { gang: 2, ..job(19, 10) };
    gang.affinity.together = "zone".to_owned();
    let told = |others: u32| {
        let mut world = World::default();
        for zone in ["0", "1"] {
            world.labelled_node(zone, cards(&[(Gpu, 20, 1000)]), &[("zone", zone)]);
        }
        for _ in 0..others {
            world.submit(job(15, 10));
        }
        world.settle(3);
        let mut pool = settled(&mut world).expect("it settles");
        let (_, told, granted) = foretold(&mut world, &mut pool, gang.clone());
        assert_eq!((told.code, granted), (WaitCode::Affinity, None));
        told
    };
    let alone = told(0);
    assert!(alone.sentence.ends_with("waiting does not help"), "{}", alone.sentence);
    assert_eq!([told(1), told(2)], [alone.clone(), alone]);
}

/// The jobs that hold the cards are over their time limits: a time limit of its own would not let another job use them.
#[test]
fn a_time_limit_is_advised_only_where_one_would_help() {
    let advice = |passed: u64| {
        let (mut world, _) = kept_for_a_gang();
        world.pass(Duration::from_secs(passed));
        let mut pool = settled(&mut world).expect("it settles");
        let (_, late, _) = foretold(&mut world, &mut pool, job(3, 10));
        assert_eq!(late.code, WaitCode::ReservedForEarlier);
        late.change.expect("something is advised")
    };
    assert!(advice(0).starts_with("give it a time limit"));
    for passed in [880, 2000] {
        assert!(!advice(passed).contains("time limit"), "{}", advice(passed));
    }
}

#[test]
fn who_goes_before_the_holder_is_not_told_that_cards_are_kept() {
    let (mut world, mut pool) = kept_for_a_gang();
    let (_, urgent, granted) = foretold(&mut world, &mut pool, JobSpec { priority: 60, ..job(3, 10) });
    assert_eq!((urgent.code, granted), (WaitCode::Ready, Some(Vec::new())));
}

#[test]
fn another_queue_whose_turn_is_first_is_not_told_that_cards_are_kept() {
    let (mut world, _) = kept_for_a_gang();
    world.queue_of("owner", "", (10, 1000), None, 1);
    let mut pool = settled(&mut world).expect("it settles");
    let of = |queue: &str| JobSpec { queue: queue.to_owned(), ..job(3, 10) };
    let (_, first, _) = foretold(&mut world, &mut pool, of("owner"));
    assert_eq!(first.code, WaitCode::Ready);
}

#[test]
fn a_guarantee_goes_before_cards_that_are_kept_whoevers_turn_it_is() {
    let (mut world, _) = kept_for_a_gang();
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("other", "", (0, 0), None, 1);
    world.pass(Duration::from_secs(3600));
    let mut pool = settled(&mut world).expect("it settles");
    let of = |queue: &str| JobSpec { queue: queue.to_owned(), ..job(3, 10) };
    let (_, other, _) = foretold(&mut world, &mut pool, of("other"));
    assert_eq!(other.code, WaitCode::ReservedForEarlier, "{other:?}");
    let mut pool = settled(&mut world).expect("it settles");
    let (_, owner, _) = foretold(&mut world, &mut pool, of("owner"));
    assert_eq!(owner.code, WaitCode::Ready);
}

#[test]
fn who_starts_in_the_place_of_others_is_told_so() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.queue("narrow", "", Some((8, 100)));
    let of = |priority| JobSpec { queue: "narrow".to_owned(), priority, ..job(8, 10) };
    let low = world.submit(of(10));
    world.settle(3);
    let mut pool = settled(&mut world).expect("it settles");
    let (_, urgent, victims) = foretold(&mut world, &mut pool, of(90));
    assert_eq!((urgent.code, victims), (WaitCode::Ready, Some(vec![low])), "{urgent:?}");
    assert_eq!(urgent.sentence, format!("the next decision starts it in the place of job {low}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn what_is_said_of_a_job_is_what_is_done(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 1..150),
        asked in request(),
    ) {
        let mut world = World::random(&nodes);
        for step in &steps {
            world.step(step);
            if matches!(step, Step::Decide) {
                let plan = Pool::new(&world.state).decide(&world.state, now(&world), &limits()).plan;
                world.apply(Command::CommitPlan { plan });
            }
        }
        let Some(mut pool) = settled(&mut world) else { return Ok(()) };
        let waiting: Vec<JobId> = world.state.waiting().map(|job| job.id).collect();
        for id in &waiting {
            let explanation = explain(&world, &mut pool, *id);
            prop_assert!(explanation.code != WaitCode::Ready, "job {}: {:?}", id, explanation);
        }
        let spec = asked.spec();
        if let Some(id) = World::try_submit(&mut copy_of(&world), spec.clone()) {
            let preview = tessera_explain::preview(&mut pool, &world.state, &spec, now(&world));
            prop_assert_eq!(world.submit(spec.clone()), id);
            let touched = world.state.take_touched();
            pool.refresh(&world.state, &touched);
            let explanation = explain(&world, &mut pool, id);
            // At the prices that one more such request may have changed.
            let same = tessera_explain::preview(&mut pool, &world.state, &spec, now(&world));
            let granted = granted(&decide(&mut world, &mut pool), id);
            // Of a queue only the first four requests are looked at in search of the one that has waited longest. One
            // more before them may so end what was kept for the last of them, or have it kept for somebody else.
            let of_queue = waiting.iter().filter(|id| world.state.job(**id).is_some_and(|job| job.spec.queue == spec.queue));
            let may_push = of_queue.count() >= 4;
            let pushed = match explanation.code {
                WaitCode::ReservedForEarlier => granted.is_some(),
                WaitCode::Ready if granted.is_none() => {
                    explain(&world, &mut pool, id).code == WaitCode::ReservedForEarlier
                }
                _ => false,
            };
            if !(may_push && pushed) {
                prop_assert_eq!(explanation.code == WaitCode::Ready, granted.is_some(), "{:?}", explanation);
                prop_assert_eq!(promised(preview.clone()).is_some(), granted.is_some(), "{:?}", preview);
            }
            if waiting.is_empty() {
                prop_assert_eq!(promised(same), granted);
            }
        }
    }
}

fn copy_of(world: &World) -> World {
    let mut copy = World::default();
    copy.resume_from(world);
    copy
}
