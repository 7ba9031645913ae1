//! Gangs that no node holds, and virtual cards that no node holds: on few nodes, of one rack where one is enough, of
//! one class of cards.

use std::collections::BTreeSet;

use tessera_ledger::*;
use tessera_placement::Pool;

use CardKind::Gpu;

use crate::world::{World, cards, job};

/// Nodes of two cards of 10 TFLOPS, one after the other in these racks.
fn pool(racks: &[&str]) -> World {
    let mut world = World::default();
    for (number, rack) in racks.iter().enumerate() {
        world.labelled_node(&format!("n{number}"), cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]), &[("rack", rack)]);
    }
    world
}

fn gang(workers: u32, tflops: u64) -> JobSpec {
    JobSpec { gang: workers, ..job(tflops, 10) }
}

/// Places a job; the nodes that it got slices on.
fn placed(world: &mut World, spec: JobSpec) -> BTreeSet<NodeId> {
    let job = world.submit(spec);
    world.place();
    assert_eq!(world.job_state(job), JobState::Starting);
    world.slices(job).iter().map(|slice| slice.card.node).collect()
}

fn racks(world: &World, nodes: &BTreeSet<NodeId>) -> BTreeSet<String> {
    nodes.iter().map(|node| world.state.node(*node).unwrap().description.labels["rack"].clone()).collect()
}

/// Keeps so much of a node busy.
fn occupy(world: &mut World, node: u32, tflops: u64) {
    let name = world.state.node(NodeId(node)).unwrap().description.name.clone();
    let affinity = Affinity {
        preferred: vec![PreferredLabel { key: NODE_KEY.to_owned(), value: name, weight: 1 }],
        ..Affinity::default()
    };
    assert_eq!(placed(world, JobSpec { affinity, ..job(tflops, 10) }), [NodeId(node)].into());
}

#[test]
fn a_gang_goes_to_the_rack_that_it_fills_best() {
    let mut world = pool(&["a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "c", "c"]);
    let nodes = placed(&mut world, gang(6, 10));
    assert_eq!(nodes, [NodeId(1), NodeId(4), NodeId(7)].into(), "all of b, which holds no more");
    let nodes = placed(&mut world, gang(6, 10));
    assert_eq!((racks(&world, &nodes), nodes.len()), (["a".to_owned()].into(), 3));
}

#[test]
fn a_gang_that_no_rack_holds_goes_to_few_racks_the_largest_first() {
    let mut world = pool(&["a", "b", "c", "a", "b", "c", "a", "b", "c", "c"]);
    let nodes = placed(&mut world, gang(10, 10));
    assert_eq!(nodes.len(), 5);
    let there = racks(&world, &nodes);
    assert!(there.len() == 2 && there.contains("c"), "{there:?}");
}

#[test]
fn a_gang_goes_to_few_nodes_and_not_to_what_is_left_over_on_many() {
    let mut world = pool(&["a", "b", "a", "b", "a", "b", "a", "b"]);
    for node in 0..6 {
        occupy(&mut world, node, 8);
        occupy(&mut world, node, 8);
    }
    // Each of the first six has twice room for one worker; the last two have room for ten each.
    let nodes = placed(&mut world, gang(10, 2));
    assert_eq!(nodes.len(), 1, "a node that holds all of it");
    let nodes = placed(&mut world, gang(12, 2));
    assert_eq!(nodes.len(), 2, "ten on the largest node, two where they just fit, in its rack: {nodes:?}");
    assert_eq!(racks(&world, &nodes).len(), 1);
}

#[test]
fn a_gang_is_of_one_class_of_cards() {
    let mut world = World::default();
    for number in 0..8 {
        let tflops = [10, 12][number % 2];
        world.labelled_node(&format!("n{number}"), cards(&[(Gpu, tflops, 100), (Gpu, tflops, 100)]), &[("rack", "a")]);
    }
    let nodes = placed(&mut world, gang(6, 10));
    let parities: BTreeSet<u32> = nodes.iter().map(|node| node.0 % 2).collect();
    assert_eq!(parities.len(), 1, "{nodes:?}");
    // Only together do the rest of both hold this one.
    assert_eq!(placed(&mut world, gang(10, 10)).len(), 5);
}

#[test]
fn workers_that_take_whole_nodes_are_of_one_rack() {
    let mut world = pool(&["a", "b", "c", "a", "b", "c", "b"]);
    let mut spec = gang(3, 20);
    (spec.virtual_card.span, spec.virtual_card.whole_cards) = (Span::Node, true);
    let nodes = placed(&mut world, spec);
    assert_eq!((racks(&world, &nodes), nodes.len()), (["b".to_owned()].into(), 3));
}

#[test]
fn workers_of_several_cards_share_a_node_that_holds_them() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100); 2]));
    world.node("b", cards(&[(Gpu, 10, 100); 2]));
    world.node("c", cards(&[(Gpu, 10, 100); 4]));
    let mut spec = gang(2, 20);
    (spec.virtual_card.span, spec.virtual_card.whole_cards) = (Span::Node, true);
    assert_eq!(placed(&mut world, spec.clone()), [NodeId(2)].into());
    assert_eq!(placed(&mut world, spec), [NodeId(0), NodeId(1)].into());
}

#[test]
fn a_virtual_card_over_nodes_is_of_one_rack_if_that_takes_no_more_slices() {
    let mut spec = job(50, 10);
    spec.virtual_card.span = Span::Pool;
    let mut world = pool(&["a", "b", "c", "a", "b", "a", "b", "b"]);
    let nodes = placed(&mut world, spec.clone());
    assert_eq!(racks(&world, &nodes), ["a".to_owned()].into(), "the smallest rack that is enough");
    // Two cards of b have four blocks left each: they would be two slices where one of another rack is enough.
    let mut world = pool(&["a", "b", "a", "b", "b", "c"]);
    for (node, tflops) in [(1, 6), (1, 6), (5, 10), (5, 4)] {
        occupy(&mut world, node, tflops);
    }
    spec.virtual_card.compute = MilliTflops::from_tflops(46);
    let nodes = placed(&mut world, spec);
    assert_eq!(racks(&world, &nodes).len(), 2, "fewer slices go before one rack: {nodes:?}");
}

#[test]
fn labels_and_hosts_are_respected_among_racks_and_nothing_fits_less_than_before() {
    let mut world = World::default();
    let host = |cpu| Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(1000) });
    for number in 0..12 {
        let (rack, disk) = (["a", "b", "c"][number % 3], ["nvme", "none"][number / 6]);
        let labels = [("rack", rack), ("disk", disk)];
        let cpu = if rack == "a" { 1000 } else { 2000 };
        world.hosted_node(&format!("n{number}"), cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]), &labels, host(cpu));
    }
    let mut spec = gang(4, 10);
    spec.host.cpu = MilliCpus(1000);
    spec.node_labels = [("disk".to_owned(), "nvme".to_owned())].into();
    let nodes = placed(&mut world, spec.clone());
    assert_eq!((racks(&world, &nodes), nodes.len()), (["b".to_owned()].into(), 2));
    spec.node_labels.insert("rack".to_owned(), "c".to_owned());
    let nodes = placed(&mut world, spec.clone());
    assert_eq!(racks(&world, &nodes), ["c".to_owned()].into());
    // What is left of the nvme nodes is one worker each on the two of rack a.
    spec.node_labels.remove("rack");
    assert_eq!(placed(&mut world, JobSpec { gang: 2, ..spec.clone() }).len(), 2);
    let waiting = world.submit(JobSpec { gang: 1, ..spec });
    world.place();
    assert_eq!(world.job_state(waiting), JobState::Pending);
}

#[test]
fn a_gang_stays_on_the_one_node_that_may_hold_it_however_many_others_are_as_large() {
    let mut world = World::default();
    let four = || cards(&[(Gpu, 10, 100); 4]);
    for number in 0..100 {
        world.node(&format!("n{number}"), four());
    }
    for number in 0..3 {
        world.labelled_node(&format!("l{number}"), cards(&[(Gpu, 10, 100); 3]), &[("disk", "nvme")]);
    }
    world.labelled_node("last", four(), &[("disk", "nvme")]);
    let spec = JobSpec { node_labels: [("disk".to_owned(), "nvme".to_owned())].into(), ..gang(4, 10) };
    assert_eq!(placed(&mut world, spec), [NodeId(103)].into());
}

#[test]
fn an_index_that_was_kept_current_knows_the_racks() {
    let mut world = pool(&["a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "c", "c"]);
    let mut pool = Pool::new(&world.state);
    world.state.take_touched();
    let mut running = Vec::new();
    for round in 0..24u32 {
        let mut spec = gang(2 + round % 3, if round % 2 == 0 { 10 } else { 7 });
        match round % 5 {
            1 => spec.affinity.together = "rack".to_owned(),
            2 => spec.affinity.data = ["imagenet".to_owned()].into(),
            3 => spec.affinity.spread = "rack".to_owned(),
            _ => {}
        }
        let job = world.submit(spec);
        let touched = world.state.take_touched();
        pool.refresh(&world.state, &touched);
        pool.forget_prices();
        let limits = tessera_placement::Limits::default();
        let decision = pool.decide(&world.state, LogTime(world.time), &limits);
        let fresh = Pool::new(&world.state).decide(&world.state, LogTime(world.time), &limits);
        assert_eq!(decision.plan, fresh.plan, "in round {round}");
        world.commit(&decision);
        world.start(job);
        running.push(job);
        if round % 4 > 0 {
            world.finish(running.remove(0));
        }
        let node = NodeId(round * 5 % 12);
        let cached = if round % 3 == 0 { BTreeSet::new() } else { ["imagenet".to_owned()].into() };
        world.apply(Command::UpdateCached { node, cached });
        if round == 6 {
            let mut description = world.state.node(NodeId(2)).unwrap().description.clone();
            description.labels.insert("rack".to_owned(), "b".to_owned());
            let cards = cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]);
            world.apply(Command::RegisterNode { node: description, cards });
        }
    }
}
