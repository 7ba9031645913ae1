//! Hosts, whole cards and elastic gangs in placement: cases that a review found.

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::{World, cards, job};

fn refusals(world: &mut World, rounds: usize) -> Vec<String> {
    let mut seen = vec![];
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    for _ in 0..rounds {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        if decision.plan.parts.is_empty() {
            seen.push("no plan".to_owned());
            continue;
        }
        match world.apply(Command::CommitPlan { plan: decision.plan.clone() }) {
            Outcome::Planned(parts) => seen.extend(parts.iter().map(|part| match part {
                Ok(_) => "ok".to_owned(),
                Err(e) => e.to_string(),
            })),
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[test]
fn a_job_goes_to_the_host_that_has_room() {
    let mut world = World::default();
    for name in ["a", "b"] {
        let node = world.node(name, cards(&[(CardKind::Gpu, 10, 1000)]));
        let mut description = world.state.node(node).unwrap().description.clone();
        description.host = Some(HostCapacity { cpu: MilliCpus(4000), memory: Mebibytes(9000) });
        let cards = cards(&[(CardKind::Gpu, 10, 1000)]);
        world.apply(Command::RegisterNode { node: description, cards });
    }
    for _ in 0..2 {
        world.submit(JobSpec { host: HostRequest { cpu: MilliCpus(4000), memory: Mebibytes(0) }, ..job(1, 1) });
    }
    refusals(&mut world, 5);
    assert_eq!(world.state.job_count(JobState::Starting), 2);
}

#[test]
fn a_whole_card_job_is_placed() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 1000)]));
    let mut spec = job(1, 1);
    spec.virtual_card.whole_cards = true;
    world.submit(spec);
    refusals(&mut world, 5);
    assert_eq!(world.state.job_count(JobState::Starting), 1);
}

#[test]
fn an_elastic_gang_is_placed() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 1000)]));
    let filler = world.submit(job(6, 1));
    refusals(&mut world, 1);
    world.start(filler);
    world.submit(JobSpec { gang: 3, gang_min: Some(2), ..job(2, 1) });
    refusals(&mut world, 5);
    assert_eq!(world.state.job_count(JobState::Starting), 1);
}

fn with_hosts(world: &mut World, name: &str, list: &[(CardKind, u64, u64)], cpu: u64) -> NodeId {
    let node = world.node(name, cards(list));
    let mut description = world.state.node(node).unwrap().description.clone();
    description.host = Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(9000) });
    world.apply(Command::RegisterNode { node: description, cards: cards(list) });
    node
}

fn only(kind: CardKind, cpu: u64) -> JobSpec {
    let mut spec = job(1, 1);
    spec.virtual_card.kinds = [kind].into();
    spec.host = HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) };
    spec
}

struct Kept {
    pool: Pool,
}
impl Kept {
    fn new(world: &mut World) -> Self {
        let pool = Pool::new(&world.state);
        world.state.take_touched();
        Self { pool }
    }
    fn round(&mut self, world: &mut World) -> Vec<String> {
        let touched = world.state.take_touched();
        self.pool.refresh(&world.state, &touched);
        let decision = self.pool.decide(&world.state, LogTime(world.time), &Limits::default());
        if decision.plan.parts.is_empty() {
            return vec![];
        }
        match world.apply(Command::CommitPlan { plan: decision.plan.clone() }) {
            Outcome::Planned(parts) => parts
                .iter()
                .map(|part| match part {
                    Ok(_) => "ok".to_owned(),
                    Err(e) => e.to_string(),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// The host becomes free by the end of a job on another card.
#[test]
fn a_freed_host_wakes_who_waits_for_it() {
    let mut world = World::default();
    with_hosts(&mut world, "a", &[(CardKind::Gpu, 10, 1000), (CardKind::Npu, 10, 1000)], 4000);
    let mut kept = Kept::new(&mut world);
    let first = world.submit(only(CardKind::Gpu, 4000));
    assert_eq!(kept.round(&mut world), ["ok"]);
    world.start(first);
    let second = world.submit(only(CardKind::Npu, 4000));
    assert_eq!(kept.round(&mut world), Vec::<String>::new());
    world.finish(first);
    kept.round(&mut world);
    assert_eq!(world.job_state(second), JobState::Starting);
}

/// The host grows.
#[test]
fn a_grown_host_wakes_who_waits_for_it() {
    let mut world = World::default();
    let list = [(CardKind::Gpu, 10, 1000)];
    let node = with_hosts(&mut world, "a", &list, 8000);
    let mut kept = Kept::new(&mut world);
    let first = world.submit(only(CardKind::Gpu, 4000));
    let offer = |world: &mut World, cpu: u64| {
        let mut description = world.state.node(node).unwrap().description.clone();
        description.host = Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(9000) });
        world.apply(Command::RegisterNode { node: description, cards: cards(&list) });
    };
    offer(&mut world, 1000);
    assert_eq!(kept.round(&mut world), Vec::<String>::new());
    offer(&mut world, 8000);
    kept.round(&mut world);
    assert_eq!(world.job_state(first), JobState::Starting);
}

/// Higher priority, host short, victim on the same card.
#[test]
fn a_host_is_made_free_by_preemption() {
    for list in [&[(CardKind::Gpu, 10, 1000)][..], &[(CardKind::Gpu, 10, 1000), (CardKind::Npu, 10, 1000)][..]] {
        let mut world = World::default();
        with_hosts(&mut world, "a", list, 4000);
        let mut kept = Kept::new(&mut world);
        let first = world.submit(JobSpec { priority: 10, ..only(CardKind::Gpu, 4000) });
        kept.round(&mut world);
        world.start(first);
        world.pass(std::time::Duration::from_secs(60));
        let kind = list.last().unwrap().0;
        let second = world.submit(JobSpec { priority: 90, ..only(kind, 4000) });
        assert_eq!(kept.round(&mut world), ["ok"]);
        assert_eq!([world.job_state(first), world.job_state(second)], [JobState::Suspending, JobState::Starting]);
    }
}

/// Blocks and host are both short: blocks are preempted for.
#[test]
fn preemption_looks_at_the_host_too() {
    let mut world = World::default();
    with_hosts(&mut world, "a", &[(CardKind::Gpu, 10, 1000), (CardKind::Npu, 10, 1000)], 4000);
    let mut kept = Kept::new(&mut world);
    let keeps = world.submit(JobSpec { priority: 99, ..only(CardKind::Npu, 3000) });
    kept.round(&mut world);
    world.start(keeps);
    let mut big = only(CardKind::Gpu, 500);
    big.virtual_card.compute = MilliTflops::from_tflops(10);
    let victim = world.submit(JobSpec { priority: 10, ..big.clone() });
    kept.round(&mut world);
    world.start(victim);
    world.pass(std::time::Duration::from_secs(60));
    big.host.cpu = MilliCpus(2000);
    world.submit(JobSpec { priority: 90, ..big });
    for _ in 0..4 {
        assert!(kept.round(&mut world).iter().all(|answer| answer == "ok"), "no plan is refused");
    }
    assert_eq!(world.job_state(victim), JobState::Running);
}

#[test]
fn min_runtime_is_kept() {
    let mut world = World::default();
    with_hosts(&mut world, "a", &[(CardKind::Gpu, 10, 1000)], 4000);
    let mut kept = Kept::new(&mut world);
    let victim =
        world.submit(JobSpec { priority: 10, min_runtime: std::time::Duration::from_secs(3600), ..job(10, 1) });
    kept.round(&mut world);
    world.start(victim);
    world.pass(std::time::Duration::from_secs(60));
    world.submit(JobSpec { priority: 90, ..job(10, 1) });
    kept.round(&mut world);
    assert_eq!(world.job_state(victim), JobState::Running);
    // An hour later, though nothing was written meanwhile: the ledger's own time stands still.
    let later = LogTime(world.time + 3_600_000);
    let plan = kept.pool.decide(&world.state, later, &Limits::default()).plan;
    assert!(matches!(&plan.parts[..], [PlanPart::Grant { victims, .. }] if *victims == [victim]), "{plan:?}");
}

/// The host becomes free by the end of a job on another card, and the node says in the same moment what data it has.
#[test]
fn a_freed_host_wakes_whatever_else_changed() {
    let mut world = World::default();
    let node = with_hosts(&mut world, "a", &[(CardKind::Gpu, 10, 1000), (CardKind::Npu, 10, 1000)], 4000);
    let mut kept = Kept::new(&mut world);
    let first = world.submit(only(CardKind::Gpu, 4000));
    assert_eq!(kept.round(&mut world), ["ok"]);
    world.start(first);
    let second = world.submit(only(CardKind::Npu, 4000));
    assert_eq!(kept.round(&mut world), Vec::<String>::new());
    world.apply(Command::UpdateCached { node, cached: ["imagenet".to_owned()].into() });
    world.finish(first);
    for _ in 0..5 {
        kept.round(&mut world);
        world.pass(std::time::Duration::from_secs(3600));
    }
    assert_eq!(world.job_state(second), JobState::Starting);
}

#[test]
fn a_new_label_wakes_who_waits_for_it() {
    let mut world = World::default();
    let list = [(CardKind::Gpu, 10, 1000)];
    let node = with_hosts(&mut world, "a", &list, 4000);
    let mut kept = Kept::new(&mut world);
    let first =
        world.submit(JobSpec { node_labels: [("rack".to_owned(), "7".to_owned())].into(), ..only(CardKind::Gpu, 1) });
    assert_eq!(kept.round(&mut world), Vec::<String>::new());
    let mut description = world.state.node(node).unwrap().description.clone();
    description.labels.insert("rack".to_owned(), "7".to_owned());
    let outcome = world.apply(Command::RegisterNode { node: description, cards: cards(&list) });
    assert!(matches!(outcome, Outcome::Registered { .. }), "{outcome:?}");
    kept.round(&mut world);
    assert_eq!(world.job_state(first), JobState::Starting);
}

/// The operator offers less of a host than is held: victims give back what was never left.
#[test]
fn an_overcommitted_host_and_preemption() {
    let mut world = World::default();
    let list = [(CardKind::Gpu, 10, 1000)];
    let node = with_hosts(&mut world, "a", &list, 4000);
    let mut kept = Kept::new(&mut world);
    let mut low = only(CardKind::Gpu, 2000);
    low.virtual_card.compute = MilliTflops::from_tflops(5);
    low.priority = 10;
    for _ in 0..2 {
        let id = world.submit(low.clone());
        kept.round(&mut world);
        world.start(id);
    }
    let mut description = world.state.node(node).unwrap().description.clone();
    description.host = Some(HostCapacity { cpu: MilliCpus(2000), memory: Mebibytes(9000) });
    world.apply(Command::RegisterNode { node: description, cards: cards(&list) });
    world.pass(std::time::Duration::from_secs(60));
    let urgent = world.submit(JobSpec { priority: 90, ..low });
    for _ in 0..4 {
        assert!(kept.round(&mut world).iter().all(|answer| answer == "ok"), "no plan is refused");
    }
    assert_eq!(world.job_state(urgent), JobState::Starting);
}
