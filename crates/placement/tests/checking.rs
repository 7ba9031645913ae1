//! The independent check: it sees what is wrong with a plan, and it agrees with the ledger about plans that were
//! tampered with.

use std::time::Duration;

use proptest::prelude::*;
use tessera_check::{Problem, check};
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::history::{RandomCard, Step, nodes, step};
use crate::world::{World, cards, job};

/// A change to a plan; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Tampering {
    MoveSlice(u32),
    Grow(u32),
    Memory(i64),
    OtherCard(u32),
    VirtualCard(u32),
    Repeat,
    Reverse,
    NoVictims,
    AddVictim(u64),
    AddRenumber(u32, u32),
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        (0u32..24).prop_map(Tampering::MoveSlice),
        (0u32..24).prop_map(Tampering::Grow),
        (-400i64..400).prop_map(Tampering::Memory),
        (0u32..4).prop_map(Tampering::OtherCard),
        (0u32..4).prop_map(Tampering::VirtualCard),
        Just(Tampering::Repeat),
        Just(Tampering::Reverse),
        Just(Tampering::NoVictims),
        (1u64..12).prop_map(Tampering::AddVictim),
        (0u32..5, 0u32..4).prop_map(|(node, index)| Tampering::AddRenumber(node, index)),
    ]
}

fn tamper(plan: &mut Plan, tampering: Tampering, which: usize) {
    let count = plan.parts.len();
    match tampering {
        Tampering::Repeat => plan.parts.extend_from_within(..),
        Tampering::Reverse => plan.parts.reverse(),
        Tampering::AddRenumber(node, index) => {
            plan.parts.insert(which % (count + 1), PlanPart::Renumber { card: CardId { node: NodeId(node), index } });
        }
        _ => {
            let part = which.checked_rem(count).map(|position| &mut plan.parts[position]);
            if let Some(PlanPart::Grant { workers, victims, .. }) = part {
                tamper_grant(workers, victims, tampering, which);
            }
        }
    }
}

fn tamper_grant(workers: &mut [PlannedWorker], victims: &mut Vec<JobId>, tampering: Tampering, which: usize) {
    let worker = &mut workers[which % workers.len()];
    let slice = &mut worker.slices[0];
    match tampering {
        Tampering::MoveSlice(start) => slice.start = BlockIndex(start),
        Tampering::Grow(length) => slice.length = BlockCount(length),
        Tampering::Memory(more) => slice.memory = Mebibytes(slice.memory.0.saturating_add_signed(more)),
        Tampering::OtherCard(index) => slice.card.index = index,
        Tampering::VirtualCard(virtual_card) => worker.virtual_card = virtual_card,
        Tampering::NoVictims => victims.clear(),
        Tampering::AddVictim(job) => victims.push(JobId(job)),
        Tampering::Repeat | Tampering::Reverse | Tampering::AddRenumber(..) => {}
    }
}

fn accepted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Planned(parts) if parts.iter().all(Result::is_ok))
}

/// Plays a history up to a plan that is tampered with; answers what the check and the ledger say of it.
fn judge(nodes: &[Vec<RandomCard>], steps: &[Step], tampering: Tampering, which: usize) -> Option<(bool, bool, Plan)> {
    let mut world = World::random(nodes);
    let limits = Limits { reserve_after: Duration::from_secs(600), ..Limits::default() };
    for step in steps {
        world.step(step);
        if matches!(step, Step::Decide) {
            world.place();
        }
    }
    let mut plan = Pool::new(&world.state).decide(&world.state, LogTime(world.time), &limits).plan;
    if plan.parts.is_empty() {
        return None;
    }
    tamper(&mut plan, tampering, which);
    let checked = check(&world.state, &plan).is_ok();
    Some((checked, accepted(&world.apply(Command::CommitPlan { plan: plan.clone() })), plan))
}

proptest! {
    #[test]
    fn the_ledger_accepts_every_plan_that_passes_the_check(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 1..60),
        tampering in tampering(),
        which in 0usize..8,
    ) {
        if let Some((checked, accepted, plan)) = judge(&nodes, &steps, tampering, which) {
            prop_assert!(accepted || !checked, "the check passed what the ledger refuses: {plan:#?}");
        }
    }
}

fn one_grant() -> (World, Plan) {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    let mut spec = job(4, 40);
    spec.gang = 2;
    world.submit(spec);
    let plan = Pool::new(&world.state).decide(&world.state, LogTime(world.time), &Limits::default()).plan;
    assert_eq!(check(&world.state, &plan), Ok(()));
    (world, plan)
}

/// Tampers with the workers of the one grant; answers the first problem found.
fn problem_after(tamper: impl FnOnce(&mut Vec<PlannedWorker>)) -> Problem {
    let (world, mut plan) = one_grant();
    let PlanPart::Grant { workers, .. } = &mut plan.parts[0] else { panic!("a grant was expected") };
    tamper(workers);
    let violations = check(&world.state, &plan).expect_err("the plan is wrong");
    assert_eq!(violations[0].part, 0);
    violations[0].problem.clone()
}

#[test]
fn each_way_to_be_wrong_is_named() {
    let job = JobId(1);
    let broken = problem_after(|workers| drop(workers.pop()));
    assert_eq!(broken, Problem::GangBroken(job));
    let little = problem_after(|workers| workers[1].slices[0].length = BlockCount(3));
    assert_eq!(little, Problem::TooLittle { job, virtual_card: 1 });
    let starved = problem_after(|workers| workers[0].slices[0].memory = Mebibytes(39));
    assert_eq!(starved, Problem::TooLittle { job, virtual_card: 0 });
    let doubled = problem_after(|workers| workers[1].slices = workers[0].slices.clone());
    assert!(matches!(doubled, Problem::BlocksTaken { .. }), "{doubled:?}");
    let full = problem_after(|workers| workers[0].slices[0].memory = Mebibytes(101));
    assert!(matches!(full, Problem::CardFull(_)), "{full:?}");
    let strong = problem_after(|workers| workers[0].slices[0].isolation = Isolation::Hard);
    assert!(matches!(strong, Problem::CardNotAccepted { .. }), "{strong:?}");
    let astray = problem_after(|workers| workers[0].node = NodeId(7));
    assert_eq!(astray, Problem::NodeNotAccepted { job, node: NodeId(7) });
    let spread = problem_after(|workers| {
        let mut other = workers[0].slices[0];
        other.card.index = 1 - other.card.index;
        workers[0].slices.push(other);
    });
    assert_eq!(spread, Problem::SpreadTooFar { job, virtual_card: 0 });
}

#[test]
fn a_plan_that_is_carried_out_twice_is_wrong() {
    let (world, mut plan) = one_grant();
    plan.parts.extend_from_within(..);
    let violations = check(&world.state, &plan).expect_err("the job is granted twice");
    assert_eq!((violations[0].part, &violations[0].problem), (1, &Problem::JobNotReady(JobId(1))));
}
