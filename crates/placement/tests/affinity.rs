//! Affinity and packing: each wish decides a placement, none keeps a job from starting that could start without it
//! unless it must be met, and plan and check agree (`World::place` demands it of every plan).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tessera_check::{Problem, check};
use tessera_explain::{Preview, WaitCode, preview};
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use crate::world::{World, cards, job};

const GPU: CardKind = CardKind::Gpu;

/// Four nodes of two cards of 10 TFLOPS in two racks.
fn racks() -> (World, [NodeId; 4]) {
    let mut world = World::default();
    let two = || cards(&[(GPU, 10, 100), (GPU, 10, 100)]);
    let nodes = [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")]
        .map(|(name, rack)| world.labelled_node(name, two(), &[("rack", rack)]));
    (world, nodes)
}

fn with(spec: JobSpec, change: impl FnOnce(&mut Affinity)) -> JobSpec {
    let mut affinity = Affinity::default();
    change(&mut affinity);
    JobSpec { affinity, ..spec }
}

fn labelled(spec: JobSpec, key: &str, value: &str) -> JobSpec {
    JobSpec { labels: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..spec }
}

/// The nodes of a job's workers.
fn nodes_of(world: &World, job: JobId) -> Vec<NodeId> {
    let allocation = world.state.job(job).and_then(|job| job.allocation).and_then(|id| world.state.allocation(id));
    allocation.map(|allocation| allocation.workers.iter().map(|worker| worker.node).collect()).unwrap_or_default()
}

fn placed(world: &mut World, spec: JobSpec) -> Vec<NodeId> {
    let job = world.submit(spec);
    world.place();
    nodes_of(world, job)
}

fn racks_of(world: &World, nodes: &[NodeId]) -> Vec<String> {
    nodes.iter().map(|node| world.state.node(*node).unwrap().description.labels["rack"].clone()).collect()
}

#[test]
fn a_preferred_label_decides_by_its_weight() {
    let (mut world, [.., d]) = racks();
    let prefer =
        |key: &str, value: &str, weight| PreferredLabel { key: key.to_owned(), value: value.to_owned(), weight };
    let spec = with(job(4, 10), |affinity| {
        affinity.preferred = vec![prefer("rack", "r1", 10), prefer("rack", "r2", 20), prefer(NODE_KEY, "d", 5)];
    });
    assert_eq!(placed(&mut world, spec.clone()), [d]);
    // It only prefers: with d and the rest of r2 full it goes elsewhere.
    for _ in 0..3 {
        placed(&mut world, with(job(10, 10), |affinity| affinity.preferred = vec![prefer("rack", "r2", 1)]));
    }
    let elsewhere = placed(&mut world, JobSpec { virtual_card: job(9, 10).virtual_card, ..spec });
    assert_eq!(racks_of(&world, &elsewhere), ["r1"]);
}

#[test]
fn data_on_a_nodes_disks_decides() {
    let (mut world, [_, b, c, _]) = racks();
    let cache = |world: &mut World, node, names: &[&str]| {
        let cached = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(world.apply(Command::UpdateCached { node, cached }), Outcome::Done);
    };
    let reads =
        |names: &[&str]| with(job(2, 10), |wish| wish.data = names.iter().map(|name| (*name).to_owned()).collect());
    cache(&mut world, c, &["imagenet"]);
    cache(&mut world, b, &["imagenet", "resnet"]);
    assert_eq!(placed(&mut world, reads(&["imagenet", "resnet"])), [b], "both are better than one");
    cache(&mut world, b, &[]);
    assert_eq!(placed(&mut world, reads(&["imagenet", "resnet"])), [c], "one is better than none");
    assert_eq!(placed(&mut world, reads(&["elsewhere"])).len(), 1, "none is no reason to wait");
}

#[test]
fn spread_goes_over_the_values_of_a_label() {
    let (mut world, _) = racks();
    let gang = |key: &str| with(JobSpec { gang: 2, ..job(2, 10) }, |affinity| affinity.spread = key.to_owned());
    let nodes = placed(&mut world, gang("rack"));
    assert_eq!(racks_of(&world, &nodes), ["r1", "r2"]);
    let four = with(JobSpec { gang: 4, ..job(2, 10) }, |affinity| affinity.spread = NODE_KEY.to_owned());
    let nodes: BTreeSet<NodeId> = placed(&mut world, four).into_iter().collect();
    assert_eq!(nodes.len(), 4);
    // As far as they can be: five workers on four nodes.
    let five = with(JobSpec { gang: 5, ..job(2, 10) }, |affinity| affinity.spread = NODE_KEY.to_owned());
    let nodes: BTreeSet<NodeId> = placed(&mut world, five).into_iter().collect();
    assert_eq!(nodes.len(), 4);
}

#[test]
fn together_keeps_a_gang_in_one_rack_or_on_one_node() {
    let (mut world, [a, ..]) = racks();
    // Half of a is taken: without the wish, three cards would be found over both racks, too.
    placed(
        &mut world,
        JobSpec {
            node_labels: BTreeMap::new(),
            ..with(job(10, 10), |wish| {
                wish.preferred = vec![PreferredLabel { key: NODE_KEY.to_owned(), value: "a".to_owned(), weight: 1 }];
            })
        },
    );
    let gang = |count, key: &str| with(JobSpec { gang: count, ..job(10, 10) }, |wish| wish.together = key.to_owned());
    let four = placed(&mut world, gang(4, "rack"));
    assert_eq!(racks_of(&world, &four), ["r2"; 4], "r1 has only three cards left");
    let two = placed(&mut world, gang(2, NODE_KEY));
    assert_eq!(two.len(), 2);
    assert!(two[0] == two[1] && two[0] != a, "{two:?}");
    let waiting = world.submit(gang(2, "shelf"));
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending, "no node has that label");
}

#[test]
fn a_gang_is_together_where_only_cards_of_several_classes_hold_it() {
    let mut world = World::default();
    let gang = with(JobSpec { gang: 3, ..job(10, 10) }, |wish| wish.together = "rack".to_owned());
    for (name, rack, tflops) in [("a", "r1", 10), ("b", "r2", 10), ("c", "r2", 12), ("d", "r3", 12), ("e", "r2", 14)] {
        world.labelled_node(name, cards(&[(GPU, tflops, 100)]), &[("rack", rack)]);
    }
    let nodes = placed(&mut world, gang);
    assert_eq!(racks_of(&world, &nodes), ["r2"; 3], "no rack has three cards of a class");
}

#[test]
fn a_virtual_card_over_nodes_is_found_in_the_rack_that_holds_it_beside_larger_nodes() {
    let mut world = World::default();
    for (name, rack, count) in [("a", "r1", 3), ("b", "r2", 3), ("c", "r3", 3), ("d", "r4", 2), ("e", "r4", 2)] {
        world.labelled_node(name, cards(&vec![(GPU, 10, 100); count]), &[("rack", rack)]);
    }
    let mut spec = with(job(35, 0), |wish| wish.together = "rack".to_owned());
    spec.virtual_card.span = Span::Pool;
    assert_eq!(placed(&mut world, spec), [NodeId(3), NodeId(4)]);
}

#[test]
fn a_gang_that_cannot_be_together_waits_and_says_why() {
    let (mut world, _) = racks();
    for rack in ["r1", "r2"] {
        let there = BTreeMap::from([("rack".to_owned(), rack.to_owned())]);
        placed(&mut world, JobSpec { node_labels: there, ..job(10, 10) });
    }
    let waiting = world.submit(with(JobSpec { gang: 4, ..job(10, 10) }, |wish| wish.together = "rack".to_owned()));
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending);
    let job = world.state.job(waiting).unwrap().clone();
    let explanation = tessera_explain::explain(&mut Pool::new(&world.state), &world.state, &job, world.state.time());
    assert_eq!(explanation.code, WaitCode::Affinity);
    assert_eq!(
        explanation.sentence,
        "there is room for it, but not for all its workers on nodes with one value of the label \"rack\""
    );
}

#[test]
fn avoided_jobs_are_avoided_until_they_end() {
    let (mut world, _) = racks();
    let services: Vec<JobId> = (0..4)
        .map(|_| {
            let replica = labelled(job(2, 10), "service", "web");
            world.submit(with(replica, |wish| wish.avoid = BTreeMap::from([("service".to_owned(), "web".to_owned())])))
        })
        .collect();
    world.place();
    let nodes: BTreeSet<NodeId> = services.iter().flat_map(|job| nodes_of(&world, *job)).collect();
    assert_eq!(nodes.len(), 4, "one plan, and each on a node of its own");
    let shy = with(job(2, 10), |wish| wish.avoid = BTreeMap::from([("service".to_owned(), "web".to_owned())]));
    let mut pool = Pool::new(&world.state);
    let waiting = world.submit(shy);
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    assert_eq!(decision.plan.parts, []);
    let explanation = tessera_explain::explain(
        &mut pool,
        &world.state,
        &world.state.job(waiting).unwrap().clone(),
        world.state.time(),
    );
    assert_eq!(explanation.code, WaitCode::Affinity);
    assert_eq!(explanation.change.as_deref(), Some("leave out affinity.avoid, or wait until those jobs end"));
    // One of them ends: the node that it left is found by the same index, without being built anew.
    let node = nodes_of(&world, services[2])[0];
    world.start(services[2]);
    world.finish(services[2]);
    let touched = world.state.take_touched();
    pool.refresh(&world.state, &touched);
    let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
    world.commit(&decision);
    assert_eq!(nodes_of(&world, waiting), [node]);
}

#[test]
fn packing_stacks_or_spreads_as_job_queue_or_pool_say() {
    let (mut world, _) = racks();
    let distinct = |nodes: &[NodeId]| nodes.iter().collect::<BTreeSet<_>>().len();
    let stacked: Vec<NodeId> = (0..4).flat_map(|_| placed(&mut world, job(2, 10))).collect();
    assert_eq!(distinct(&stacked), 1);
    let spread: Vec<NodeId> =
        (0..3).flat_map(|_| placed(&mut world, JobSpec { packing: Some(Packing::Spread), ..job(2, 10) })).collect();
    assert_eq!(distinct(&spread), 3);
    assert!(!spread.contains(&stacked[0]), "there is more room elsewhere");

    let settings = world.state.queue(DEFAULT_QUEUE).unwrap().settings.clone();
    let queue = QueueSettings { name: "wide".to_owned(), packing: Some(Packing::Spread), ..settings };
    world.apply(Command::SetQueue { queue });
    let in_queue = |spec: JobSpec| JobSpec { queue: "wide".to_owned(), ..spec };
    let wide: Vec<NodeId> = (0..3).flat_map(|_| placed(&mut world, in_queue(job(1, 10)))).collect();
    assert_eq!(distinct(&wide), 3);

    let (mut world, _) = racks();
    let settings = world.state.queue(DEFAULT_QUEUE).unwrap().settings.clone();
    world.apply(Command::SetQueue { queue: QueueSettings { packing: Some(Packing::Spread), ..settings } });
    let own: Vec<NodeId> =
        (0..4).flat_map(|_| placed(&mut world, JobSpec { packing: Some(Packing::Stack), ..job(2, 10) })).collect();
    assert_eq!(distinct(&own), 1, "the job goes before its queue");

    let (mut world, _) = racks();
    world.apply(Command::SetConfig {
        config: PoolConfig { packing: Packing::Spread, ..PoolConfig::default() },
        expected: None,
    });
    let all: Vec<NodeId> = (0..4).flat_map(|_| placed(&mut world, job(2, 10))).collect();
    assert_eq!(distinct(&all), 4);
    let gang = world.submit(JobSpec { gang: 4, ..job(2, 10) });
    world.place();
    assert_eq!(distinct(&nodes_of(&world, gang)), 4);
    let indices: BTreeSet<u32> = world.slices(gang).iter().map(|slice| slice.card.index).collect();
    assert_eq!(indices, BTreeSet::from([1]), "on the idle card of each node");
}

#[test]
fn load_breaks_ties_and_nothing_else() {
    for packing in [None, Some(Packing::Spread)] {
        let (mut world, [a, b, c, d]) = racks();
        let spec = JobSpec { packing, ..job(2, 10) };
        let job = world.submit(spec.clone());
        let mut pool = Pool::new(&world.state);
        pool.set_load([(a, Percent(80)), (b, Percent(50)), (c, Percent(10)), (d, Percent(60))]);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        world.commit(&decision);
        assert_eq!(nodes_of(&world, job), [c], "{packing:?}");
        // Now c is not equal to the others any more.
        let second = world.submit(spec);
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        pool.set_load([(a, Percent(80)), (b, Percent(50)), (c, Percent(99)), (d, Percent(60))]);
        let decision = pool.decide(&world.state, LogTime(world.time), &Limits::default());
        world.commit(&decision);
        assert_eq!(nodes_of(&world, second), [if packing.is_some() { b } else { c }], "{packing:?}");
    }
}

#[test]
fn check_sees_wishes_that_are_not_met() {
    let (mut world, [a, b, c, _]) = racks();
    let web = world.submit(labelled(job(2, 10), "service", "web"));
    world.place();
    let home = nodes_of(&world, web)[0];
    let shy = world.submit(with(job(2, 10), |wish| {
        wish.avoid = BTreeMap::from([("service".to_owned(), "web".to_owned())]);
    }));
    let slice = |node: NodeId| Slice {
        card: CardId { node, index: 1 },
        start: BlockIndex(0),
        length: BlockCount(2),
        memory: Mebibytes(10),
        isolation: Isolation::Shared,
    };
    let worker = |virtual_card, node| PlannedWorker { virtual_card, node, slices: vec![slice(node)] };
    let plan = |job, workers| Plan {
        revision: world.state.revision(),
        parts: vec![PlanPart::Grant { job, workers, victims: vec![] }],
    };
    let problems = check(&world.state, &plan(shy, vec![worker(0, home)])).unwrap_err();
    assert_eq!(problems[0].problem, Problem::BesideAvoided { job: shy, node: home });
    let other = [a, b, c].into_iter().find(|node| *node != home).unwrap();
    assert_eq!(check(&world.state, &plan(shy, vec![worker(0, other)])), Ok(()));
    let pair = world.submit(with(JobSpec { gang: 2, ..job(2, 10) }, |wish| wish.together = "rack".to_owned()));
    let plan = |workers| Plan {
        revision: world.state.revision(),
        parts: vec![PlanPart::Grant { job: pair, workers, victims: vec![] }],
    };
    let problems = check(&world.state, &plan(vec![worker(0, b), worker(1, c)])).unwrap_err();
    assert_eq!(problems[0].problem, Problem::NotTogether(pair));
    assert_eq!(check(&world.state, &plan(vec![worker(0, a), worker(1, b)])), Ok(()));
}

#[test]
fn an_urgent_job_preempts_only_where_it_may_be() {
    let (mut world, _) = racks();
    let low = || JobSpec { priority: 10, ..job(10, 10) };
    let victims: Vec<JobId> = (0..8).map(|_| world.submit(low())).collect();
    world.place();
    for victim in &victims {
        world.start(*victim);
    }
    let urgent = with(JobSpec { gang: 3, priority: 90, ..job(10, 10) }, |wish| wish.together = "rack".to_owned());
    let urgent = world.submit(urgent);
    let parts = world.place();
    let [PlanPart::Grant { job, workers, .. }] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(*job, urgent);
    let nodes: Vec<NodeId> = workers.iter().map(|worker| worker.node).collect();
    let racks: BTreeSet<String> = racks_of(&world, &nodes).into_iter().collect();
    assert_eq!(racks.len(), 1);
}

fn wish() -> impl Strategy<Value = Affinity> {
    let key = || prop::sample::select(vec!["", "rack", "node", "zone"]).prop_map(str::to_owned);
    let label = (prop::sample::select(vec!["r1", "r2", "r9"]), 1u32..=100).prop_map(|(value, weight)| PreferredLabel {
        key: "rack".to_owned(),
        value: value.to_owned(),
        weight,
    });
    let data = prop::collection::btree_set(prop::sample::select(vec!["x", "y"]).prop_map(str::to_owned), 0..2);
    (prop::collection::vec(label, 0..3), key(), data).prop_map(|(preferred, spread, data)| Affinity {
        preferred,
        spread,
        data,
        ..Affinity::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// What only prefers never keeps a job from starting that starts without it; and every plan passes the check and
    /// the ledger.
    #[test]
    fn soft_wishes_never_break_feasibility(
        busy in prop::collection::vec(1u64..10, 0..8),
        tflops in 1u64..25,
        gang in 1u32..5,
        span in 0usize..3,
        spread in any::<bool>(),
        wishes in wish(),
    ) {
        let (mut world, _) = racks();
        for tflops in busy {
            placed(&mut world, job(tflops, 10));
        }
        let mut plain = JobSpec { gang, ..job(tflops, 10) };
        plain.virtual_card.span = [Span::Card, Span::Node, Span::Pool][span];
        let packing = spread.then_some(Packing::Spread);
        let wishing = JobSpec { affinity: wishes, packing, ..plain.clone() };
        let starts = |preview| matches!(preview, Preview::Starts { .. });
        let mut pool = Pool::new(&world.state);
        let without = starts(preview(&mut pool, &world.state, &plain, world.state.time()));
        prop_assert_eq!(starts(preview(&mut pool, &world.state, &wishing, world.state.time())) || !without, true);
        if let Some(job) = world.try_submit(wishing) {
            world.place();
            prop_assert!(!without || world.job_state(job) == JobState::Starting);
        }
    }

    /// With wishes that must be met, what starts meets them: `World::place` runs the check over every plan.
    #[test]
    fn hard_wishes_are_met_by_every_plan(
        jobs in prop::collection::vec((1u64..12, 1u32..4, 0usize..3, any::<bool>(), any::<bool>()), 1..10),
    ) {
        let (mut world, _) = racks();
        for (tflops, gang, key, web, shy) in jobs {
            let mut spec = JobSpec { gang, ..job(tflops, 10) };
            spec.virtual_card.span = if tflops > 10 { Span::Node } else { Span::Card };
            if web {
                spec = labelled(spec, "service", "web");
            }
            let spec = with(spec, |wish| {
                wish.together = ["", "rack", NODE_KEY][key].to_owned();
                if shy {
                    wish.avoid = BTreeMap::from([("service".to_owned(), "web".to_owned())]);
                }
            });
            world.try_submit(spec);
        }
        world.place();
    }
}
