//! Host resources of workers, elastic gangs, and cards that are taken whole: what the ledger accepts and refuses.

use tessera_ledger::{
    AllocationPhase, CardDescription, CardHealth, CardKind, Command, HostCapacity, HostRequest, JobId, JobState,
    Mebibytes, MilliCpus, MilliTflops, NodeDescription, NodeId, Observation, Outcome, PlanPart, PlannedWorker,
    Rejection, Slice, StopCause,
};

use crate::pool::{self, Pool, card, exited, node, numbered, slice};

fn request(cpu: u64, memory: u64) -> HostRequest {
    HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(memory) }
}

/// A pool of one node that offers so much of its host.
fn with_host(cpu: u64, memory: u64, cards: &[CardDescription]) -> Pool {
    let mut pool = Pool::with_nodes(&[]);
    register(&mut pool, cpu, memory, cards);
    pool
}

fn register(pool: &mut Pool, cpu: u64, memory: u64, cards: &[CardDescription]) {
    let host = Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(memory) });
    let node = NodeDescription { host, ..node("n0") };
    let outcome = pool.run(Command::RegisterNode { node, cards: numbered(cards) });
    assert!(matches!(outcome, Outcome::Registered { .. }), "{outcome:?}");
}

fn grant(job: JobId, workers: Vec<Vec<Slice>>, victims: Vec<JobId>) -> PlanPart {
    let workers = (0..).zip(workers).map(|(virtual_card, slices)| PlannedWorker {
        virtual_card,
        node: slices[0].card.node,
        slices,
    });
    PlanPart::Grant { job, workers: workers.collect(), victims }
}

fn refusal(pool: &mut Pool, part: PlanPart) -> Rejection {
    match pool.plan(vec![part]) {
        Outcome::Planned(mut parts) => parts.remove(0).expect_err("it was accepted"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_is_never_given_away_twice() {
    let mut pool = with_host(4_000, 8_192, &[card(CardKind::Gpu, 10)]);
    let job = |pool: &mut Pool, cpu, memory| pool.submit(|spec| spec.host = request(cpu, memory));
    let (first, second) = (job(&mut pool, 3_000, 1_024), job(&mut pool, 1_500, 1_024));
    let (third, hungry) = (job(&mut pool, 1_000, 1_024), job(&mut pool, 0, 7_000));
    pool.grant(first, vec![slice(0, 0, 0, 1)]);
    let refused = refusal(&mut pool, grant(second, vec![vec![slice(0, 0, 1, 1)]], vec![]));
    assert_eq!(
        refused,
        Rejection::HostNotFree {
            node: NodeId(0),
            job: second,
            asked: request(1_500, 1_024),
            left: request(1_000, 7_168)
        }
    );
    assert_eq!(
        refused.to_string(),
        "node number 0 has 1000 milli-CPUs and 7168 MiB of its host left, and the workers of job 2 ask for 1500 \
         milli-CPUs and 1024 MiB; place them elsewhere"
    );
    pool.grant(third, vec![slice(0, 0, 1, 1)]);
    assert_eq!(pool.state.host_left(NodeId(0)), Some(request(0, 6_144)));
    let refused = refusal(&mut pool, grant(hungry, vec![vec![slice(0, 0, 2, 1)]], vec![]));
    assert_eq!(refused.code(), "HOST_NOT_FREE");
    for job in [first, third] {
        pool.report_all(job, &Observation::Running);
        pool.report_all(job, &exited(0));
    }
    assert_eq!(pool.state.host_left(NodeId(0)), Some(request(4_000, 8_192)));
    pool.grant(hungry, vec![slice(0, 0, 2, 1)]);
}

#[test]
fn an_unknown_host_is_not_limited_but_counted() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|spec| spec.host = request(1 << 20, 1 << 20));
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    assert_eq!(pool.state.host_left(NodeId(0)), None);
    assert_eq!(pool.state.host_use(NodeId(0)).used, request(1 << 20, 1 << 20));
}

#[test]
fn workers_of_a_gang_on_one_host_are_counted_together() {
    let mut pool = with_host(4_000, 8_192, &[card(CardKind::Gpu, 10)]);
    let job = pool.submit(|spec| {
        spec.gang = 3;
        spec.host = request(1_500, 0);
    });
    let workers = |count: u32| (0..count).map(|place| vec![slice(0, 0, place, 1)]).collect();
    let refused = refusal(&mut pool, grant(job, workers(3), vec![]));
    assert!(matches!(refused, Rejection::HostNotFree { asked, .. } if asked == request(4_500, 0)), "{refused}");
}

#[test]
fn an_allocation_waits_for_the_host_of_its_victims() {
    let mut pool = with_host(4_000, 8_192, &[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]);
    let victim = pool.submit(|spec| {
        spec.gang = 2;
        spec.priority = 10;
        spec.host = request(2_000, 0);
    });
    pool.accept(grant(victim, vec![vec![slice(0, 0, 0, 10)], vec![slice(0, 1, 0, 10)]], vec![]));
    pool.report_all(victim, &Observation::Running);
    let urgent = pool.submit(|spec| {
        spec.priority = 90;
        spec.host = request(4_000, 0);
    });
    pool.grant_over(urgent, vec![slice(0, 0, 0, 5)], vec![victim]);
    let held = pool.state.host_use(NodeId(0));
    assert_eq!((held.used, held.promised), (request(4_000, 0), request(4_000, 0)));

    // The card is given back, but not yet all of the host: the beneficiary waits on.
    let allocation = pool.allocation_of(victim);
    let report = |pool: &mut Pool, rank: usize| {
        let worker = allocation.owner(allocation.workers[rank].rank);
        let observation = pool::stopped(StopCause::Ordered, None);
        let reports = vec![tessera_ledger::WorkerReport { worker, observation }];
        pool.run(Command::ReportWorkers { node: NodeId(0), reports });
    };
    report(&mut pool, 0);
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Waiting);
    report(&mut pool, 1);
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Active);
    let held = pool.state.host_use(NodeId(0));
    assert_eq!((held.used, held.promised), (request(4_000, 0), HostRequest::ZERO));
    assert_eq!(pool.state.job(victim).unwrap().state, JobState::Suspended);
}

#[test]
fn a_host_that_shrinks_lets_nobody_wait_in_vain() {
    let cards = [card(CardKind::Gpu, 10)];
    let mut pool = with_host(4_000, 8_192, &cards);
    let victim = pool.submit(|spec| spec.host = request(4_000, 0));
    pool.grant(victim, vec![slice(0, 0, 0, 10)]);
    pool.report_all(victim, &Observation::Running);
    let urgent = pool.submit(|spec| {
        spec.priority = 90;
        spec.host = request(4_000, 0);
    });
    pool.grant_over(urgent, vec![slice(0, 0, 0, 5)], vec![victim]);
    register(&mut pool, 2_000, 8_192, &cards);
    assert_eq!(pool.state.job(urgent).unwrap().state, JobState::Pending);
    assert_eq!(pool.state.host_use(NodeId(0)).promised, HostRequest::ZERO);
    assert_eq!(pool.state.host_left(NodeId(0)), Some(request(0, 8_192)));
}

#[test]
fn a_move_needs_the_host_of_its_target() {
    let mut pool = with_host(3_000, 8_192, &[card(CardKind::Gpu, 10)]);
    let job = pool.submit(|spec| spec.host = request(2_000, 0));
    pool.grant(job, vec![slice(0, 0, 0, 1)]);
    pool.report_all(job, &Observation::Running);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 5, 1)] };
    let refused = refusal(&mut pool, PlanPart::Move { job, workers: vec![worker] });
    assert!(matches!(refused, Rejection::HostNotFree { left, .. } if left == request(1_000, 8_192)), "{refused}");
}

#[test]
fn an_elastic_gang_starts_with_what_there_is_room_for() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|spec| {
        spec.gang = 4;
        spec.gang_min = Some(2);
    });
    let workers = |count: u32| (0..count).map(|place| vec![slice(0, 0, place, 1)]).collect::<Vec<_>>();
    for count in [1, 5] {
        let refused = refusal(&mut pool, grant(job, workers(count), vec![]));
        assert_eq!(
            refused.to_string(),
            format!(
                "the allocation for job 1 does not fit what it asked for: \
                 the gang has 2 to 4 virtual cards, not {count}"
            )
        );
    }
    pool.accept(grant(job, workers(3), vec![]));
    assert_eq!(pool.allocation_of(job).workers.len(), 3);
    pool.report_all(job, &Observation::Running);
    let moved: Vec<_> = (0..2)
        .map(|virtual_card| PlannedWorker {
            virtual_card,
            node: NodeId(0),
            slices: vec![slice(0, 0, 5 + virtual_card, 1)],
        })
        .collect();
    assert_eq!(refusal(&mut pool, PlanPart::Move { job, workers: moved }).code(), "GRANT_MISMATCH");
}

#[test]
fn a_card_taken_whole_is_shared_with_nobody() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]]);
    let whole = pool.submit(|spec| spec.virtual_card.whole_cards = true);
    let other = pool.submit(|_| {});
    let refused = refusal(&mut pool, grant(whole, vec![vec![slice(0, 0, 0, 5)]], vec![]));
    assert!(
        refused.to_string().contains("card 0 of node number 0 must be taken whole, all 10 blocks of it"),
        "{refused}"
    );
    pool.grant(whole, vec![slice(0, 0, 0, 10)]);

    // The card grows: what is new on it is not for others either.
    let grown = CardDescription { index: 0, uuid: "card-0".to_owned(), ..card(CardKind::Gpu, 10) };
    let grown = CardDescription {
        measured: [(tessera_ledger::Precision::Fp16, MilliTflops::from_tflops(14))].into(),
        health: CardHealth::Healthy,
        ..grown
    };
    pool.run(Command::UpdateCards { node: NodeId(0), cards: vec![grown] });
    let refused = refusal(&mut pool, grant(other, vec![vec![slice(0, 0, 11, 1)]], vec![]));
    let card = tessera_ledger::CardId { node: NodeId(0), index: 0 };
    assert_eq!(refused, Rejection::CardTakenWhole { card, job: whole });
    pool.grant(other, vec![slice(0, 1, 0, 1)]);
    let second = pool.submit(|spec| spec.virtual_card.whole_cards = true);
    assert_eq!(refusal(&mut pool, grant(second, vec![vec![slice(0, 1, 0, 10)]], vec![])).code(), "BLOCKS_NOT_FREE");
}

#[test]
fn a_whole_card_can_be_made_by_preemption() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let victims: Vec<JobId> = (0..2).map(|_| pool.submit(|spec| spec.priority = 10)).collect();
    for (place, victim) in (0..).zip(&victims) {
        pool.grant(*victim, vec![slice(0, 0, place * 4, 4)]);
        pool.report_all(*victim, &Observation::Running);
    }
    let whole = pool.submit(|spec| {
        spec.priority = 90;
        spec.virtual_card.whole_cards = true;
    });
    pool.grant_over(whole, vec![slice(0, 0, 0, 10)], victims.clone());
    let refused_beside = pool.submit(|_| {});
    assert!(
        refusal(&mut pool, grant(refused_beside, vec![vec![slice(0, 0, 9, 1)]], vec![])).code() == "BLOCKS_NOT_FREE"
    );
    for victim in victims {
        assert_eq!(pool.allocation_of(whole).phase, AllocationPhase::Waiting);
        pool.report_all(victim, &pool::stopped(StopCause::Ordered, None));
    }
    assert_eq!(pool.allocation_of(whole).phase, AllocationPhase::Active);
}

#[test]
fn news_of_cached_data_change_the_node_and_nothing_else() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let epoch = pool.state.node(NodeId(0)).unwrap().epoch;
    let update = |names: &[&str]| Command::UpdateCached {
        node: NodeId(0),
        cached: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(pool.run(update(&["imagenet", "llama"])), Outcome::Done);
    let node = pool.state.node(NodeId(0)).unwrap();
    assert_eq!((node.epoch, node.description.cached.len()), (epoch, 2));
    assert!(matches!(pool.run(update(&["a\nb"])), Outcome::Rejected(Rejection::Invalid { .. })));
    let unknown = Command::UpdateCached { node: NodeId(7), cached: Default::default() };
    assert_eq!(pool.run(unknown), Outcome::Rejected(Rejection::UnknownNode(NodeId(7))));
}

#[test]
fn more_or_longer_names_of_data_than_the_ledger_keeps_are_refused_however_they_come() {
    let names =
        |count: usize| -> std::collections::BTreeSet<String> { (0..count).map(|n| format!("data-{n}")).collect() };
    let long = |bytes: usize| std::collections::BTreeSet::from(["x".repeat(bytes)]);
    let mut pool = Pool::with_nodes(&[&[]]);
    for (cached, accepted) in
        [(names(10_000), true), (names(10_001), false), (long(253), true), (long(254), false), (long(0), false)]
    {
        let update = pool.run(Command::UpdateCached { node: NodeId(0), cached: cached.clone() });
        let description = NodeDescription { cached: cached.clone(), ..node("n0") };
        let register = pool.run(Command::RegisterNode { node: description, cards: vec![] });
        if accepted {
            assert_eq!(update, Outcome::Done);
            assert!(matches!(register, Outcome::Registered { .. }), "{register:?}");
        }
        for outcome in [update, register].into_iter().filter(|_| !accepted) {
            let Outcome::Rejected(Rejection::Invalid { field, problem }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(field, "node.cached");
            assert!(problem.contains("10000 names") || problem.contains("1 to 253 bytes"), "{problem}");
        }
        let known = pool.state.node(NodeId(0)).unwrap().description.cached.len();
        assert!(known <= 10_000, "{known}");
    }
}

#[test]
fn jobs_that_ask_for_what_cannot_be_are_refused_by_field() {
    type Change = fn(&mut tessera_ledger::JobSpec);
    let label =
        |key: &str, weight| tessera_ledger::PreferredLabel { key: key.to_owned(), value: String::new(), weight };
    let wrong: [(Change, &str); 5] = [
        (|spec| spec.gang_min = Some(2), "spec.gang_min"),
        (|spec| spec.gang_min = Some(0), "spec.gang_min"),
        (|spec| spec.affinity.together = "a rack".to_owned(), "spec.affinity.together"),
        (|spec| spec.host.cpu = MilliCpus(u64::MAX), "spec.host.milli_cpus"),
        (|spec| spec.affinity.data = [String::new()].into(), "spec.affinity.data"),
    ];
    let mut specs: Vec<(tessera_ledger::JobSpec, &str)> = vec![];
    for (change, field) in wrong {
        let mut spec = pool::spec();
        change(&mut spec);
        specs.push((spec, field));
    }
    for (preferred, field) in [
        (label("rack", 0), "spec.affinity.preferred[0].weight"),
        (label("rack", 101), "spec.affinity.preferred[0].weight"),
        (label("the rack", 1), "spec.affinity.preferred[0].key"),
    ] {
        let mut spec = pool::spec();
        spec.affinity.preferred = vec![preferred];
        specs.push((spec, field));
    }
    for (spec, expected) in specs {
        let refused = spec.check().expect_err(expected);
        assert!(matches!(&refused, Rejection::Invalid { field, .. } if field == expected), "{refused}");
    }
}

#[test]
fn what_no_host_with_a_card_for_it_has_is_refused_at_once() {
    let mut pool = Pool::with_nodes(&[]);
    let named = |name: &str, cpu: u64, memory: u64| NodeDescription {
        host: Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(memory) }),
        ..node(name)
    };
    let register = |pool: &mut Pool, node: NodeDescription, cards: &[CardDescription]| {
        let outcome = pool.run(Command::RegisterNode { node, cards: numbered(cards) });
        assert!(matches!(outcome, Outcome::Registered { .. }), "{outcome:?}");
    };
    register(&mut pool, named("wide", 64_000, 1_000), &[card(CardKind::Gpu, 10)]);
    register(&mut pool, named("tall", 8_000, 9_000), &[card(CardKind::Gpu, 20)]);
    register(&mut pool, named("no-gpu", 90_000, 90_000), &[card(CardKind::Fpga, 90)]);
    register(&mut pool, named("bare", 99_000, 99_000), &[]);
    let ask = |pool: &mut Pool, host: HostRequest, tflops: u64, kinds: &[CardKind]| {
        let mut spec = pool::spec();
        spec.host = host;
        spec.virtual_card.compute = MilliTflops::from_tflops(tflops);
        spec.virtual_card.kinds = kinds.iter().copied().collect();
        match pool.run(tessera_testkit::submission(spec)) {
            Outcome::Submitted(_) => None,
            Outcome::Rejected(rejection) => Some(rejection),
            other => panic!("{other:?}"),
        }
    };
    let most = |demand, cpu, memory| Some(Rejection::ExceedsHost { demand, most: request(cpu, memory) });
    let gpu = [CardKind::Gpu];
    assert_eq!(ask(&mut pool, request(64_000, 1_000), 1, &gpu), None);
    assert_eq!(ask(&mut pool, request(8_000, 9_000), 20, &gpu), None);
    let both = request(9_000, 2_000);
    assert_eq!(ask(&mut pool, both, 1, &gpu), most(both, 64_000, 9_000), "one has the one, the other the other");
    assert_eq!(ask(&mut pool, both, 1, &[]), None, "the third has both, and a card that it accepts");
    let wide = request(9_000, 500);
    assert_eq!(ask(&mut pool, wide, 11, &gpu), most(wide, 8_000, 9_000), "the host that has it has too small a card");

    // A host that did not say is not limited; and one that says something else counts as it is now.
    register(&mut pool, node("unknown"), &[card(CardKind::Gpu, 1)]);
    assert_eq!(ask(&mut pool, both, 1, &gpu), None);
    register(&mut pool, named("unknown", 1, 1), &[card(CardKind::Gpu, 1)]);
    assert_eq!(ask(&mut pool, both, 1, &gpu), most(both, 64_000, 9_000));
    register(&mut pool, named("wide", 64_000, 2_000), &[card(CardKind::Gpu, 10)]);
    assert_eq!(ask(&mut pool, both, 1, &gpu), None);
    assert_eq!(
        pool.run(Command::SetEligibility {
            node: NodeId(0),
            eligibility: tessera_ledger::Eligibility::Draining,
            reason: String::new(),
        }),
        Outcome::Done
    );
    assert_eq!(ask(&mut pool, both, 1, &gpu), None, "it may come back");
}
