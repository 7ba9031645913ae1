//! Authority of leaders: whose orders and leases count, and for how long.

use super::*;

#[test]
fn hello_says_who_it_is_and_what_runs() {
    let (running, ended) = (worker(1, 10, 0), worker(2, 11, 0));
    let found =
        vec![WorkerRecord::found(status(running, Phase::Running), None), WorkerRecord::found(exited(ended, 3), None)];
    let mut bench = Bench::with(5, found);
    let hello = bench.hello();
    assert_eq!((hello.node_name.as_str(), hello.incarnation, hello.highest_term), ("node-a", 4, 5));
    assert_eq!(hello.cluster_id, "pool");
    let phases: Vec<_> = hello.workers.iter().map(wire::WorkerReport::phase).collect();
    assert_eq!(phases, [wire::WorkerPhase::Running, wire::WorkerPhase::Stopped]);
    assert_eq!(hello.workers[1].exit_code, Some(3));
}

#[test]
fn a_new_term_is_kept_before_orders_are_obeyed() {
    let mut bench = Bench::with(0, Vec::new());
    bench.hello();
    let effects = bench.hear(welcome(5));
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::KeepTerm { term: Term(5), cluster_id } if cluster_id == "pool"))
    );
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::HeartbeatEvery(every) if *every == Duration::from_secs(2)))
    );
    bench.lease(9_000);
    let run = order(worker(1, 10, 0), wire::WorkerDesire::Run);
    assert!(launched(&bench.hear(orders(5, true, vec![run]))).is_empty(), "not yet on disk");
    assert!(launched(&bench.on(Event::TermKept(Term(4)))).is_empty(), "another term");
    assert_eq!(launched(&bench.on(Event::TermKept(Term(5)))), [worker(1, 10, 0)]);
}

#[test]
fn a_name_that_is_not_kept_yet_is_kept_with_a_welcome_in_a_term_that_is_known() {
    let Bench { node, now } = Bench::with(5, Vec::new());
    let mut bench = Bench { node: node.named(false), now };
    let keeps = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::KeepTerm { .. }));
    assert!(keeps(&bench.welcome_in(5)));
    bench.on(Event::SessionClosed);
    assert!(!keeps(&bench.welcome_in(5)), "once");
}

#[test]
fn a_card_that_is_smaller_than_a_block_is_complained_of_once() {
    let card = wire::CardDescription {
        kind: wire::CardKind::Cpu.into(),
        vendor: "acme".to_owned(),
        model: "EPYC".to_owned(),
        measured: vec![wire::Rating { precision: wire::Precision::Fp32.into(), milli_tflops: 200 }],
        ..Default::default()
    };
    let facts = NodeFacts { name: "node-a".to_owned(), ..Default::default() };
    let node = Node::new(facts, vec![card], Term(0), String::new(), Vec::new());
    let mut bench = Bench { node, now: BootTime(1_000_000) };
    let warnings = |effects: &[Effect]| -> Vec<String> {
        let texts =
            effects.iter().filter_map(|effect| if let Effect::Warn(text) = effect { Some(text.clone()) } else { None });
        texts.collect()
    };
    let said = warnings(&bench.welcome_in(5));
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with(
        "card 0 (cpu EPYC): it has no block, so no job runs on it: a block of this pool is 1 TFLOPS fp16"
    ));
    assert!(said[0].contains("the card computes 0.2 TFLOPS fp32") && said[0].contains("cluster init --block-size"));
    bench.on(Event::SessionClosed);
    assert!(warnings(&bench.welcome_in(6)).is_empty(), "nothing is new about it");
}

#[test]
fn heartbeats_do_not_wait_for_the_disk() {
    let mut bench = Bench::with(0, Vec::new());
    bench.hello();
    bench.hear(welcome(5));
    assert!(bench.heartbeat().sequence > 0);
}

#[test]
fn an_older_leader_is_not_listened_to() {
    let mut bench = Bench::with(5, Vec::new());
    bench.hello();
    let effects = bench.hear(welcome(4));
    assert!(closes(&effects).expect("closed").contains("deposed"));
    assert!(!bench.node.is_welcome());

    let mut bench = Bench::leased();
    let run = order(worker(1, 10, 0), wire::WorkerDesire::Run);
    let effects = bench.hear(orders(4, true, vec![run]));
    assert!(closes(&effects).is_some() && launched(&effects).is_empty());

    let mut bench = Bench::leased();
    let lease = bench.node.lease();
    let sequence = bench.heartbeat().sequence;
    let grant = wire::LeaseGrant {
        heartbeat_sequence: sequence,
        stop_after_ms: 99_000,
        kill_after_ms: 99_000,
        term: 4,
        ..Default::default()
    };
    assert!(closes(&bench.hear(FromLeader::LeaseGrant(grant))).is_some());
    assert_eq!(bench.node.lease(), lease);
}

#[test]
fn a_term_that_no_elections_can_have_reached_locks_no_node_out() {
    let far = 6 + (1_u64 << 32);
    let mut bench = Bench::with(5, Vec::new());
    bench.hello();
    assert!(closes(&bench.hear(welcome(far))).expect("closed").contains("implausible"));
    assert_eq!((bench.node.highest_term(), bench.node.terms_refused()), (Term(5), 1));
    bench.hello();
    assert!(closes(&bench.hear(welcome(far - 1))).is_none(), "the highest that is believed");
    assert_eq!(bench.node.terms_refused(), 1);

    let mut bench = Bench::leased();
    assert!(closes(&bench.hear(orders(u64::MAX, true, Vec::new()))).is_some());
    assert_eq!(bench.node.highest_term(), Term(5));
}

#[test]
fn a_term_that_rises_within_a_session_is_kept_too() {
    let mut bench = Bench::leased();
    let run = order(worker(1, 10, 0), wire::WorkerDesire::Run);
    let effects = bench.hear(orders(6, false, vec![run]));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::KeepTerm { term: Term(6), .. })));
    assert!(launched(&effects).is_empty());
    assert_eq!(launched(&bench.on(Event::TermKept(Term(6)))), [worker(1, 10, 0)]);
}

#[test]
fn another_pool_s_leader_is_not_listened_to() {
    let mut bench = Bench::leased();
    bench.on(Event::SessionClosed);
    bench.hello();
    let FromLeader::Welcome(mut other) = welcome(9) else { panic!("made above") };
    other.cluster_id = "other".to_owned();
    assert!(closes(&bench.hear(FromLeader::Welcome(other))).expect("closed").contains("other"));
    assert_eq!(bench.node.highest_term(), Term(5), "its term means nothing here");
}

#[test]
fn messages_out_of_place_end_the_session() {
    let mut bench = Bench::with(0, Vec::new());
    bench.hello();
    assert!(closes(&bench.hear(orders(5, true, Vec::new()))).is_some(), "orders before the welcome");
    let mut bench = Bench::leased();
    assert!(closes(&bench.hear(welcome(5))).is_some(), "welcomed twice");
    assert!(
        bench.hear(orders(5, true, vec![order(worker(1, 1, 0), wire::WorkerDesire::Run)])).is_empty(),
        "nothing counts after it"
    );
}

#[test]
fn a_lease_counts_from_when_the_heartbeat_was_sent() {
    let mut bench = Bench::leased();
    bench.order(worker(1, 10, 0), wire::WorkerDesire::Run);
    let sent = bench.now;
    let sequence = bench.heartbeat().sequence;
    bench.pass(Duration::from_secs(4));
    // The echo is not trusted: the agent has its own record.
    let grant = |heartbeat_sequence| {
        FromLeader::LeaseGrant(wire::LeaseGrant {
            heartbeat_sequence,
            sent_at_boottime_ms: u64::MAX,
            stop_after_ms: 9_000,
            kill_after_ms: 12_000,
            term: 5,
            ..Default::default()
        })
    };
    let effects = bench.hear(grant(sequence));
    let renewed = effects.iter().find_map(|effect| {
        if let Effect::Renew { worker, lease, fence } = effect { Some((*worker, *lease, *fence)) } else { None }
    });
    let (renewed, lease, fence) = renewed.expect("forwarded");
    assert_eq!((renewed, fence), (worker(1, 10, 0), Fence { term: Term(5), epoch: Epoch(10) }));
    assert_eq!(lease.stop_at, sent.after(Duration::from_secs(9)));
    assert_eq!(lease.kill_at, sent.after(Duration::from_secs(12)));
    assert!(bench.hear(grant(sequence)).is_empty(), "an answer counts once");
    assert!(bench.hear(grant(999)).is_empty(), "an answer to nothing");
}

#[test]
fn how_long_the_pool_has_output_kept_follows_each_lease() {
    let mut bench = Bench::leased();
    let mut told = |seconds: Option<i64>| {
        let grant = wire::LeaseGrant {
            heartbeat_sequence: bench.heartbeat().sequence,
            stop_after_ms: 9_000,
            kill_after_ms: 12_000,
            term: 5,
            output_retention: seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
            ..Default::default()
        };
        let effects = bench.hear(FromLeader::LeaseGrant(grant));
        effects.iter().find_map(|effect| if let Effect::KeepOutput(kept) = effect { Some(*kept) } else { None })
    };
    assert_eq!(told(Some(3_600)), Some(Duration::from_secs(3_600)));
    assert_eq!(told(Some(3)), Some(Duration::from_secs(3)), "it was changed within the session");
    assert_eq!(told(Some(-1)), None, "nonsense changes nothing");
    assert_eq!(told(None), None, "it stays as it was");
}

#[test]
fn heartbeats_and_leases_follow_timings_that_are_changed_within_a_session() {
    let mut bench = Bench::leased();
    bench.order(worker(1, 10, 0), wire::WorkerDesire::Run);
    let long = bench.node.lease();
    let sent = bench.now;
    let grant = |heartbeat: wire::Heartbeat, seconds: u64| {
        let every = Duration::from_secs(seconds);
        FromLeader::LeaseGrant(wire::LeaseGrant {
            heartbeat_sequence: heartbeat.sequence,
            stop_after_ms: 3_000 * seconds,
            kill_after_ms: 4_000 * seconds,
            term: 5,
            heartbeat_interval: Some(every.try_into().expect("short")),
            ..Default::default()
        })
    };
    let pace = |effects: &[Effect]| {
        let every = |effect: &Effect| if let Effect::HeartbeatEvery(every) = effect { Some(*every) } else { None };
        effects.iter().find_map(every)
    };
    let answered = bench.heartbeat();
    let effects = bench.hear(grant(answered, 1));
    assert_eq!(pace(&effects), Some(Duration::from_secs(1)));
    assert_eq!(bench.node.lease(), long, "what was granted before is not taken back");
    bench.pass(Duration::from_secs(9));
    let (again, answered) = (bench.now, bench.heartbeat());
    bench.hear(grant(answered, 1));
    let lease = bench.node.lease().expect("it was renewed");
    assert_eq!(
        (lease.stop_at, lease.kill_at),
        (again.after(Duration::from_secs(3)), again.after(Duration::from_secs(4)))
    );
    let answered = bench.heartbeat();
    let effects = bench.hear(grant(answered, 10));
    assert_eq!(pace(&effects), Some(Duration::from_secs(10)));
    assert!(bench.node.lease().is_some_and(|lease| lease.kill_at == again.after(Duration::from_secs(40))));
    assert!(again > sent);
    let answered = bench.heartbeat();
    assert_eq!(pace(&bench.hear(grant(answered, 86_400))), Some(Duration::from_secs(60)), "no leader asks for less");
}

/// A leader that is cut off from everybody answers nothing, and its connections stay open for a while. Half of a lease
/// is left for finding another one.
#[test]
fn a_silent_leader_is_left_while_leases_last() {
    let mut bench = Bench::leased();
    let lease = bench.node.lease().expect("it is leased");
    let lasts = bench.now.until(lease.stop_at);
    bench.on(Event::HeartbeatDue);
    bench.pass(lasts / 3);
    assert!(!leaves(&bench.on(Event::HeartbeatDue)), "an answer may be on its way");
    bench.pass(lasts / 3);
    let effects = bench.on(Event::HeartbeatDue);
    assert!(leaves(&effects) && bench.now < lease.stop_at, "{effects:?}");
    assert!(bench.on(Event::HeartbeatDue).is_empty(), "there is no session any more");
}

#[test]
fn a_lease_is_not_forwarded_to_those_that_need_none() {
    let mut bench = Bench::leased();
    let mut keep = order(worker(1, 10, 0), wire::WorkerDesire::Run);
    keep.keep_on_disconnect = true;
    let effects = bench.hear(orders(5, false, vec![keep]));
    let lease =
        effects.iter().find_map(|effect| if let Effect::Launch(order) = effect { Some(order.lease) } else { None });
    assert_eq!(lease, Some(None), "started without a deadline");
    assert!(!bench.lease(9_000).iter().any(|effect| matches!(effect, Effect::Renew { .. })));
}

#[test]
fn nothing_starts_without_a_valid_lease() {
    let mut bench = Bench::with(0, Vec::new());
    bench.welcome_in(5);
    assert!(launched(&bench.order(worker(1, 10, 0), wire::WorkerDesire::Run)).is_empty(), "none was ever granted");
    assert_eq!(launched(&bench.lease(9_000)), [worker(1, 10, 0)]);
    bench.pass(Duration::from_secs(9));
    assert!(launched(&bench.order(worker(2, 11, 0), wire::WorkerDesire::Run)).is_empty(), "it has run out");
    assert_eq!(launched(&bench.lease(9_000)), [worker(2, 11, 0)]);
}

#[test]
fn a_node_with_work_that_an_earlier_agent_did_not_contain_says_so_until_that_is_over() {
    let one = worker(1, 10, 0);
    let found = WorkerRecord::found(status(one, Phase::Running), None);
    let mut bench = Bench::with(5, vec![found]);
    bench.node.facts.containment.whole = true;
    let said = bench.hello().containment.expect("said");
    assert!(!said.whole && said.missing.contains("did not contain"), "{said:?}");
    bench.hear(welcome(5));
    let effects = bench.told(exited(one, 0));
    assert_eq!(closes(&effects), None, "its end is told first");
    let acknowledged = bench.acknowledge(&effects);
    assert!(closes(&acknowledged).is_some(), "the session begins anew: {acknowledged:?}");
    assert!(bench.hello().containment.expect("said").whole);
}

#[test]
fn a_stop_does_not_wait_for_the_disk_that_a_start_waits_for() {
    let mut bench = Bench::leased();
    let (one, two) = (worker(1, 10, 0), worker(2, 11, 0));
    bench.order(one, wire::WorkerDesire::Run);
    let both = vec![order(one, wire::WorkerDesire::Stop), order(two, wire::WorkerDesire::Run)];
    let effects = bench.hear(orders(6, false, both));
    assert_eq!(stopped(&effects), [(one, Cause::Ordered)]);
    assert!(launched(&effects).is_empty(), "term 6 is not on disk");
    assert_eq!(launched(&bench.on(Event::TermKept(Term(6)))), [two]);
}
