//! Benchmarks of placement decisions, on generated clusters of 1,200 nodes with 6,000 cards and of 10,000 nodes with
//! 80,000 cards (and one like `openb`), with 100,000 jobs waiting. Figures "per item" are decisions. Applying the plans
//! is not measured here; taking over what they touched (`refresh`) is measured where the name says so.
//!
//! `cargo bench -p tessera-placement --bench decide`

#![expect(clippy::print_stdout, reason = "what a developer runs by hand prints for its developer")]
#![expect(clippy::panic, reason = "so it fails for its developer")]
// A benchmark reads the clock: that is what it is for.
#![allow(clippy::disallowed_methods)]

mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, Numbers, job};
use divan::Bencher;
use divan::counter::ItemsCount;
use tessera_ledger::*;
use tessera_placement::{CompactionOrder, Limits, Pool};
use tessera_testkit::submission;

/// Nodes and cards per node.
const SIZES: [(u32, u32); 2] = [(1_200, 5), (10_000, 8)];
/// The same, to see what a decision costs in pools of 1,000, 10,000 and 100,000 cards.
const GROWTH: [(u32, u32); 3] = [(125, 8), (1_250, 8), (12_500, 8)];
const WAITING: u32 = 100_000;
const GRANTS: usize = 2_000;

fn main() {
    divan::main();
}

fn limits(grants: usize) -> Limits {
    Limits { grants, ..Limits::default() }
}

fn waiting_cluster(size: (u32, u32)) -> (Cluster, Numbers) {
    let mut cluster = Cluster::new(size.0, size.1);
    let mut numbers = Numbers(11);
    cluster.submit(WAITING, &mut numbers);
    (cluster, numbers)
}

/// Fills the pool until nothing more fits; answers an index that is current.
fn saturated(size: (u32, u32)) -> (Cluster, Pool, Vec<AllocationId>) {
    let (mut cluster, mut numbers) = waiting_cluster(size);
    let mut pool = Pool::new(&cluster.state);
    let mut allocations = Vec::new();
    cluster.state.take_touched();
    loop {
        let made = commit(&mut cluster, &mut pool, 5_000);
        if made.is_empty() {
            break;
        }
        allocations.extend(made);
        let waiting = u32::try_from(cluster.state.job_count(JobState::Pending)).unwrap_or(WAITING);
        cluster.submit(WAITING.saturating_sub(waiting), &mut numbers);
        refresh(&mut cluster, &mut pool);
    }
    (cluster, pool, allocations)
}

fn refresh(cluster: &mut Cluster, pool: &mut Pool) {
    let touched = cluster.state.take_touched();
    pool.refresh(&cluster.state, &touched);
}

/// One plan, applied and taken over.
fn commit(cluster: &mut Cluster, pool: &mut Pool, grants: usize) -> Vec<AllocationId> {
    let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(grants));
    let outcomes = cluster.apply([Command::CommitPlan { plan: decision.plan }]);
    refresh(cluster, pool);
    let answers = outcomes.into_iter().flat_map(|outcome| match outcome {
        Outcome::Planned(parts) => parts,
        other => panic!("the plan was not carried out: {other:?}"),
    });
    answers.filter_map(|part| part.expect("every part of a fresh plan is accepted")).collect()
}

/// Two thousand decisions on an empty pool, out of 100,000 waiting jobs.
#[divan::bench(args = SIZES, sample_count = 20, sample_size = 1)]
fn decide_on_an_empty_pool(bencher: Bencher, size: (u32, u32)) {
    let (cluster, _) = waiting_cluster(size);
    let pool = Pool::new(&cluster.state);
    bencher.counter(ItemsCount::new(GRANTS)).with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(GRANTS));
        assert_eq!(decision.plan.parts.len(), GRANTS);
        (decision, pool)
    });
}

/// A full pool with 100,000 jobs waiting: two thousand allocations end, what that touched is taken over, and the room
/// is granted anew. An item is one job that ended and was taken over.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn refresh_and_decide_on_a_full_pool(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, pool, allocations) = saturated(size);
    let step = (allocations.len() / GRANTS).max(1);
    let ended: Vec<AllocationId> = allocations.iter().copied().step_by(step).take(GRANTS).collect();
    cluster.end(&ended);
    let touched = cluster.state.take_touched();
    bencher.counter(ItemsCount::new(ended.len())).with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        pool.refresh(&cluster.state, &touched);
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(usize::MAX));
        assert!(!decision.plan.parts.is_empty());
        (decision, pool)
    });
}

/// A pool like `openb`'s is filled by one job after the other until 130 % of its cards were asked for; what does not
/// fit leaves again. Per job, both what the ledger says of it (`refresh`) and the decision are measured; what the
/// ledger itself does is not.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn saturate_openb_job_by_job(bencher: Bencher) {
    bencher.bench_local(|| {
        let (mut cluster, mut numbers) = (cluster::openb::pool(), Numbers(5));
        let mut pool = Pool::new(&cluster.state);
        cluster.state.take_touched();
        let (mut asked, mut times) = (0, Vec::new());
        while asked < 6_212_000 * 13 / 10 {
            let spec = cluster::openb::request(&mut numbers);
            let gpu = spec.virtual_card.kinds.contains(&CardKind::Gpu);
            asked += if gpu { spec.virtual_card.compute.0 / 1_000 } else { 0 };
            let submit = submission(spec);
            let Outcome::Submitted(job) = cluster.apply([submit]).remove(0) else { panic!("the job was not accepted") };
            let touched = cluster.state.take_touched();
            let (now, limits) = (cluster.state.time(), Limits::default());
            let start = Instant::now();
            pool.refresh(&cluster.state, &touched);
            let refreshed = start.elapsed();
            let decision = pool.decide(&cluster.state, now, &limits);
            times.push((start.elapsed(), refreshed));
            cluster.apply([match decision.plan.parts.is_empty() {
                true => Command::CancelJob { job },
                false => Command::CommitPlan { plan: decision.plan },
            }]);
        }
        report(&mut times);
    });
}

/// Prints what [`saturate_openb_job_by_job`] has measured: times of refresh and decision together, and of
/// refresh alone.
fn report(times: &mut [(Duration, Duration)]) {
    let (all, refresh) =
        times.iter().fold((Duration::ZERO, Duration::ZERO), |sum, time| (sum.0 + time.0, sum.1 + time.1));
    times.sort_unstable();
    let per_second = |time: Duration| times.len() as f64 / time.as_secs_f64();
    let (median, slow) = (times[times.len() / 2].0, times[times.len() * 99 / 100].0);
    let (decisions, with_refresh) = (per_second(all - refresh), per_second(all));
    println!("{decisions:.0} decisions/s, {with_refresh:.0}/s with refresh, p50 {median:?}, p99 {slow:?}");
}

/// One job ends in a full pool with 100,000 jobs waiting: the time until it is known who comes next.
#[divan::bench(args = SIZES, sample_count = 50, sample_size = 1)]
fn one_decision_on_a_full_pool(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, pool, allocations) = saturated(size);
    cluster.end(&allocations[allocations.len() / 2..=allocations.len() / 2]);
    let touched = cluster.state.take_touched();
    bencher.with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        pool.refresh(&cluster.state, &touched);
        (pool.decide(&cluster.state, cluster.state.time(), &limits(usize::MAX)), pool)
    });
}

/// A pool that has taken some jobs, and whose next decision makes prices.
fn unpriced(size: (u32, u32)) -> (Cluster, Pool) {
    let (mut cluster, _) = waiting_cluster(size);
    let mut pool = Pool::new(&cluster.state);
    cluster.state.take_touched();
    commit(&mut cluster, &mut pool, 400);
    pool.forget_prices();
    (cluster, pool)
}

/// A hundred decisions on pools of different sizes that have made their prices and have decided on every
/// request before.
#[divan::bench(args = GROWTH, sample_count = 20, sample_size = 1)]
fn growth(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, mut pool) = unpriced(size);
    // Makes the prices, so that none of the hundred does.
    commit(&mut cluster, &mut pool, 1);
    bencher.counter(ItemsCount::new(100usize)).with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(100));
        assert_eq!(decision.plan.parts.len(), 100);
        (decision, pool)
    });
}

/// A full pool with 100,000 jobs waiting, and a large one of another queue for which cards are kept: some jobs end,
/// what that touched is taken over, and the room is granted anew beside what is kept. An item is one job that ended.
#[divan::bench(args = SIZES, sample_count = 20, sample_size = 1)]
fn refresh_and_decide_behind_a_reservation(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, mut pool, allocations) = saturated(size);
    cluster.apply([Command::SetQueue { queue: QueueSettings::new("large") }]);
    let large = JobSpec { queue: "large".to_owned(), ..job(989, 81_920, &[CardKind::Gpu]) };
    cluster.apply([submission(large)]);
    cluster.end(&allocations[..1]);
    refresh(&mut cluster, &mut pool);
    let limits = Limits { reserve_after: Duration::ZERO, ..limits(usize::MAX) };
    // Reads all schedules and finds the first room to keep.
    pool.decide(&cluster.state, cluster.state.time(), &limits);
    let ended: Vec<AllocationId> = allocations.iter().copied().skip(1).step_by(allocations.len() / 256).collect();
    cluster.end(&ended);
    let touched = cluster.state.take_touched();
    bencher.counter(ItemsCount::new(ended.len())).with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let before = pool.work().reservations_sought;
        pool.refresh(&cluster.state, &touched);
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits);
        assert!(!decision.plan.parts.is_empty() && pool.work().reservations_sought > before);
        (decision, pool)
    });
}

/// Prices made anew, and one decision by them.
#[divan::bench(args = GROWTH, sample_count = 20, sample_size = 1)]
fn prices_made_anew(bencher: Bencher, size: (u32, u32)) {
    let (cluster, pool) = unpriced(size);
    bencher.with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(1));
        assert_eq!(decision.plan.parts.len(), 1);
        (decision, pool)
    });
}

/// A gang of 512 workers on an empty pool.
#[divan::bench(args = SIZES, sample_count = 20, sample_size = 1)]
fn gang_of_512(bencher: Bencher, size: (u32, u32)) {
    let mut cluster = Cluster::new(size.0, size.1);
    let spec = JobSpec { gang: 512, ..job(200, 20_000, &[CardKind::Gpu]) };
    cluster.apply([submission(spec)]);
    let pool = Pool::new(&cluster.state);
    bencher.with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &Limits::default());
        assert_eq!(decision.plan.parts.len(), 1);
        (decision, pool)
    });
}

/// Decisions on jobs with wishes in a pool of 10,000 nodes that has taken 20,000 jobs: one job after the other, out of
/// a hundred.
#[divan::bench(args = ["preferred", "data", "avoid", "together", "spread", "packing"], sample_count = 10, sample_size = 1)]
fn wishes(bencher: Bencher, wish: &str) {
    let (mut cluster, _) = waiting_cluster(SIZES[1]);
    let mut pool = Pool::new(&cluster.state);
    cluster.state.take_touched();
    for _ in 0..4 {
        commit(&mut cluster, &mut pool, 5_000);
    }
    let nodes = (0..100).map(|number| NodeId(number * 97));
    let cached = |node| Command::UpdateCached { node, cached: [format!("data-{}", node.0 / 97 % 10)].into() };
    cluster.apply(nodes.map(cached));
    let submit = |number| submission(wishing(wish, number));
    cluster.apply((0..100).map(submit));
    refresh(&mut cluster, &mut pool);
    // Makes the prices, so that none of the hundred does.
    pool.forget_prices();
    pool.decide(&cluster.state, cluster.state.time(), &limits(1));
    bencher.counter(ItemsCount::new(99usize)).with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &limits(99));
        assert_eq!(decision.plan.parts.len(), 99);
        (decision, pool)
    });
}

/// A job before all others, with one wish.
fn wishing(wish: &str, number: u32) -> JobSpec {
    let mut spec = JobSpec { priority: 100, ..job(20, 1_000, &[CardKind::Gpu]) };
    let service = || BTreeMap::from([("service".to_owned(), (number % 10).to_string())]);
    match wish {
        "preferred" => {
            let value = (number * 7 % 600).to_string();
            spec.affinity.preferred = vec![PreferredLabel { key: "rack".to_owned(), value, weight: 10 }];
        }
        "data" => spec.affinity.data = [format!("data-{}", number % 10)].into(),
        "avoid" => (spec.labels, spec.affinity.avoid) = (service(), service()),
        "together" => (spec.gang, spec.affinity.together) = (4, "rack".to_owned()),
        "spread" => (spec.gang, spec.affinity.spread) = (4, "rack".to_owned()),
        _ => spec.packing = Some(Packing::Spread),
    }
    spec
}

/// Preemption on a full pool: one job of high priority that needs a whole large card.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn preemption_on_a_full_pool(bencher: Bencher, size: (u32, u32)) {
    preemption(bencher, size, 1);
}

/// The same for a gang of so many.
#[divan::bench(args = [((1_200, 8), 128), ((10_000, 8), 128), ((10_000, 8), 512)], sample_count = 10, sample_size = 1)]
fn preemption_by_a_gang_on_a_full_pool(bencher: Bencher, (size, gang): ((u32, u32), u32)) {
    preemption(bencher, size, gang);
}

fn preemption(bencher: Bencher, size: (u32, u32), gang: u32) {
    let (mut cluster, mut pool, _) = saturated(size);
    let spec = JobSpec { priority: 90, gang, ..job(900, 60_000, &[CardKind::Gpu]) };
    cluster.apply([submission(spec)]);
    refresh(&mut cluster, &mut pool);
    bencher.with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        let decision = pool.decide(&cluster.state, cluster.state.time(), &Limits::default());
        assert!(matches!(decision.plan.parts[..], [PlanPart::Grant { .. }]));
        (decision, pool)
    });
}

/// Explains why a job waits on a full pool.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn explain_on_a_full_pool(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, mut pool, _) = saturated(size);
    let spec = Arc::new(job(900, 60_000, &[CardKind::Gpu]));
    let outcome = cluster.apply([submission(spec)]).remove(0);
    let Outcome::Submitted(id) = outcome else { panic!("the job was not accepted: {outcome:?}") };
    refresh(&mut cluster, &mut pool);
    let job = cluster.state.job(id).expect("the job was just submitted").clone();
    bencher.with_inputs(|| pool.clone()).bench_local_values(|mut pool| {
        (tessera_explain::explain(&mut pool, &cluster.state, &job, cluster.state.time()), pool)
    });
}

/// Searches for moves that make room on a full pool for a job that needs a whole large card, after one allocation in a
/// thousand has ended.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn make_room_on_a_full_pool(bencher: Bencher, size: (u32, u32)) {
    let (mut cluster, mut pool, allocations) = saturated(size);
    cluster.start(&allocations);
    let ended: Vec<AllocationId> = allocations.iter().copied().step_by(1000).collect();
    cluster.end(&ended);
    let spec = Arc::new(job(900, 60_000, &[CardKind::Gpu]));
    let outcome = cluster.apply([submission(spec)]).remove(0);
    let Outcome::Submitted(id) = outcome else { panic!("the job was not accepted: {outcome:?}") };
    refresh(&mut cluster, &mut pool);
    let now = cluster.state.time();
    let order = CompactionOrder { losing_work: true, ..CompactionOrder::default() };
    let found = pool.clone().make_room(&cluster.state, now, id, &order);
    println!("{size:?}: {:?} moves", found.map(|moves| moves.len()));
    bencher
        .with_inputs(|| pool.clone())
        .bench_local_values(|mut pool| (pool.make_room(&cluster.state, now, id, &order), pool));
}

/// Reading the whole ledger, as a new leader does. Prints what an index takes that has decided 2,000 times.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn read_the_whole_state(bencher: Bencher, size: (u32, u32)) {
    let (cluster, _) = waiting_cluster(size);
    let mut pool = Pool::new(&cluster.state);
    pool.decide(&cluster.state, cluster.state.time(), &limits(GRANTS));
    // The first copies fill what is left over from before; the next eight are measured.
    let filling: Vec<Pool> = (0..4).map(|_| pool.clone()).collect();
    let before = resident_kib();
    let copies: Vec<Pool> = (0..8).map(|_| pool.clone()).collect();
    println!("{size:?}: {} MiB", resident_kib().saturating_sub(before) / 1024 / copies.len() as u64);
    drop((filling, copies));
    bencher.bench_local(|| Pool::new(&cluster.state));
}

/// Memory of this process that is resident, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number of KiB")
}
