//! Golden explanations: one binding constraint, its numbers, and the smallest change that would start the job; and
//! dry runs.

mod world;

use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Explanation, Limits, Loss, Pool, Preview, WaitCode};
use world::{World, cards, job};

use CardKind::{Gpu, Npu};

fn explain(world: &World, id: JobId) -> Explanation {
    let mut pool = Pool::new(&world.state);
    pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let job = world.state.job(id).expect("the job is known").clone();
    pool.explain(&world.state, &job, LogTime(world.time))
}

/// What a list says of jobs after one decision.
fn listed(world: &World, ids: &[JobId]) -> Vec<&'static str> {
    let mut pool = Pool::new(&world.state);
    pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let jobs = ids.iter().map(|id| world.state.job(*id).expect("the job is known"));
    jobs.map(|job| pool.waits_for(&world.state, job, LogTime(world.time)).name()).collect()
}

#[test]
fn a_list_says_in_a_word_what_each_job_waits_for() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let running: Vec<JobId> = (0..2).map(|_| world.submit(job(6, 10))).collect();
    world.place();
    running.iter().for_each(|id| world.start(*id));
    world.queue("small", "", Some((2, 1_000)));
    let of = |tflops, memory, change: fn(&mut JobSpec)| {
        let mut spec = job(tflops, memory);
        change(&mut spec);
        spec
    };
    let ids = [
        world.submit(of(6, 10, |spec| spec.gang = 2)),
        world.submit(of(1, 95, |spec| spec.gang = 2)),
        world.submit(of(7, 10, |_| {})),
        world.submit(of(3, 10, |spec| spec.queue = "small".to_owned())),
        world.submit(of(1, 10, |spec| spec.held = true)),
        world.submit(of(1, 10, |spec| spec.virtual_card.precision = Some(Precision::Fp16))),
    ];
    let words = listed(&world, &ids);
    assert_eq!(words, ["COMPUTE_SHORT", "MEMORY_SHORT", "NO_ROOM", "QUEUE_MAXIMUM", "HELD", "READY"]);
    for (id, word) in ids.iter().zip(&words).filter(|(_, word)| !matches!(**word, "NO_ROOM")) {
        assert_eq!(explain(&world, *id).code.name(), *word, "job {id}");
    }
}

fn preview(world: &World, spec: &JobSpec) -> Preview {
    Pool::new(&world.state).preview(&world.state, spec, LogTime(world.time))
}

/// Two cards with 6 and 4 of 10 blocks free.
fn two_cards() -> World {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    for tflops in [6, 4] {
        let id = world.submit(job(tflops, 10));
        world.place();
        world.start(id);
    }
    let used: Vec<u64> = world.state.cards().map(|(_, card)| card.memory_used.0).collect();
    assert_eq!(used, [20, 0], "both jobs are on the first card");
    world
}

#[test]
fn too_little_compute_names_what_is_missing() {
    let mut world = two_cards();
    let mut spec = job(6, 10);
    spec.gang = 2;
    let id = world.submit(spec);
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort);
    assert_eq!(
        explanation.sentence,
        "it needs 12 TFLOPS and 10 TFLOPS is free on the cards that it accepts: 2 TFLOPS too little"
    );
    assert!(explanation.numbers.contains(&("needed_compute", 12_000)));
    assert!(explanation.numbers.contains(&("free_compute", 10_000)));
    assert_eq!(explanation.change.as_deref(), Some("ask for at most 5 TFLOPS per virtual card"));
}

#[test]
fn cards_that_are_smaller_than_a_block_are_told_from_cards_of_the_wrong_kind() {
    let mut world = World::default();
    let mut processor = world::card(0, CardKind::Cpu, 0, 1000);
    processor.measured = [(Precision::Fp32, MilliTflops(200))].into();
    world.node("a", vec![processor]);
    let mut spec = job(0, 10);
    spec.virtual_card.compute = MilliTflops(100);
    spec.virtual_card.precision = Some(Precision::Fp32);
    let id = world.submit(spec);
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::NoBlocks);
    assert_eq!(
        explanation.sentence,
        "the cards that it accepts have no blocks: a block of this pool is 1 TFLOPS fp16, and the largest of them computes \
         nothing in fp16"
    );
    assert!(explanation.numbers.contains(&("block_compute", 1_000)));
    assert!(explanation.change.is_some_and(|change| change.contains("--block-size")));
}

#[test]
fn fragments_are_told_from_shortage_and_a_wider_span_is_offered() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let ids: Vec<JobId> = (0..2).map(|_| world.submit(job(6, 10))).collect();
    world.place();
    assert_ne!(world.slices(ids[0])[0].card, world.slices(ids[1])[0].card);
    let id = world.submit(job(8, 10));
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::Fragmented);
    assert_eq!(
        explanation.sentence,
        "enough is free in all, but not together: each of its 1 virtual cards needs 8 TFLOPS and 10 MiB on one card, and \
         the card with the most has 4 TFLOPS and 90 MiB"
    );
    assert_eq!(explanation.change.as_deref(), Some("allow the virtual card to spread: span: node"));
}

#[test]
fn memory_can_be_what_is_short() {
    let mut world = two_cards();
    let mut spec = job(1, 95);
    spec.gang = 2;
    let id = world.submit(spec);
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::MemoryShort);
    assert_eq!(
        explanation.sentence,
        "it needs 190 MiB and 100 MiB is free on the cards that it accepts: 90 MiB too little"
    );
    assert_eq!(explanation.change.as_deref(), Some("ask for at most 1 virtual cards at once"));
}

#[test]
fn a_full_queue_is_named_with_its_numbers() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.queue("small", "", Some((3, 100)));
    let queue = || JobSpec { queue: "small".to_owned(), ..job(2, 10) };
    world.submit(queue());
    world.place();
    let id = world.submit(queue());
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::QueueMaximum);
    assert_eq!(
        explanation.sentence,
        "queue \"small\" holds 2 TFLOPS and 10 MiB of at most 3 TFLOPS and 100 MiB, and the job needs 2 TFLOPS and 10 MiB more"
    );
    assert_eq!(
        explanation.change.as_deref(),
        Some("raise the maximum of queue \"small\" by 1 TFLOPS and 0 MiB, or wait until its jobs end")
    );
}

#[test]
fn labels_kinds_holds_and_totals_each_have_their_code() {
    let mut world = World::default();
    world.labelled_node("a", cards(&[(Gpu, 10, 100)]), &[("zone", "north")]);
    let mut labelled = job(2, 10);
    labelled.node_labels.insert("zone".to_owned(), "south".to_owned());
    let labelled = world.submit(labelled);
    let held = world.submit(JobSpec { held: true, ..job(2, 10) });
    let explanation = explain(&world, labelled);
    assert_eq!(explanation.code, WaitCode::NoNodeWithLabels);
    assert_eq!(explanation.sentence, "no node that takes new work has a card for it and the labels zone=south");
    let explanation = explain(&world, held);
    assert_eq!((explanation.code, explanation.change.as_deref()), (WaitCode::Held, Some("release the job")));
    let mut only_npu = job(2, 10);
    only_npu.virtual_card.kinds.insert(Npu);
    assert!(matches!(preview(&world, &only_npu), Preview::Refused(Rejection::ExceedsPool { .. })));
    assert!(matches!(preview(&world, &job(11, 10)), Preview::Refused(Rejection::ExceedsPool { .. })));
    assert!(matches!(preview(&world, &job(0, 10)), Preview::Refused(Rejection::Invalid { .. })));
}

#[test]
fn cards_kept_for_another_job_are_named() {
    let mut world = two_cards();
    let large = world.submit(JobSpec { gang: 2, ..job(8, 10) });
    world.pass(Duration::from_secs(40));
    let late = world.submit(job(5, 10));
    let explanation = explain(&world, late);
    assert_eq!(explanation.code, WaitCode::ReservedForEarlier);
    assert!(explanation.numbers.contains(&("reserved_for_job", large.0)), "{explanation:?}");
}

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
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    let saving = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
    let first = world.submit(JobSpec { priority: 10, ..job(10, 10) });
    let second = world.submit(JobSpec { priority: 10, checkpoint: saving, ..job(8, 10) });
    world.settle(3);
    world.pass(Duration::from_secs(100));
    let urgent = JobSpec { gang: 2, priority: 90, ..job(10, 10) };
    let Preview::Preempts { victims, .. } = preview(&world, &urgent) else { panic!("both would give way") };
    let lost: Vec<_> = victims.iter().map(|victim| (victim.job, victim.loss, victim.loss.tflops_seconds())).collect();
    let loss =
        |mode, work, tflops| Loss { mode, work: Duration::from_secs(work), compute: MilliTflops::from_tflops(tflops) };
    let expected =
        [(second, loss(CheckpointMode::Cooperative, 0, 8), 0), (first, loss(CheckpointMode::Requeue, 100, 10), 1000)];
    assert_eq!(lost, expected);
}

/// A pool of 20 TFLOPS of which `owner` is guaranteed 10.
fn lent_out() -> World {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("borrower", "", (0, 0), None, 2);
    for _ in 0..4 {
        world.submit(JobSpec { queue: "borrower".to_owned(), ..job(5, 10) });
    }
    world.settle(3);
    world
}

#[test]
fn a_job_beyond_the_guarantee_of_its_queue_is_told_so() {
    let mut world = lent_out();
    let id = world.submit(JobSpec { queue: "owner".to_owned(), gang: 3, ..job(5, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::BeyondGuarantee);
    assert_eq!(
        explanation.sentence,
        "queue \"owner\" holds 0 TFLOPS and 0 MiB of the 10 TFLOPS and 1000 MiB that it is guaranteed, and the job needs \
         15 TFLOPS and 30 MiB: beyond its guarantee it cannot call back what others have borrowed"
    );
    assert_eq!(
        explanation.change.as_deref(),
        Some("guarantee queue \"owner\" 5 TFLOPS and 0 MiB more, or wait until something is free")
    );
}

#[test]
fn protected_jobs_are_named_with_the_time_that_is_left() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(300), ..job(10, 10) });
    world.settle(3);
    world.pass(Duration::from_secs(100));
    let id = world.submit(JobSpec { priority: 90, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::VictimsProtected);
    assert_eq!(
        explanation.sentence,
        "jobs that would give way are left running for 200 s more: they were preempted too often within the last hour, or \
         have not run as long as they asked to"
    );
    assert_eq!(explanation.numbers, [("milliseconds_left", 200_000)]);
}

/// The end of the protection would free one of the two cards that the job needs, and nobody gives way on the other.
#[test]
fn protected_jobs_are_not_named_where_they_would_not_be_enough() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(300), ..job(10, 10) });
    world.submit(JobSpec { priority: 90, ..job(10, 10) });
    world.settle(3);
    let id = world.submit(JobSpec { priority: 90, gang: 2, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort, "{explanation:?}");
}

/// Of three protected jobs two must give way: what is told is when the second may.
/// Teams call back what their department is guaranteed: that is the guarantee that binds, not the team's own.
#[test]
fn a_team_beyond_the_guarantee_of_its_department_is_told_so() {
    let mut world = lent_out();
    world.queue_of("owner", "", (10, 1000), None, 1);
    world.queue_of("team", "owner", (2, 1000), None, 1);
    let id = world.submit(JobSpec { queue: "team".to_owned(), gang: 3, ..job(5, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::BeyondGuarantee, "{explanation:?}");
    let change = explanation.change.expect("there is one");
    assert!(change.starts_with("guarantee queue \"owner\" 5 TFLOPS"), "{change}");
}

#[test]
fn the_time_until_enough_jobs_are_not_protected_any_more_is_named() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Gpu, 10, 100), (Gpu, 10, 100)]));
    for seconds in [100, 200, 300] {
        world.submit(JobSpec { priority: 10, min_runtime: Duration::from_secs(seconds), ..job(10, 10) });
    }
    world.settle(3);
    let id = world.submit(JobSpec { priority: 90, gang: 2, ..job(10, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::VictimsProtected);
    assert_eq!(explanation.numbers, [("milliseconds_left", 200_000)]);
}

/// What others have borrowed is of no use to the job: more of a guarantee would not start it.
#[test]
fn a_guarantee_is_not_named_where_it_would_not_help() {
    let mut world = lent_out();
    world.node("npu", cards(&[(Npu, 10, 100)]));
    let of = |kind, gang| {
        let mut spec = JobSpec { queue: "owner".to_owned(), gang, ..job(5, 10) };
        spec.virtual_card.kinds.insert(kind);
        spec
    };
    world.submit(of(Npu, 2));
    world.settle(3);
    let id = world.submit(of(Npu, 1));
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort, "{explanation:?}");
    let id = world.submit(of(Gpu, 1));
    assert_eq!(explain(&world, id).code, WaitCode::BeyondGuarantee);
}

#[test]
fn a_backoff_is_over_at_its_time_though_nothing_was_written_since() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let retry = RetryPolicy { max_retries: 1, backoff: Duration::from_secs(60), ..RetryPolicy::default() };
    let id = world.submit(JobSpec { retry, ..job(10, 10) });
    world.place();
    world.start(id);
    let grant = world.state.job(id).and_then(|job| job.allocation).expect("it runs");
    world.report(grant, Rank(0), Observation::Stopped(world::exit(StopCause::Exited, Some(1))));
    let job = world.state.job(id).expect("it waits").clone();
    let at = |seconds: u64| {
        let now = LogTime(world.state.time().0 + seconds * 1000);
        Pool::new(&world.state).explain(&world.state, &job, now).code
    };
    assert_eq!((at(0), at(59)), (WaitCode::Backoff, WaitCode::Backoff));
    assert_eq!(at(60), WaitCode::Ready);
}

#[test]
fn a_queue_that_waits_for_other_cards_is_not_in_the_way() {
    let mut world = lent_out();
    let of = |queue: &str, kind, tflops| {
        let mut spec = JobSpec { queue: queue.to_owned(), ..job(tflops, 10) };
        spec.virtual_card.kinds.insert(kind);
        spec
    };
    world.node("npu", cards(&[(Npu, 3, 100)]));
    world.submit(of("default", Npu, 2));
    world.settle(3);
    let npu = world.submit(of("default", Npu, 2));
    let id = world.submit(of("borrower", Gpu, 5));
    assert_eq!(explain(&world, id).code, WaitCode::ComputeShort);
    world.apply(Command::CancelJob { job: npu });
    world.submit(of("default", Gpu, 5));
    assert_eq!(explain(&world, id).code, WaitCode::FairShareTurn);
}

#[test]
fn another_queue_whose_turn_it_is_is_named_with_both_shares() {
    let mut world = lent_out();
    world.submit(JobSpec { queue: "borrower".to_owned(), ..job(5, 10) });
    world.submit(JobSpec { queue: "default".to_owned(), ..job(5, 10) });
    let id = world.state.waiting().find(|job| job.spec.queue == "borrower").expect("it waits").id;
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::FairShareTurn);
    assert_eq!(
        explanation.sentence,
        "too little is free, and what becomes free goes to queue \"default\" first: it has borrowed 0.00 % of the pool for \
         its weight, or is within its guarantee, and queue \"borrower\" has borrowed 50.00 %"
    );
}

/// Two nodes of three cards, whose hosts have eight processors each.
fn six_cards() -> World {
    let mut world = World::default();
    for name in ["a", "b"] {
        let host = HostCapacity { cpu: MilliCpus(8_000), memory: Mebibytes(9_000) };
        world.hosted_node(name, cards(&[(Gpu, 10, 100); 3]), &[], Some(host));
    }
    world
}

#[test]
fn a_gang_that_all_hosts_together_do_not_hold_is_told_that_waiting_does_not_help() {
    let mut world = six_cards();
    let other = world.submit(asking(1_000, 100));
    world.place();
    let three = |cpu, span| {
        let mut spec = JobSpec { gang: 3, ..asking(cpu, 100) };
        spec.virtual_card.span = span;
        spec
    };
    for span in [Span::Card, Span::Node] {
        let id = world.submit(three(5_000, span));
        let explanation = explain(&world, id);
        assert_eq!(explanation.code, WaitCode::ExceedsPool);
        assert!(
            explanation
                .sentence
                .starts_with("it would not fit if all other work on the nodes that take new work ended"),
            "{}",
            explanation.sentence
        );
        let change = "ask for less of the host or for fewer workers at once, or add or uncordon nodes";
        assert_eq!(explanation.change.as_deref(), Some(change));
    }
    // Two on one of the hosts as long as the other job runs, and one on the other: only now there is no room.
    let id = world.submit(three(4_000, Span::Card));
    let undecided = world.state.job(id).expect("it was just submitted");
    assert_eq!(Pool::new(&world.state).explain(&world.state, undecided, world.state.time()).code, WaitCode::Ready);
    let node = world.slices(other)[0].card.node;
    let elsewhere = world.state.nodes().map(|known| known.id).find(|id| *id != node).expect("there are two");
    let (node, eligibility, reason) = (elsewhere, Eligibility::Cordoned, String::new());
    assert_eq!(world.apply(Command::SetEligibility { node, eligibility, reason }), Outcome::Done);
    assert_eq!(explain(&world, id).code, WaitCode::ExceedsPool, "three times four processors of eight");
}

/// Two hosts of which one has the processors and the other the memory, each with a card.
fn two_hosts() -> World {
    let mut world = World::default();
    for (name, cpu, memory) in [("wide", 64_000, 1_000), ("tall", 8_000, 9_000)] {
        let host = HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(memory) };
        world.hosted_node(name, cards(&[(Gpu, 10, 100)]), &[], Some(host));
    }
    world
}

fn asking(cpu: u64, memory: u64) -> JobSpec {
    JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(memory) }, ..job(1, 1) }
}

#[test]
fn a_job_that_no_host_is_large_enough_for_any_more_is_told_so_with_the_numbers() {
    let mut world = two_hosts();
    let id = world.submit(asking(64_000, 500));
    assert!(matches!(preview(&world, &asking(64_000, 9_000)), Preview::Refused(Rejection::ExceedsHost { .. })));
    let wide = world.state.node_by_name("wide").expect("it is known").id;
    assert_eq!(world.apply(Command::ForgetNode { node: wide }), Outcome::Done);
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ExceedsHost);
    let expected = [
        ("needed_milli_cpus", 64_000),
        ("most_milli_cpus", 8_000),
        ("needed_host_memory", 500),
        ("most_host_memory", 9_000),
    ];
    assert_eq!(explanation.numbers, expected);
    assert_eq!(explanation.change.as_deref(), Some("ask for less of the host, or add nodes"));
}

#[test]
fn a_job_that_hosts_have_too_little_left_for_is_told_so_with_the_numbers() {
    let mut world = two_hosts();
    let first = world.submit(asking(60_000, 500));
    world.place();
    world.start(first);
    let id = world.submit(asking(9_000, 500));
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::HostShort);
    let expected = [
        ("needed_milli_cpus", 9_000),
        ("best_milli_cpus", 8_000),
        ("needed_host_memory", 500),
        ("best_host_memory", 9_000),
    ];
    assert_eq!(explanation.numbers, expected);
}

#[test]
fn asking_why_a_job_waits_does_not_change_where_it_goes() {
    let mut world = World::default();
    let jobs = [("a", 7), ("b", 7), ("c", 10)].map(|(name, tflops)| {
        world.node(name, cards(&[(Gpu, 10, 100)]));
        let id = world.submit(job(tflops, 10));
        world.settle(3);
        id
    });
    let id = world.submit(job(8, 10));
    world.state.take_touched();
    let mut pool = Pool::new(&world.state);
    pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let asked = world.state.job(id).expect("it is known").clone();
    let explanation = pool.explain(&world.state, &asked, world.state.time());
    assert_eq!(explanation.change.as_deref(), Some("ask for at most 3 TFLOPS per virtual card"));
    world.finish(jobs[2]);
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    assert_eq!(decision.plan.parts.len(), 1, "there is room on c, whatever smaller jobs would have found elsewhere");
}

#[test]
fn an_elastic_gang_is_told_from_which_number_on_it_starts() {
    let mut world = two_cards();
    let id = world.submit(JobSpec { gang: 5, gang_min: Some(2), ..job(6, 10) });
    let explanation = explain(&world, id);
    assert_eq!(explanation.code, WaitCode::ComputeShort);
    assert_eq!(
        explanation.sentence,
        "it needs 12 TFLOPS and 10 TFLOPS is free on the cards that it accepts: 2 TFLOPS too little (for 2 virtual cards, the \
         least of 2 to 5)"
    );
    assert!(explanation.numbers.contains(&("gang_max", 5)));
}
