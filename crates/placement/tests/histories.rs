//! Whatever has happened to a pool: a plan made against the present state is accepted whole, breaks no law, passes the
//! independent check, and is the same from an index that was kept current as from one that was just built when both
//! make their prices anew.

mod found;

use proptest::prelude::*;
use tessera_explain::WaitCode;
use tessera_ledger::{JobId, LogTime, PlanPart};
use tessera_placement::{Decision, Limits, Pool};

use crate::world::history::{RandomCard, Step, limits, nodes, step};
use crate::world::{World, cases};

/// Plays a history on one index that is kept current, at `each_step` or before decisions; with `compare`, a fresh one
/// must decide the same every time.
fn play(nodes: &[Vec<RandomCard>], steps: &[Step], limits: &Limits, each_step: bool, compare: bool) {
    let mut world = World::random(nodes);
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    for step in steps {
        world.step(step);
        let decides = matches!(step, Step::Decide | Step::DecideInVain);
        if decides || each_step {
            let touched = world.state.take_touched();
            pool.refresh(&world.state, &touched);
        }
        if !decides {
            continue;
        }
        let now = LogTime(world.time);
        if compare {
            let mut kept = pool.clone();
            kept.forget_prices();
            let fresh = Pool::new(&world.state).decide(&world.state, now, limits);
            assert_eq!(
                kept.decide(&world.state, now, limits).plan,
                fresh.plan,
                "the index has drifted from the ledger"
            );
            let at_its_prices = pool.clone().decide(&world.state, now, limits);
            if !(has_limited_gang(&world, &fresh) || has_limited_gang(&world, &at_its_prices)) {
                assert_eq!(at_its_prices.plan.parts.is_empty(), fresh.plan.parts.is_empty());
            }
        }
        let decision = pool.decide(&world.state, now, limits);
        let grants = decision.plan.parts.iter().filter(|part| matches!(part, PlanPart::Grant { .. })).count();
        assert!(grants <= limits.grants);
        if matches!(step, Step::Decide) {
            world.commit(&decision);
        }
    }
}

/// Returns whether a gang is granted something in a queue with a maximum, or after it gave way, when not more may be on
/// loan for it. The amount that its virtual cards count for there depends on the cards that prices choose, so that at
/// other prices it may be one block too much.
fn has_limited_gang(world: &World, decision: &Decision) -> bool {
    decision.plan.parts.iter().any(|part| {
        let PlanPart::Grant { job, .. } = part else { return false };
        world
            .state
            .job(*job)
            .is_some_and(|job| job.spec.gang > 1 && (job.gave_way() || world.is_limited(&job.spec.queue)))
    })
}

fn code_of(world: &World, id: JobId) -> WaitCode {
    let job = world.state.job(id).expect("the job is known");
    tessera_explain::explain(&mut Pool::new(&world.state), &world.state, job, world.state.time()).code
}

/// The jobs that are told that the pool is too small for them.
fn too_large(world: &World) -> Vec<JobId> {
    let waiting = world.state.jobs_from(JobId(0)).filter(|job| job.allocation.is_none()).map(|job| job.id);
    waiting.filter(|id| code_of(world, *id) == WaitCode::ExceedsPool).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(192)))]

    #[test]
    fn a_job_for_which_the_pool_is_too_small_does_not_start_when_all_others_end(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut world = World::random(&nodes);
        for step in &steps {
            world.step(step);
            if matches!(step, Step::Decide) {
                world.place();
            }
        }
        for job in too_large(&world) {
            let mut alone = World::default();
            alone.resume_from(&world);
            alone.leave_only(job);
            prop_assert!(alone.place().is_empty());
            // With all that room it may be its own wishes that are told to keep it from starting.
            let told = code_of(&alone, job);
            prop_assert!(matches!(told, WaitCode::ExceedsPool | WaitCode::Affinity), "{:?}", told);
        }
    }

    #[test]
    fn every_plan_is_accepted(nodes in nodes(), steps in prop::collection::vec(step(), 1..200)) {
        play(&nodes, &steps, &limits(), true, false);
    }

    #[test]
    fn an_index_that_was_kept_current_decides_like_a_fresh_one(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 1..200),
        each_step in any::<bool>(),
    ) {
        play(&nodes, &steps, &limits(), each_step, true);
    }

    #[test]
    fn small_limits_only_spread_the_work(nodes in nodes(), steps in prop::collection::vec(step(), 1..100)) {
        let limits = Limits { grants: 1, evictions: 1, preemption_searches: 1, ..limits() };
        play(&nodes, &steps, &limits, true, false);
    }
}
