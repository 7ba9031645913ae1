//! Golden explanations: one binding constraint, its numbers, and the smallest change that would start the job.

use std::time::Duration;

use tessera_explain::{Preview, WaitCode};
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use CardKind::{Gpu, Npu};

use crate::world::{self, World, cards, explain, job, preview, two_cards};

/// The wait codes that a list shows for jobs after one decision.
fn listed(world: &World, ids: &[JobId]) -> Vec<&'static str> {
    let mut pool = Pool::new(&world.state);
    pool.decide(&world.state, LogTime(world.time), &Limits::default());
    let jobs = ids.iter().map(|id| world.state.job(*id).expect("the job is known"));
    jobs.map(|job| tessera_explain::waits_for(&pool, &world.state, job, LogTime(world.time)).name()).collect()
}

#[test]
fn a_list_says_in_a_word_what_each_job_waits_for() {
    let mut world = World::of_this_release();
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
        world.submit(of(1, 10, |spec| spec.node_labels = [("zone".to_owned(), "north".to_owned())].into())),
        world.submit(of(1, 10, |spec| spec.node_labels = [("node".to_owned(), "b".to_owned())].into())),
    ];
    let words = listed(&world, &ids);
    let without_node = "NO_NODE_WITH_LABELS";
    let expected =
        ["COMPUTE_SHORT", "MEMORY_SHORT", "NO_ROOM", "QUEUE_MAXIMUM", "HELD", "READY", without_node, without_node];
    assert_eq!(words, expected);
    for (id, word) in ids.iter().zip(&words).filter(|(_, word)| !matches!(**word, "NO_ROOM")) {
        assert_eq!(explain(&world, *id).code.name(), *word, "job {id}");
    }
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
fn a_backoff_is_over_at_its_time_though_nothing_was_written_since() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let retry = RetryPolicy { max_retries: 1, backoff: Duration::from_secs(60), ..RetryPolicy::default() };
    let id = world.submit(JobSpec { retry, ..job(10, 10) });
    world.place();
    world.start(id);
    let allocation = world.state.job(id).and_then(|job| job.allocation).expect("it runs");
    world.report(allocation, Rank(0), Observation::Stopped(world::exit(StopCause::Exited, Some(1))));
    let job = world.state.job(id).expect("it waits").clone();
    let at = |seconds: u64| {
        let now = LogTime(world.state.time().0 + seconds * 1000);
        tessera_explain::explain(&mut Pool::new(&world.state), &world.state, &job, now).code
    };
    assert_eq!((at(0), at(59)), (WaitCode::Backoff, WaitCode::Backoff));
    assert_eq!(at(60), WaitCode::Ready);
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
    assert_eq!(
        tessera_explain::explain(&mut Pool::new(&world.state), &world.state, undecided, world.state.time()).code,
        WaitCode::Ready
    );
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
    let explanation = tessera_explain::explain(&mut pool, &world.state, &asked, world.state.time());
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
