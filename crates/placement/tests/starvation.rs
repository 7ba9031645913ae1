//! No starvation: whatever fits the empty pool starts in the end, under any stream of smaller jobs, whatever
//! their priorities and queues: waiting counts as priority within a queue, queues take turns, and room is kept
//! for first jobs.
//!
//! There is one honest exception: a job without a time limit that never ends. Whoever cannot do without what it holds
//! waits for ever, and keeps those behind it away from the rest of the same cards.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tessera_ledger::*;

use crate::world::stream::{ENDLESS, ROUND, Stream};
use crate::world::{World, cards, cases, job};

/// Rounds that the longest small job runs.
const LONGEST: u64 = 4;
/// Rounds within which the large job must start: its patience, then at most once the longest job for each card that
/// is kept.
const BOUND: u64 = 60;
const QUEUES: [&str; 3] = [DEFAULT_QUEUE, "other", "third"];

/// A small job: TFLOPS, MiB and rounds.
type Small = (u64, u64, u64);

fn four_cards() -> Stream {
    let mut world = World::default();
    world.queue("other", "", None);
    world.queue("third", "", None);
    world.node("a", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
    world.node("b", cards(&[(CardKind::Gpu, 12, 200), (CardKind::Gpu, 6, 50)]));
    Stream::new(world)
}

/// The arrivals in a round of a stream that repeats itself.
fn of_round<T>(stream: &[Vec<T>], round: u64) -> &[T] {
    &stream[usize::try_from(round).unwrap() % stream.len()]
}

/// Lets the stream flow for a while, then says whether a large job starts within so many rounds.
fn starts(mut stream: Stream, large: JobSpec, rounds: u64, mut arrive: impl FnMut(&mut Stream, u64)) -> bool {
    for round in 0..4 {
        arrive(&mut stream, round);
        stream.round();
    }
    let large = stream.submit(large, 1);
    stream.starts_within(large, rounds, arrive)
}

/// A small job of any sort.
#[derive(Clone, Debug)]
struct Any {
    size: Small,
    /// Two flags: it has a time limit, and it is of a gang of two.
    flags: (bool, bool),
    cpu: u64,
    kind: Option<CardKind>,
    queue: usize,
    /// True if it has a label that the large job may avoid.
    noisy: bool,
}

impl Any {
    fn spec(&self) -> JobSpec {
        let mut spec = job(self.size.0, self.size.1);
        let limit = std::time::Duration::from_secs(self.size.2 * ROUND);
        spec.time_limit = self.flags.0.then_some(limit);
        spec.gang = 1 + u32::from(self.flags.1);
        spec.host.cpu = MilliCpus(self.cpu);
        spec.virtual_card.kinds = self.kind.into_iter().collect();
        spec.queue = QUEUES[self.queue].to_owned();
        if self.noisy {
            spec.labels = noisy();
        }
        spec
    }
}

fn noisy() -> BTreeMap<String, String> {
    [("app".to_owned(), "noisy".to_owned())].into()
}

fn kind() -> impl Strategy<Value = CardKind> {
    prop::sample::select(vec![CardKind::Gpu, CardKind::Gpu, CardKind::Npu, CardKind::Cpu])
}

fn any_small() -> impl Strategy<Value = Any> {
    let size = (1u64..6, 0u64..40, 1..=LONGEST);
    let flags = (any::<bool>(), prop::bool::weighted(0.2));
    let cpu = prop::sample::select(vec![0u64, 500, 1000]);
    (size, flags, cpu, prop::option::of(kind()), 0usize..3, any::<bool>())
        .prop_map(|(size, flags, cpu, kind, queue, noisy)| Any { size, flags, cpu, kind, queue, noisy })
}

/// A node: its cards, and the processors of its host if they are known.
type AnyNode = (Vec<(CardKind, u64, u64)>, Option<u64>);

fn any_node() -> impl Strategy<Value = AnyNode> {
    let card = (kind(), 4u64..13, prop::sample::select(vec![50u64, 100, 200]));
    (prop::collection::vec(card, 1..4), prop::option::of(2000u64..6000))
}

fn any_large() -> impl Strategy<Value = JobSpec> {
    let span = prop::sample::select(vec![Span::Card, Span::Node, Span::Pool]);
    let memory = prop::sample::select(vec![0u64, 50, 120]);
    let shape = (4u64..30, memory, 1u32..=3, span, prop::option::of(kind()), any::<bool>());
    let rest = (prop::bool::weighted(0.3), prop::bool::weighted(0.3), prop::sample::select(vec![0u64, 0, 1500, 3000]));
    (shape, rest).prop_map(|((tflops, memory, gang, span, kind, mixed), (whole, avoids, cpu))| {
        let mut spec = JobSpec { gang, ..job(tflops, memory) };
        spec.virtual_card.span = span;
        spec.virtual_card.mixed = mixed;
        spec.virtual_card.kinds = kind.into_iter().collect();
        spec.virtual_card.whole_cards = whole;
        spec.host.cpu = MilliCpus(cpu);
        if avoids {
            spec.affinity.avoid = noisy();
        }
        spec
    })
}

/// A pool on which some jobs run for ever.
fn with_endless(nodes: &[AnyNode], endless: &[Any]) -> Stream {
    let mut world = World::default();
    world.queue("other", "", None);
    world.queue("third", "", None);
    for (number, (list, cpu)) in nodes.iter().enumerate() {
        let mut list = list.clone();
        list.sort_by_key(|card| card.0);
        let host = cpu.map(|cpu| HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(1000) });
        world.hosted_node(&format!("node-{number}"), cards(&list), &[], host);
    }
    let mut stream = Stream::new(world);
    for one in endless {
        if let Some(id) = stream.world.try_submit(JobSpec { time_limit: None, ..one.spec() }) {
            stream.lasts(id, ENDLESS);
        }
    }
    (0..2).for_each(|_| stream.round());
    // Those that found no room do not come later.
    let waiting: Vec<JobId> = stream.world.state.waiting().map(|job| job.id).collect();
    for job in waiting {
        stream.world.apply(Command::CancelJob { job });
    }
    stream
}

/// Returns whether a job would start at once.
fn fits(stream: &Stream, spec: &JobSpec) -> bool {
    let mut alone = World::default();
    alone.resume_from(&stream.world);
    alone.try_submit(spec.clone()).is_some_and(|id| {
        alone.place();
        alone.job_state(id) != JobState::Pending
    })
}

/// The pool beside the jobs that never end, or without those if they leave too little for the large job; `None` if that
/// does not fit then either.
fn holds(nodes: &[AnyNode], endless: &[Any], large: &JobSpec) -> Option<Stream> {
    [endless, &[]].into_iter().map(|endless| with_endless(nodes, endless)).find(|pool| fits(pool, large))
}

/// Returns whether a large job starts in time.
fn whatever(nodes: &[AnyNode], endless: &[Any], stream: &[Vec<Any>], large: &JobSpec) -> bool {
    let pool = holds(nodes, endless, large).expect("the pool holds the job");
    // What waits for the jobs that never end keeps others away from the rest of what those are on.
    let starts_some_time = |small: &&Any| fits(&pool, &small.spec());
    let stream: Vec<Vec<Any>> =
        stream.iter().map(|round| round.iter().filter(starts_some_time).cloned().collect()).collect();
    let arrive = |pool: &mut Stream, round| {
        for small in of_round(&stream, round) {
            pool.submit(small.spec(), small.size.2);
        }
    };
    starts(pool, large.clone(), 3 * BOUND, arrive)
}

/// A small job of any kind: its size, whether it has a time limit and is of a gang of two, processors, queue.
fn small(size: Small, flags: (bool, bool), cpu: u64, queue: usize) -> Any {
    Any { size, flags, cpu, kind: None, queue, noisy: false }
}

fn one() -> Any {
    small((1, 0, 1), (false, false), 0, 0)
}

/// Several who wait for the same host kept it from each other, while nothing ran.
#[test]
fn a_host_is_not_kept_for_two() {
    use CardKind::Gpu;
    let (plain, gang, limited) = ((false, false), (false, true), (true, false));
    let nodes = [(vec![(Gpu, 9, 50), (Gpu, 7, 50), (Gpu, 10, 100)], Some(2000))];
    let stream = [
        vec![small((1, 0, 3), plain, 500, 0), one()],
        vec![one(), small((1, 0, 1), gang, 1000, 0)],
        vec![one(), one()],
        vec![small((1, 0, 1), plain, 0, 2), small((1, 0, 1), plain, 500, 1)],
        vec![one(), one()],
        vec![small((1, 0, 2), plain, 500, 2), small((1, 0, 1), plain, 500, 2)],
        vec![small((1, 8, 2), limited, 500, 0), small((1, 18, 2), limited, 500, 2)],
        vec![small((1, 30, 3), limited, 500, 2), small((2, 5, 1), limited, 500, 1), small((2, 17, 4), plain, 500, 1)],
    ];
    let mut large = job(20, 120);
    large.virtual_card.span = Span::Node;
    large.virtual_card.mixed = true;
    assert!(whatever(&nodes, &[one()], &stream, &large));
}

/// Something else runs on the host for ever: what a later one waits for is not free, and was taken from what is free
/// for the first.
#[test]
fn the_first_is_not_hindered_by_what_is_kept_for_a_later_one() {
    use CardKind::Npu;
    let (plain, limited) = ((false, false), (true, false));
    let nodes = [(vec![(Npu, 8, 50), (Npu, 8, 50)], Some(2000))];
    let stream = [
        vec![small((1, 0, 1), plain, 500, 0), small((1, 35, 1), plain, 1000, 0)],
        vec![small((1, 0, 1), plain, 0, 2), small((1, 1, 2), plain, 500, 2)],
        vec![one(), one()],
        vec![one(), small((1, 0, 1), plain, 500, 1)],
        vec![one(), one()],
        vec![one(), small((4, 25, 4), plain, 500, 1)],
        vec![small((2, 1, 1), limited, 0, 0), small((4, 11, 1), plain, 500, 2)],
        vec![small((3, 3, 2), plain, 0, 2), small((4, 8, 2), plain, 0, 2), small((3, 26, 4), limited, 1000, 1)],
    ];
    let endless = [small((1, 0, 1), plain, 1000, 0), small((1, 16, 1), plain, 0, 0)];
    let mut large = job(10, 50);
    large.virtual_card.span = Span::Pool;
    assert!(whatever(&nodes, &endless, &stream, &large));
}

/// The first in line waits for a card that is held for ever, and the turn of another queue comes before it. That is not
/// the misfortune of the next in line.
#[test]
fn who_waits_behind_one_that_never_starts_is_not_starved() {
    use CardKind::{Cpu, Gpu, Npu};
    let (plain, gang) = ((false, false), (false, true));
    let nodes = [(vec![(Npu, 4, 50), (Cpu, 10, 50)], None), (vec![(Gpu, 7, 50)], None)];
    let mut stream: Vec<Vec<Any>> = (0..7).map(|_| vec![one(), one()]).collect();
    stream[2][0].kind = Some(Npu);
    stream[6][1].queue = 1;
    stream.push(vec![small((1, 26, 3), gang, 0, 1), small((1, 26, 1), gang, 0, 1), small((1, 25, 3), plain, 0, 1)]);
    let pool = with_endless(&nodes, &[small((2, 0, 1), gang, 0, 0), one()]);
    let mut large = JobSpec { gang: 2, ..job(8, 0) };
    large.virtual_card.span = Span::Pool;
    large.virtual_card.mixed = true;
    assert!(fits(&pool, &large));
    let arrive = |pool: &mut Stream, round| {
        for small in of_round(&stream, round) {
            pool.submit(small.spec(), small.size.2);
        }
    };
    assert!(starts(pool, large, 3 * BOUND, arrive));
}

/// In what order nodes come free decided whether the gang could be divided over them: divided in another order it was
/// told that the pool has no room to keep, although it fits the empty pool.
#[test]
fn room_is_kept_for_whatever_fits_in_whatever_order_it_comes_free() {
    use CardKind::Gpu;
    let (plain, gang) = ((false, false), (false, true));
    let nodes = [
        (vec![(Gpu, 10, 50), (Gpu, 4, 50)], None),
        (vec![(Gpu, 6, 100)], None),
        (vec![(Gpu, 7, 100), (Gpu, 9, 100)], None),
    ];
    let noisy = |one: Any| Any { noisy: true, ..one };
    let stream = [
        vec![one(), small((3, 0, 3), plain, 0, 0)],
        vec![one(), one()],
        vec![noisy(small((1, 0, 3), plain, 0, 0)), one()],
        vec![one(), one()],
        vec![small((1, 0, 2), plain, 0, 0), one()],
        vec![noisy(small((1, 0, 2), plain, 0, 1)), one()],
        vec![small((4, 19, 3), plain, 0, 0), small((5, 0, 4), gang, 0, 0)],
        vec![small((5, 22, 1), gang, 0, 0), small((4, 17, 1), plain, 0, 0)],
    ];
    let mut large = JobSpec { gang: 3, ..job(11, 120) };
    large.virtual_card.span = Span::Pool;
    large.affinity.avoid = self::noisy();
    assert!(whatever(&nodes, &[], &stream, &large));
}

proptest! {
    // Many a random job does not fit a random pool.
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(cases(64)) })]

    #[test]
    fn a_large_job_starts_under_any_stream_of_small_ones(
        stream in prop::collection::vec(prop::collection::vec((1u64..6, 1u64..40, 1..=LONGEST), 3..7), 8),
        which in 0usize..4,
    ) {
        let mut spec = job(10, 100);
        match which {
            0 => spec = job(12, 200),
            1 => spec.gang = 3,
            2 => {
                spec = job(20, 150);
                spec.virtual_card.span = Span::Node;
            }
            _ => {
                spec = job(38, 400);
                spec.virtual_card.span = Span::Pool;
            }
        }
        let arrive = |pool: &mut Stream, round| {
            for (tflops, memory, lasts) in of_round(&stream, round) {
                pool.submit(job(*tflops, *memory), *lasts);
            }
        };
        prop_assert!(starts(four_cards(), spec, BOUND, arrive), "the large job has starved");
    }

    /// Rounds are hours here, so that a job of the lowest priority overtakes new ones of the highest after 25 of them.
    #[test]
    fn a_job_of_the_lowest_priority_starts_under_any_stream_of_urgent_ones(
        stream in prop::collection::vec(
            prop::collection::vec(((1u64..6, 1u64..40, 1..=LONGEST), 0u32..=100, 0usize..3), 2..6), 8
        ),
        gang in 1u32..=3,
    ) {
        let mut pool = four_cards();
        pool.every = 3600;
        let arrive = |pool: &mut Stream, round| {
            for ((tflops, memory, lasts), priority, queue) in of_round(&stream, round) {
                let queue = QUEUES[*queue].to_owned();
                pool.submit(JobSpec { priority: *priority, queue, ..job(*tflops, *memory) }, *lasts);
            }
        };
        let large = JobSpec { gang, priority: 0, ..job(10, 100) };
        prop_assert!(starts(pool, large, 26 + 2 * BOUND, arrive), "the large job has starved");
    }

    /// Any pool, any large job that it holds beside the jobs that never end, any stream.
    #[test]
    fn whatever_fits_starts(
        nodes in prop::collection::vec(any_node(), 1..5),
        endless in prop::collection::vec(any_small(), 0..4),
        stream in prop::collection::vec(prop::collection::vec(any_small(), 2..6), 8),
        large in any_large(),
    ) {
        prop_assume!(holds(&nodes, &endless, &large).is_some());
        prop_assert!(whatever(&nodes, &endless, &stream, &large), "the large job has starved");
    }
}
