//! Preemption without needless victims: the sets of victims are small, also for large gangs, and every one of them
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use CardKind::Gpu;

use crate::world::{World, cards, cases, job, spanning};

fn of(queue: &str, spec: JobSpec) -> JobSpec {
    JobSpec { queue: queue.to_owned(), ..spec }
}

fn with_priority(priority: u32, spec: JobSpec) -> JobSpec {
    JobSpec { priority, ..spec }
}

fn with_host(milli_cpus: u64, spec: JobSpec) -> JobSpec {
    JobSpec { host: HostRequest { cpu: MilliCpus(milli_cpus), memory: Mebibytes(0) }, ..spec }
}

fn submit_many(world: &mut World, count: usize, spec: &JobSpec) {
    for _ in 0..count {
        world.submit(spec.clone());
    }
}

fn settled(world: &mut World, spec: JobSpec) -> JobId {
    let id = world.submit(spec);
    assert_eq!(world.settle(3), vec![]);
    id
}

#[test]
fn a_cheap_loan_does_not_shut_out_the_one_that_is_enough() {
    for span in [Span::Card, Span::Node, Span::Pool] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 10, 100)]));
        world.queue_of("owner", "", (9, 1000), None, 1);
        world.queue_of("borrower", "", (9, 1000), None, 1);
        let small = settled(&mut world, of("borrower", job(1, 1)));
        let large = settled(&mut world, of("borrower", job(9, 1)));
        world.submit(of("owner", spanning(span, job(9, 1))));
        assert_eq!(world.settle(3), vec![large], "only one may be recalled of {small} and {large}, span {span:?}");
    }
}

#[test]
fn cheap_loans_do_not_shut_out_those_that_make_room_for_a_gang() {
    for span in [Span::Card, Span::Node, Span::Pool] {
        let mut world = World::default();
        world.node("a", cards(&[(Gpu, 10, 100); 2]));
        world.queue_of("owner", "", (18, 1000), None, 1);
        world.queue_of("borrower", "", (10, 1000), None, 1);
        let held = [1, 1].map(|tflops| settled(&mut world, of("borrower", job(tflops, 60))));
        let large = [9, 9].map(|tflops| settled(&mut world, of("borrower", job(tflops, 1))));
        world.submit(JobSpec { gang: 2, ..of("owner", spanning(span, job(9, 1))) });
        let mut gave_way = world.settle(3);
        gave_way.sort_unstable();
        assert_eq!(gave_way, large, "{held:?} are of no use, span {span:?}");
    }
}

/// A gang of 110 is submitted with a higher priority than everybody else; answers who gives way for it.
fn victims_of_a_gang_of_110(world: &mut World, spec: JobSpec) -> Vec<JobId> {
    let gang = world.submit(JobSpec { gang: 110, ..with_priority(90, spec) });
    let parts = world.place();
    let [PlanPart::Grant { job, victims, .. }] = &parts[..] else { panic!("one grant was expected: {parts:?}") };
    assert_eq!(*job, gang);
    victims.clone()
}

#[test]
fn a_large_gang_takes_as_many_cards_as_it_lacks() {
    for span in [Span::Card, Span::Node] {
        let mut world = World::default();
        for node in 0..20 {
            world.node(&node.to_string(), cards(&[(Gpu, 10, 100); 8]));
        }
        submit_many(&mut world, 60, &with_priority(10, job(10, 10)));
        world.settle(3);
        let victims = victims_of_a_gang_of_110(&mut world, spanning(span, job(10, 10)));
        assert_eq!(victims.len(), 10, "60 of 160 cards are held, span {span:?}");
    }
}

#[test]
fn a_large_gang_takes_nobody_beside_whom_a_card_holds_as_many_of_it() {
    for span in [Span::Card, Span::Node] {
        let mut world = World::default();
        for node in 0..10 {
            let label = if node < 6 { "true" } else { "false" };
            world.labelled_node(&node.to_string(), cards(&[(Gpu, 20, 100); 6]), &[("crumbs", label)]);
        }
        let on = |crumbs: bool, spec: JobSpec| {
            let node_labels = [("crumbs".to_owned(), crumbs.to_string())].into();
            JobSpec { node_labels, ..spec }
        };
        // On each of 36 cards three rooms are free, and are still three when the small jobs have left beside the
        // urgent one.
        submit_many(&mut world, 36, &on(true, with_priority(95, job(2, 60))));
        world.settle(3);
        submit_many(&mut world, 108, &on(true, with_priority(10, job(1, 1))));
        // The other 24 cards are full of jobs as large as those of the gang.
        submit_many(&mut world, 96, &on(false, with_priority(20, job(5, 1))));
        world.settle(3);
        let victims = victims_of_a_gang_of_110(&mut world, spanning(span, job(5, 1)));
        // Spread over a node, two of the gang can also be made of ten small jobs of lower priority.
        let enough = if span == Span::Card { 2 } else { 10 };
        assert_eq!(victims.len(), enough, "108 rooms are free, span {span:?}");
    }
}

#[test]
fn a_large_gang_takes_a_gang_of_two_for_two_of_its_own() {
    let mut world = World::default();
    for node in 0..20 {
        world.node(&node.to_string(), cards(&[(Gpu, 10, 100); 8]));
    }
    submit_many(&mut world, 30, &JobSpec { gang: 2, ..with_priority(10, job(10, 10)) });
    world.settle(3);
    assert_eq!(victims_of_a_gang_of_110(&mut world, job(10, 10)).len(), 5);
}

#[test]
fn a_large_gang_takes_only_as_many_cards_of_a_node_as_its_host_has_room_for() {
    for span in [Span::Card, Span::Node] {
        let mut world = World::default();
        let mut node = |name: String, cpu: u64| {
            let host = HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(1024) };
            let full = if cpu < 8000 { &*name } else { "no" };
            world.hosted_node(&name, cards(&[(Gpu, 10, 100); 8]), &[("full", full)], Some(host));
        };
        // On forty nodes all cards are held. Whoever leaves first makes room for one worker, and nobody for two.
        (0..40).for_each(|number| node(format!("full-{number}"), 1070));
        (0..14).for_each(|number| node(format!("free-{number}"), 8000));
        let mut cheap = with_host(10, with_priority(10, job(10, 10)));
        for number in 0..320 {
            cheap.node_labels.insert("full".to_owned(), format!("full-{}", number / 8));
            world.submit(cheap.clone());
        }
        // Of the other 112 cards twelve are held, at a higher price.
        let mut dear = with_host(1000, with_priority(20, job(10, 10)));
        dear.node_labels.insert("full".to_owned(), "no".to_owned());
        submit_many(&mut world, 12, &dear);
        world.settle(3);
        let victims = victims_of_a_gang_of_110(&mut world, with_host(1000, spanning(span, job(10, 10))));
        assert_eq!(victims.len(), 10, "100 rooms are free, span {span:?}");
    }
}

#[test]
fn in_a_full_queue_the_room_beside_that_of_the_victims_is_used_too() {
    for (gang, span) in [(1, Span::Pool), (2, Span::Card), (2, Span::Node), (2, Span::Pool)] {
        let mut world = World::default();
        world.queue("small", "", Some((25, 1000)));
        world.node("a", cards(&[(Gpu, 10, 100)]));
        world.node("b", cards(&[(Gpu, 10, 100)]));
        world.labelled_node("c", cards(&[(Gpu, 10, 100)]), &[("zone", "c")]);
        let mut low = of("small", with_priority(10, job(10, 10)));
        low.node_labels.insert("zone".to_owned(), "c".to_owned());
        let low = settled(&mut world, low);
        let urgent = spanning(span, job(20 / u64::from(gang), 20));
        let urgent = world.submit(JobSpec { gang, ..of("small", with_priority(90, urgent)) });
        assert_eq!(world.settle(3), vec![low], "gang of {gang}, span {span:?}");
        assert_eq!(world.job_state(urgent), JobState::Running);
    }
}

/// `borrower` holds 15 of the 10 TFLOPS that it is guaranteed: 9 on one node, and 6 on another that is drained.
fn loan_on_a_drained_node() -> (World, [JobId; 2]) {
    let mut world = World::default();
    let (stays, drained) = (world.node("a", cards(&[(Gpu, 9, 100)])), world.node("b", cards(&[(Gpu, 6, 100)])));
    world.queue_of("owner", "", (9, 1000), None, 1);
    world.queue_of("borrower", "", (10, 1000), None, 1);
    let held = [9, 6].map(|tflops| world.submit(of("borrower", job(tflops, 1))));
    assert_eq!(world.settle(5), vec![]);
    let nodes = held.map(|id| world.slices(id)[0].card.node);
    assert_eq!(nodes, [stays, drained]);
    drain(&mut world, drained);
    (world, held)
}

fn drain(world: &mut World, node: NodeId) {
    let reason = String::new();
    let drained = world.apply(Command::SetEligibility { node, eligibility: Eligibility::Draining, reason });
    assert_eq!(drained, Outcome::Done);
}

#[test]
fn who_must_leave_a_drained_node_is_no_longer_on_loan() {
    let (mut world, [stays, leaves]) = loan_on_a_drained_node();
    let owners = world.submit(of("owner", job(5, 1)));
    let parts = world.place();
    assert!(matches!(parts[..], [PlanPart::Evict { job, .. }] if job == leaves), "{parts:?}");
    assert_eq!((world.job_state(stays), world.job_state(owners)), (JobState::Running, JobState::Pending));
}

#[test]
fn the_check_counts_what_those_give_back_who_leave_a_drained_node() {
    let (mut world, [stays, leaves]) = loan_on_a_drained_node();
    let job = world.submit(of("owner", job(5, 1)));
    let slices = vec![Slice { length: BlockCount(5), ..world.slices(stays)[0] }];
    let node = slices[0].card.node;
    let workers = vec![PlannedWorker { virtual_card: 0, node, slices }];
    let recall = PlanPart::Grant { job, workers, victims: vec![stays] };
    let evict = PlanPart::Evict { job: leaves, node: world.slices(leaves)[0].card.node };
    let plan = |parts| Plan { revision: world.state.revision(), parts };
    assert_eq!(tessera_check::check(&world.state, &plan(vec![recall.clone()])), Ok(()));
    assert!(tessera_check::check(&world.state, &plan(vec![evict, recall])).is_err());
}

#[test]
fn a_queue_recalls_what_it_lacks_once_its_own_must_leave_a_drained_node() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.queue_of("borrower", "", (0, 0), None, 1);
    world.queue_of("owner", "", (10, 1000), None, 1);
    let borrowed = world.submit(of("borrower", job(10, 1)));
    world.settle(5);
    let drained = world.node("b", cards(&[(Gpu, 10, 100)]));
    let first = world.submit(of("owner", job(10, 1)));
    world.settle(5);
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    let second = world.submit(of("owner", job(5, 1)));
    let mut decide = |world: &mut World| {
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        world.commit(&decision)
    };
    assert_eq!(decide(&mut world), vec![], "it would be beyond the guarantee");
    drain(&mut world, drained);
    let parts = decide(&mut world);
    assert!(matches!(parts[0], PlanPart::Evict { job, .. } if job == first), "{parts:?}");
    let PlanPart::Grant { job, victims, .. } = &parts[1] else { panic!("a grant was expected: {parts:?}") };
    assert_eq!((*job, &victims[..]), (second, &[borrowed][..]));
}

/// TFLOPS, MiB, gang, thousandths of a processor.
type RandomJob = (u64, u64, u32, u64);

fn random_job() -> impl Strategy<Value = RandomJob> {
    let gang = prop::sample::select(vec![1u32, 1, 1, 2, 3]);
    (1u64..12, prop::sample::select(vec![0u64, 1, 40]), gang, prop::sample::select(vec![0u64, 0, 1000]))
}

fn spec_of((tflops, memory, gang, cpu): RandomJob) -> JobSpec {
    JobSpec { gang, ..of("busy", with_host(cpu, job(tflops, memory))) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(192)))]

    #[test]
    fn no_victim_could_be_spared(
        nodes in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![3u64, 8, 10, 20]), 1..5), 1..5),
        maximum in prop::option::weighted(0.4, 15u64..60),
        low in prop::collection::vec(random_job(), 1..30),
        urgent in random_job(),
        span in prop::sample::select(vec![Span::Card, Span::Node, Span::Pool]),
    ) {
        let mut world = World::default();
        world.queue("busy", "", maximum.map(|maximum| (maximum, 100_000)));
        for (number, tflops) in nodes.iter().enumerate() {
            let list: Vec<_> = tflops.iter().map(|tflops| (Gpu, *tflops, 100)).collect();
            let host = HostCapacity { cpu: MilliCpus(3000), memory: Mebibytes(1024) };
            world.hosted_node(&number.to_string(), cards(&list), &[], (number % 2 > 0).then_some(host));
        }
        for low in low {
            world.try_submit(with_priority(10, spec_of(low)));
        }
        world.settle(5);
        // What a gang of spreading virtual cards fits into is not found exactly.
        let gang = if span == Span::Card { urgent.2 } else { 1 };
        let urgent = spanning(span, JobSpec { gang, ..spec_of((urgent.0 * 2, urgent.1, gang, urgent.3)) });
        let urgent = world.try_submit(with_priority(90, urgent));
        prop_assume!(urgent.is_some());
        let urgent = urgent.expect("others are left out");
        let mut before = World::default();
        before.resume_from(&world);
        let victims: BTreeMap<JobId, Vec<JobId>> = world
            .place()
            .into_iter()
            .filter_map(|part| if let PlanPart::Grant { job, victims, .. } = part { Some((job, victims)) } else { None })
            .collect();
        let victims = victims.get(&urgent).cloned().unwrap_or_default();
        for spared in &victims {
            let mut without = World::default();
            without.resume_from(&before);
            let config = PoolConfig { preemptions_per_hour: 0, ..PoolConfig::default() };
            prop_assert_eq!(without.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
            for victim in victims.iter().filter(|victim| *victim != spared) {
                without.apply(Command::CancelJob { job: *victim });
                without.stop(*victim);
            }
            without.place();
            // In a full queue it is not enough that there is room anywhere: whoever gives way must give of the cards
            // that are granted.
            let granted: BTreeSet<CardId> = without.slices(urgent).iter().map(|slice| slice.card).collect();
            let gives = |victim: &&JobId| before.slices(**victim).iter().any(|slice| granted.contains(&slice.card));
            if maximum.is_none() || victims.iter().filter(|victim| *victim != spared).all(|victim| gives(&victim)) {
                prop_assert!(granted.is_empty(), "{spared} of {victims:?} could be spared");
            }
        }
    }
}
