//! The work of a decision: what could not change is not looked at again. Work is counted, not timed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool, Work};

use CardKind::{Gpu, Npu};

use crate::world::{World, cards, job};

/// A world and an index that is kept current.
struct Kept {
    world: World,
    pool: Pool,
    limits: Limits,
}

impl Kept {
    fn new(mut world: World) -> Self {
        world.state.take_touched();
        let limits = Limits { reserve_after: Duration::ZERO, ..Limits::default() };
        Self { pool: Pool::new(&world.state), world, limits }
    }

    /// Decides once and does as decided; answers the work that this took.
    fn round(&mut self) -> Work {
        let before = self.pool.work();
        let touched = self.world.state.take_touched();
        self.pool.refresh(&self.world.state, &touched);
        let decision = self.pool.decide(&self.world.state, LogTime(self.world.time), &self.limits);
        for part in self.world.commit(&decision) {
            if let PlanPart::Grant { job, .. } = part {
                self.world.start(job);
            }
        }
        let after = self.pool.work();
        Work {
            tried: after.tried - before.tried,
            costs_computed: after.costs_computed - before.costs_computed,
            nodes_looked_at: after.nodes_looked_at - before.nodes_looked_at,
            reservations_sought: after.reservations_sought - before.reservations_sought,
            uses_recounted: after.uses_recounted - before.uses_recounted,
        }
    }
}

#[test]
fn cards_to_keep_for_a_job_that_no_node_may_run_are_not_sought_again() {
    let mut world = World::default();
    world.labelled_node("a", cards(&[(Gpu, 10, 100)]), &[("zone", "a")]);
    let mut kept = Kept::new(world);
    let labels = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    let waiting = kept.world.submit(JobSpec { node_labels: labels("b"), ..job(10, 10) });
    assert_eq!(kept.round().reservations_sought, 1);
    for _ in 0..10 {
        let other = kept.world.submit(job(1, 1));
        assert_eq!(kept.round().reservations_sought, 0, "jobs that come and go change nothing");
        kept.world.finish(other);
        assert_eq!(kept.round().reservations_sought, 0);
    }
    // A node that could run it, if it were not held by another job there.
    kept.world.labelled_node("b", cards(&[(Gpu, 10, 100)]), &[("zone", "b")]);
    let holder = kept.world.submit(JobSpec { node_labels: labels("b"), priority: 90, ..job(5, 10) });
    assert!(kept.round().reservations_sought >= 1, "it is sought anew for what has come");
    assert_eq!(kept.world.job_state(waiting), JobState::Pending);
    kept.world.finish(holder);
    kept.round();
    assert_eq!(kept.world.job_state(waiting), JobState::Running);
}

/// A job waits for much, and meanwhile many small ones come, go, and stay.
#[test]
fn room_to_keep_is_sought_where_something_has_changed() {
    for (span, tflops) in [(Span::Card, 10), (Span::Node, 20), (Span::Pool, 30)] {
        let mut world = World::default();
        for node in 0..300 {
            world.node(&format!("node-{node}"), cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
        }
        let mut kept = Kept::new(world);
        let small: Vec<JobId> = (0..1200).map(|_| kept.world.submit(job(5, 10))).collect();
        for _ in 0..10 {
            kept.round();
        }
        let mut large = JobSpec { gang: 3, ..job(tflops, 100) };
        large.virtual_card.span = span;
        kept.world.submit(large);
        let first = kept.round();
        assert!(first.reservations_sought > 0 && first.nodes_looked_at >= 300, "{span:?}: {first:?}");
        for number in [100, 500, 900] {
            kept.world.finish(small[number]);
            kept.world.submit(job(5, 10));
            let round = kept.round();
            assert!(round.reservations_sought > 0 && round.nodes_looked_at < 50, "{span:?}: {round:?}");
        }
    }
}

#[test]
fn a_card_that_gets_healthy_is_sought_again() {
    let mut world = World::default();
    let (mut list, node) = (cards(&[(Gpu, 10, 100)]), NodeId(0));
    list[0].health = CardHealth::Unhealthy;
    world.node("a", list.clone());
    let mut kept = Kept::new(world);
    kept.world.submit(job(10, 10));
    assert_eq!(kept.round().reservations_sought, 1);
    assert_eq!(kept.round().reservations_sought, 0);
    list[0].health = CardHealth::Healthy;
    kept.world.apply(Command::UpdateCards { node, cards: list });
    kept.world.submit(JobSpec { priority: 100, ..job(1, 1) });
    assert!(kept.round().reservations_sought > 0);
}

#[test]
fn what_idle_queues_held_is_not_counted_again_by_every_decision() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100)]));
    let names: Vec<String> = (0..5).map(|number| format!("queue-{number}")).collect();
    for name in &names {
        world.queue_of(name, "", (0, 0), None, 1);
        let id = world.submit(JobSpec { queue: name.clone(), ..job(5, 10) });
        world.settle(5);
        world.pass(Duration::from_secs(3600));
        world.finish(id);
    }
    let mut kept = Kept::new(world);
    assert_eq!(kept.round().uses_recounted, 6, "each once, the default one too");
    for _ in 0..20 {
        kept.world.pass(Duration::from_secs(24 * 3600));
        assert_eq!(kept.round().uses_recounted, 0);
    }
    kept.world.submit(JobSpec { queue: names[2].clone(), ..job(5, 10) });
    kept.round();
    assert_eq!(kept.round().uses_recounted, 1, "that of the queue that holds something now");
}

#[test]
fn a_job_that_nothing_can_be_recalled_for_is_not_tried_whenever_any_queue_changes() {
    let mut world = World::default();
    world.node("a", cards(&[(Gpu, 10, 100), (Npu, 10, 100)]));
    for name in ["owner", "neighbour", "busy"] {
        world.queue_of(name, "", (10, 100), None, 1);
    }
    world.submit(JobSpec { queue: "neighbour".to_owned(), ..job(10, 10) });
    world.settle(5);
    let mut kept = Kept::new(world);
    let mut spec = JobSpec { queue: "owner".to_owned(), ..job(10, 10) };
    spec.virtual_card.kinds = [Gpu].into();
    let waiting = kept.world.submit(spec);
    kept.round();
    assert_eq!(kept.world.job_state(waiting), JobState::Pending, "the neighbour is guaranteed what it holds");
    for round in 0..10 {
        let mut spec = JobSpec { queue: "busy".to_owned(), ..job(2, 10) };
        spec.virtual_card.kinds = [Npu].into();
        let other = kept.world.submit(spec);
        assert_eq!(kept.round().tried, 1, "only the job that came, in round {round}");
        assert_eq!(kept.round().tried, 0);
        kept.world.finish(other);
        assert_eq!(kept.round().tried, 0);
    }
    // Now the neighbour is guaranteed less than it holds.
    kept.world.queue_of("neighbour", "", (5, 100), None, 1);
    let decided = kept.round();
    assert_eq!(decided.tried, 1);
    assert_eq!(kept.world.job_state(waiting), JobState::Starting, "it has its allocation and waits for what gives way");
}

#[test]
fn nodes_that_look_the_same_are_judged_once() {
    let mut world = World::default();
    for number in 0..50 {
        world.node(&format!("node-{number}"), cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]));
    }
    for number in 0..50 {
        world.labelled_node(&format!("other-{number}"), cards(&[(Gpu, 10, 100)]), &[("zone", "b")]);
    }
    let mut kept = Kept::new(world);
    let submit = |kept: &mut Kept, zone: &[(&str, &str)]| {
        let node_labels = zone.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        kept.world.submit(JobSpec { node_labels, ..job(4, 10) })
    };
    submit(&mut kept, &[]);
    assert_eq!(kept.round().costs_computed, 2, "a hundred nodes look like one of two");
    submit(&mut kept, &[]);
    assert_eq!(kept.round().costs_computed, 1, "the node that was changed looks like none before");
    let there = submit(&mut kept, &[("zone", "b")]);
    assert!(kept.round().costs_computed <= 3, "another request, judged on all three looks");
    let slices = kept.world.slices(there);
    assert!(slices.iter().all(|slice| slice.card.node.0 >= 50), "where the label is");
    assert_eq!(slices.len(), 1);
}

/// A thousand like nodes, each with its own name and one of fifty racks as labels.
fn like_nodes() -> Kept {
    let mut world = World::default();
    for number in 0..1000 {
        let (host, rack) = (format!("host-{number}"), (number / 20).to_string());
        world.labelled_node(&host, cards(&[(Gpu, 10, 100), (Gpu, 10, 100)]), &[("host", &host), ("rack", &rack)]);
    }
    Kept::new(world)
}

fn carrying(key: &str, value: &str) -> JobSpec {
    JobSpec { node_labels: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..job(4, 10) }
}

#[test]
fn labels_that_nobody_asks_for_make_no_difference() {
    let mut kept = like_nodes();
    kept.world.submit(job(4, 10));
    assert_eq!(kept.round().costs_computed, 1, "a thousand nodes look like one");
    let there = kept.world.submit(carrying("host", "host-700"));
    assert!(kept.round().costs_computed <= 3, "only the node asked for, the one that took a job, and all others");
    assert_eq!(kept.world.slices(there)[0].card.node, NodeId(700));
    let there = kept.world.submit(carrying("rack", "17"));
    assert!(kept.round().costs_computed <= 5, "and the nodes of the rack");
    assert_eq!(kept.world.slices(there)[0].card.node, NodeId(340));
}

#[test]
fn labels_are_found_however_many_others_were_asked_for() {
    let mut kept = like_nodes();
    kept.limits.grants = usize::MAX;
    for round in 0..2 {
        let jobs: Vec<JobId> =
            (0..1000).map(|number| kept.world.submit(carrying("host", &format!("host-{number}")))).collect();
        let racks: Vec<JobId> =
            (0..50).map(|number| kept.world.submit(carrying("rack", &number.to_string()))).collect();
        kept.round();
        for (number, job) in (0u32..).zip(jobs) {
            assert_eq!(kept.world.slices(job)[0].card.node, NodeId(number), "in round {round}");
        }
        for (number, job) in (0u32..).zip(racks) {
            assert_eq!(kept.world.slices(job)[0].card.node.0 / 20, number, "in round {round}");
        }
    }
}

/// A job with wishes.
fn wishing(gang: u32, change: impl FnOnce(&mut Affinity)) -> JobSpec {
    let mut affinity = Affinity::default();
    change(&mut affinity);
    JobSpec { gang, affinity, ..job(4, 10) }
}

#[test]
fn wishes_look_at_few_nodes_of_a_large_pool() {
    let mut kept = like_nodes();
    let cached = BTreeSet::from(["imagenet".to_owned()]);
    for node in [NodeId(600), NodeId(601)] {
        kept.world.apply(Command::UpdateCached { node, cached: cached.clone() });
    }
    kept.round();
    let prefer = |key: &str, value: &str| PreferredLabel { key: key.to_owned(), value: value.to_owned(), weight: 9 };
    let web = BTreeMap::from([("service".to_owned(), "web".to_owned())]);
    let wishes = [
        wishing(1, |wish| wish.preferred = vec![prefer("rack", "33"), prefer(NODE_KEY, "host-667")]),
        wishing(1, |wish| wish.data = cached.clone()),
        JobSpec { labels: web.clone(), ..wishing(1, |wish| wish.avoid = web.clone()) },
        JobSpec { labels: web.clone(), ..wishing(1, |wish| wish.avoid = web.clone()) },
        wishing(6, |wish| wish.together = "rack".to_owned()),
        wishing(4, |wish| wish.together = NODE_KEY.to_owned()),
        wishing(6, |wish| wish.spread = "rack".to_owned()),
        wishing(6, |wish| (wish.together, wish.spread) = ("rack".to_owned(), NODE_KEY.to_owned())),
        JobSpec { packing: Some(Packing::Spread), ..job(4, 10) },
    ];
    let mut nodes: Vec<BTreeSet<u32>> = Vec::new();
    for (number, wish) in wishes.into_iter().enumerate() {
        let gang = wish.gang as usize;
        let placed = kept.world.submit(wish);
        let looked_at = kept.round().nodes_looked_at;
        assert!((1..=300).contains(&looked_at), "{looked_at} nodes were looked at for wish {number}");
        let slices = kept.world.slices(placed);
        assert_eq!(slices.len(), gang, "wish {number}");
        nodes.push(slices.iter().map(|slice| slice.card.node.0).collect());
    }
    let racks = |nodes: &BTreeSet<u32>| nodes.iter().map(|node| node / 20).collect::<BTreeSet<u32>>().len();
    assert_eq!(nodes[0], [667].into(), "the node of that name, in the rack");
    assert!(nodes[1].is_subset(&[600, 601].into()), "{:?}", nodes[1]);
    assert!(nodes[2].is_disjoint(&nodes[3]));
    assert_eq!((racks(&nodes[4]), racks(&nodes[6]), racks(&nodes[7])), (1, 6, 1));
    assert_eq!((nodes[5].len(), nodes[7].len()), (1, 6));
    assert_eq!(nodes[8].len(), 1);
}
