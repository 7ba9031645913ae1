//! Tests of what-if and when: changes and time, played through on copies of the ledger.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use tessera_explain::{Preview, preview};
use tessera_foresight::{AddedNodes, Change, Estimate, Moves, Unknown, WhatIf, Whom, terms, what_if, when};
use tessera_ledger::*;
use tessera_placement::Pool;

use crate::world::history::{Step, nodes, step};
use crate::world::{World, card, cards, job};

fn now(world: &World) -> LogTime {
    LogTime(world.time)
}

fn think(world: &World, change: &Change) -> WhatIf {
    let digest = world.state.digest();
    let (answer, after) = what_if(&world.state, now(world), change).expect("the change can be made");
    assert_eq!(laws::check(&after), vec![]);
    assert_eq!(world.state.digest(), digest, "nothing is written");
    answer
}

fn limited(tflops: u64, seconds: u64) -> JobSpec {
    JobSpec { time_limit: Some(Duration::from_secs(seconds)), ..job(tflops, 0) }
}

/// Three nodes of ten, on one of which two jobs run: one finds a place elsewhere, the other waits.
#[test]
fn a_drain_says_who_goes_where_and_who_waits() {
    let mut world = World::default();
    let list = |kind| cards(&[(kind, 10, 100)]);
    let (a, b) = (world.node("a", list(CardKind::Gpu)), world.node("b", list(CardKind::Gpu)));
    let npu = world.node("c", list(CardKind::Npu));
    let only = |kind, spec: JobSpec| JobSpec {
        virtual_card: VirtualCardRequest { kinds: [kind].into(), ..spec.virtual_card.clone() },
        ..spec
    };
    let first = world.run(only(CardKind::Gpu, job(4, 0)));
    let second = world.run(only(CardKind::Gpu, job(6, 0)));
    assert!([first, second].iter().all(|id| world.slices(*id)[0].card.node == a), "they are stacked");
    let third = world.run(only(CardKind::Gpu, job(5, 0)));
    let elsewhere = world.run(only(CardKind::Npu, job(5, 0)));

    let answer = think(&world, &Change::Drain([a].into()));
    let gpu = (answer.before[&CardKind::Gpu], answer.after[&CardKind::Gpu]);
    assert_eq!((gpu.0.cards, gpu.1.cards, gpu.1.compute), (2, 1, MilliTflops::from_tflops(10)));
    assert_eq!(answer.before[&CardKind::Npu], answer.after[&CardKind::Npu]);
    let touched: BTreeSet<JobId> = answer.displaced.iter().map(|moved| moved.job).collect();
    assert_eq!(touched, [first, second].into());
    for moved in &answer.displaced {
        assert_eq!(moved.from, [a].into());
        match &moved.then {
            Moves::Runs(workers) => assert!(moved.job == first && workers[0].node == b),
            Moves::Waits(why) => assert_eq!((moved.job, why.code.name()), (second, "COMPUTE_SHORT")),
        }
    }
    assert_eq!((answer.waiting_before, answer.waiting_after, answer.whole), (0, 1, true));
    assert!(answer.started.is_empty());
    assert!(!touched.contains(&third) && !touched.contains(&elsewhere));

    let unknown = what_if(&world.state, now(&world), &Change::Drain([NodeId(9)].into()));
    assert_eq!(unknown.map(|_| ()).unwrap_err().code(), "NODE_UNKNOWN");
    let nothing = think(&world, &Change::Drain([npu].into()));
    assert_eq!(nothing.displaced.len(), 1);
}

/// Jobs that would have started anyway are not reported as a gain of the change.
#[test]
fn added_cards_start_what_waits_for_them_and_nothing_else() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    world.run(job(8, 0));
    let large: Vec<JobId> = (0..3).map(|_| world.submit(job(9, 0))).collect();
    let small = world.submit(job(2, 0));
    let cards = vec![card(0, CardKind::Gpu, 10, 100)];
    let added = |nodes| Change::Add(AddedNodes { cards: cards.clone(), nodes, ..AddedNodes::default() });
    let answer = think(&world, &added(2));
    let started: Vec<JobId> = answer.started.iter().map(|moved| moved.job).collect();
    assert_eq!(started, large[..2], "{small} fits as it is");
    assert_eq!((answer.waiting_before, answer.waiting_after), (3, 1));
    assert_eq!(answer.after[&CardKind::Gpu].cards, 3);
    let none = think(&world, &added(0));
    assert!(none.started.is_empty() && none.displaced.is_empty());
}

/// A job of the night waits for its window, although a card is free, and whoever computes into the night is in its way.
#[test]
fn when_knows_when_windows_open() {
    let mut world = World::of_this_release();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    // The day begins at midnight, and hours are those of UTC.
    let hour = |hour: u64| LogTime(hour * 3_600_000);
    world.time = hour(12).0;
    let nightly = JobSpec { windows: vec!["0 20 * * * for 4h".to_owned()], ..job(8, 0) };
    let asked = |world: &World| match when(&world.state, now(world), &Whom::Submitted(Box::new(nightly.clone())), None)
    {
        Estimate::At { time, .. } => time,
        Estimate::Unknown { why, .. } => panic!("{why:?}"),
    };
    assert_eq!(asked(&world), hour(20));
    world.run(limited(8, 11 * 3600));
    let late = asked(&world);
    assert!((hour(23)..hour(24)).contains(&late), "the other one has its card until 23 o'clock: {late:?}");
    let id = world.submit(nightly.clone());
    assert!(matches!(when(&world.state, now(&world), &Whom::Job(id), None), Estimate::At { time, .. } if time == late));
}

/// A node of four linked cards in a zone of its own, on a host of eight processors; and one like it without anything
/// of that.
fn two_kinds_of_nodes() -> (World, NodeId, NodeId) {
    let mut world = World::default();
    let bare = world.node("bare", cards(&[(CardKind::Gpu, 10, 100)]));
    let mut linked = cards(&[(CardKind::Gpu, 10, 100); 4]);
    let link = |peer_index| Link { peer_index, kind: LinkKind::Fabric, megabytes_per_second: 0 };
    for (card, peer) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        linked[card].links = vec![link(peer)];
    }
    let host = HostCapacity { cpu: MilliCpus(8_000), memory: Mebibytes(9_000) };
    let rich = world.hosted_node("rich", linked, &[("zone", "north")], Some(host));
    (world, bare, rich)
}

/// Jobs of this many processors each that wait for cards of the zone when everything else is taken.
fn waits_in_the_north(world: &mut World, cpu: u64, count: usize) {
    for tflops in [10; 5] {
        world.run(job(tflops, 0));
    }
    let mut spec = JobSpec { host: HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(1) }, ..job(10, 0) };
    spec.node_labels.insert("zone".to_owned(), "north".to_owned());
    for _ in 0..count {
        world.submit(spec.clone());
    }
}

#[test]
fn added_nodes_are_like_one_that_the_pool_has() {
    let (mut world, bare, rich) = two_kinds_of_nodes();
    waits_in_the_north(&mut world, 3_000, 4);
    let four = AddedNodes { cards: vec![card(0, CardKind::Gpu, 10, 100); 4], nodes: 1, ..AddedNodes::default() };
    let started = |added: &AddedNodes| {
        let answer = think(&world, &Change::Add(added.clone()));
        (answer.started.len(), answer.like)
    };
    assert_eq!(started(&four), (2, Some(rich)), "two of three processors each fit a host of eight");
    let large = AddedNodes { cpu: Some(MilliCpus(12_000)), ..four.clone() };
    assert_eq!(started(&large), (4, Some(rich)));
    let as_bare = AddedNodes { like: Some(bare), ..four.clone() };
    assert_eq!(started(&as_bare), (0, Some(bare)), "it is in no zone");
    let labels = [("zone".to_owned(), "north".to_owned())].into();
    assert_eq!(started(&AddedNodes { labels, ..as_bare }), (4, Some(bare)), "its host is not limited");
    let one = AddedNodes { cards: vec![card(0, CardKind::Gpu, 10, 100)], ..four };
    assert_eq!(started(&one), (0, Some(bare)), "the node with as many such cards");
    let other = AddedNodes { cards: vec![card(0, CardKind::Npu, 10, 100)], nodes: 1, ..AddedNodes::default() };
    assert_eq!(started(&other).1, None);
}

#[test]
fn added_cards_are_linked_like_those_of_the_node_that_they_are_like() {
    let (world, _, rich) = two_kinds_of_nodes();
    let three = vec![card(0, CardKind::Gpu, 10, 100); 3];
    let added = AddedNodes { cards: three, nodes: 1, like: Some(rich), ..AddedNodes::default() };
    let (_, after) = what_if(&world.state, now(&world), &Change::Add(added)).expect("the nodes can be added");
    let node = after.node_by_name("what-if-0").expect("it was added").id;
    let peers = |card: &Card| card.description.links.iter().map(|link| link.peer_index).collect::<Vec<_>>();
    let linked: Vec<Vec<u32>> = after.cards_of(node).map(|(_, card)| peers(card)).collect();
    assert_eq!(linked, [vec![1], vec![0], vec![]]);
}

#[test]
fn a_queue_is_tried_with_another_maximum() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 1000)]));
    world.queue("lab", "", Some((4, 1000)));
    let lab = |tflops| JobSpec { queue: "lab".to_owned(), ..job(tflops, 0) };
    world.run(lab(4));
    let waits = world.submit(lab(3));
    let mut settings = world.state.queue("lab").unwrap().settings.clone();
    settings.maximum = Some(QueueAmount { compute: MilliTflops::from_tflops(8), memory: Mebibytes(1000) });
    let answer = think(&world, &Change::Queue(settings.clone()));
    assert_eq!(answer.started.iter().map(|moved| moved.job).collect::<Vec<_>>(), [waits]);
    settings.parent = "nowhere".to_owned();
    assert!(what_if(&world.state, now(&world), &Change::Queue(settings)).is_err());
}

fn start_of(world: &World, whom: &Whom, assumed: Option<Duration>) -> Estimate {
    when(&world.state, now(world), whom, assumed)
}

fn seconds(world: &World, estimate: &Estimate) -> Option<u64> {
    match estimate {
        Estimate::At { time, .. } => Some(time.since(now(world)).as_secs()),
        Estimate::Unknown { .. } => None,
    }
}

/// Two jobs of five end after 100 and 300 s: four more fit after the first, the whole card after the second.
#[test]
fn a_start_is_told_from_time_limits() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    world.run(limited(5, 100));
    world.run(limited(5, 300));
    let whole = world.submit(job(10, 0));
    let estimate = start_of(&world, &Whom::Job(whole), None);
    assert_eq!(seconds(&world, &estimate), Some(300));
    let Estimate::At { rests_on, .. } = estimate else { panic!("{estimate:?}") };
    assert_eq!((rests_on.ends_at_limits, rests_on.without_limit), (2, 0));

    let behind = Whom::Submitted(Box::new(job(4, 0)));
    let Estimate::Unknown { why, .. } = start_of(&world, &behind, None) else { panic!("cards are kept for the first") };
    assert_eq!(why, Unknown::HeldWithoutLimit);
    world.apply(Command::CancelJob { job: whole });
    let small = Whom::Submitted(Box::new(job(4, 0)));
    assert_eq!(seconds(&world, &start_of(&world, &small, None)), Some(100));
    world.pass(Duration::from_secs(40));
    assert_eq!(seconds(&world, &start_of(&world, &small, None)), Some(60), "time has passed");
    let fits = Whom::Submitted(Box::new(JobSpec { priority: 90, ..job(5, 0) }));
    assert_eq!(seconds(&world, &start_of(&world, &fits, None)), Some(0), "it preempts");
}

#[test]
fn without_limits_nobody_can_say_unless_one_is_assumed() {
    let mut world = World::default();
    world.node("a", cards(&[(CardKind::Gpu, 10, 100)]));
    world.run(job(5, 0));
    world.run(limited(5, 100));
    let whole = Whom::Job(world.submit(job(10, 0)));
    match start_of(&world, &whole, None) {
        Estimate::Unknown { why, rests_on } => {
            assert_eq!((why, rests_on.without_limit), (Unknown::HeldWithoutLimit, 1));
        }
        other => panic!("{other:?}"),
    }
    let hour = Some(Duration::from_secs(3600));
    assert_eq!(seconds(&world, &start_of(&world, &whole, hour)), Some(3600));

    let held = Whom::Job(world.submit(JobSpec { held: true, ..job(1, 0) }));
    let unknown = |estimate| match estimate {
        Estimate::Unknown { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(unknown(start_of(&world, &held, hour)), Unknown::NotWaiting(why) if why.code.name() == "HELD"));
    let huge = Whom::Submitted(Box::new(job(999, 0)));
    assert!(matches!(unknown(start_of(&world, &huge, hour)), Unknown::Refused(_)));
}

/// Each zone is too small for the gang, whatever else runs: nobody can say when it starts.
#[test]
fn a_gang_that_can_never_be_together_is_given_no_time_whatever_else_runs() {
    let mut gang = JobSpec { gang: 2, ..job(19, 10) };
    gang.affinity.together = "zone".to_owned();
    for others in 0..3 {
        let mut world = World::default();
        for zone in ["0", "1"] {
            world.labelled_node(zone, cards(&[(CardKind::Gpu, 20, 1000)]), &[("zone", zone)]);
        }
        for _ in 0..others {
            world.submit(job(15, 10));
        }
        world.settle(3);
        let when = when(&world.state, now(&world), &Whom::Submitted(Box::new(gang.clone())), None);
        assert!(matches!(when, Estimate::Unknown { why: Unknown::NotWaiting(_), .. }), "{when:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// On any pool: what-if and when end, write nothing, are the same for equal states, and leave the laws whole.
    #[test]
    fn foresight_ends_and_changes_nothing(
        nodes in nodes(),
        steps in prop::collection::vec(step(), 10..70),
        limits in prop::collection::vec(prop::option::of(1u64..500), 1..8),
        which in 0usize..8,
    ) {
        let mut world = World::random(&nodes);
        for (number, step) in steps.iter().enumerate() {
            if let Step::Submit(request) = step {
                let limit = limits[number % limits.len()].map(Duration::from_secs);
                world.try_submit(JobSpec { time_limit: limit, ..request.spec() });
            } else {
                world.step(step);
            }
            if number % 3 == 0 {
                world.place();
            }
        }
        let node = world.state.nodes().map(|node| node.id).nth(which % nodes.len()).unwrap();
        let cards = vec![card(0, CardKind::Gpu, 20, 1000)];
        // Not fewer may wait with more room: it may let a large job start that takes what several small ones would
        // have had.
        let add = Change::Add(AddedNodes { cards, nodes: 2, ..AddedNodes::default() });
        for change in [Change::Drain([node].into()), add] {
            prop_assert_eq!(think(&world, &change), think(&world, &change));
        }
        for waiting in world.state.waiting().take(3).map(|job| job.id).collect::<Vec<_>>() {
            let whom = Whom::Job(waiting);
            let estimate = start_of(&world, &whom, Some(Duration::from_secs(100)));
            prop_assert_eq!(&estimate, &start_of(&world, &whom, Some(Duration::from_secs(100))));
            if let Estimate::At { time, .. } = estimate {
                prop_assert!(time >= now(&world));
            }
        }
    }
}

#[test]
fn a_preview_says_what_spoke_for_each_node() {
    let mut world = World::default();
    let two = || cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]);
    let [_, b, ..] = [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")]
        .map(|(name, rack)| world.labelled_node(name, two(), &[("rack", rack)]));
    world.apply(Command::UpdateCached { node: b, cached: BTreeSet::from(["imagenet".to_owned()]) });
    let mut spec = job(2, 10);
    spec.affinity.data = ["imagenet".to_owned(), "resnet".to_owned()].into();
    spec.affinity.preferred = vec![PreferredLabel { key: "rack".to_owned(), value: "r1".to_owned(), weight: 40 }];
    spec.affinity.together = "rack".to_owned();
    let Preview::Starts { workers } = preview(&mut Pool::new(&world.state), &world.state, &spec, world.state.time())
    else {
        panic!("it waits")
    };
    let judged = terms(&world.state, &spec, &workers);
    assert_eq!(judged.len(), 1);
    assert_eq!(judged[0].node, b);
    let told: Vec<(&str, u64, &str)> =
        judged[0].terms.iter().map(|term| (term.name, term.score, term.sentence.as_str())).collect();
    assert_eq!(
        told,
        [
            ("together", 1, "all workers share rack=r1"),
            ("preferred", 40, "preferred labels of weight 40 of 40"),
            ("data", 50, "1 of 2 pieces of its data are on the node's disks"),
            ("packing", 0, "stack: 100 % of its blocks are free"),
        ]
    );
    assert!(terms(&world.state, &job(2, 10), &workers)[0].terms.is_empty(), "no wishes, no terms");
}
