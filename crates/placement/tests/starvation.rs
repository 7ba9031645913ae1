//! No starvation: whatever fits the empty pool starts in the end, under any stream of smaller jobs, whatever their priorities and
//! queues: waiting counts as priority within a queue, queues take turns, and cards are kept for first jobs.

mod world;

use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::*;
use tessera_placement::{Limits, Pool};
use world::{World, cards, job};

/// Seconds between two rounds.
const ROUND: u64 = 10;
/// Rounds that the longest small job runs.
const LONGEST: u64 = 4;
/// Rounds after which cards are kept.
const PATIENCE: u64 = 3;
/// Rounds within which the large job must start: its patience, then at most once the longest job for each card that is kept.
const BOUND: u64 = 60;

/// A small job: TFLOPS, MiB and rounds.
type Small = (u64, u64, u64);

struct Stream {
    world: World,
    pool: Pool,
    /// Jobs that run, and the round in which they end.
    running: Vec<(JobId, u64)>,
}

impl Stream {
    fn new() -> Self {
        let mut world = World::default();
        world.queue("other", "", None);
        world.queue("third", "", None);
        world.node("a", cards(&[(CardKind::Gpu, 10, 100), (CardKind::Gpu, 10, 100)]));
        world.node("b", cards(&[(CardKind::Gpu, 12, 200), (CardKind::Gpu, 6, 50)]));
        let pool = Pool::new(&world.state);
        Self { world, pool, running: Vec::new() }
    }

    /// Small jobs come, what is over ends, and everything that can start does.
    fn round(&mut self, round: u64, arrivals: &[Small]) {
        let specs = arrivals.iter().map(|(tflops, memory, _)| job(*tflops, *memory)).collect();
        self.round_of(round, specs, arrivals, Duration::from_secs(ROUND));
    }

    fn round_of(&mut self, round: u64, specs: Vec<JobSpec>, arrivals: &[Small], lasts: Duration) {
        for spec in specs {
            self.world.submit(spec);
        }
        let (over, running) = self.running.iter().partition::<Vec<(JobId, u64)>, _>(|(_, end)| *end <= round);
        self.running = running;
        for (id, _) in over {
            self.world.start(id);
            self.world.finish(id);
        }
        self.world.pass(lasts);
        let touched = self.world.state.take_touched();
        self.pool.refresh(&self.world.state, &touched);
        let limits = Limits { reserve_after: Duration::from_secs(ROUND * PATIENCE), ..Limits::default() };
        let decision = self.pool.decide(&self.world.state, LogTime(self.world.time), &limits);
        for part in self.world.commit(&decision) {
            if let PlanPart::Grant { job, victims, .. } = part {
                victims.iter().for_each(|victim| self.world.stop(*victim));
                self.running.retain(|(id, _)| !victims.contains(id));
                let lasts = arrivals.get(job.0 as usize % arrivals.len().max(1)).map_or(1, |small| small.2);
                self.running.push((job, round + lasts));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_large_job_starts_under_any_stream_of_small_ones(
        stream in prop::collection::vec(prop::collection::vec((1u64..6, 1u64..40, 1..=LONGEST), 3..7), 8),
        which in 0usize..4,
    ) {
        let mut pool = Stream::new();
        for round in 0..4 {
            pool.round(round, &stream[round as usize % stream.len()]);
        }
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
        let large = pool.world.submit(spec);
        let mut round = 4;
        while pool.world.job_state(large) == JobState::Pending {
            pool.round(round, &stream[round as usize % stream.len()]);
            round += 1;
            prop_assert!(round < BOUND, "the large job has starved");
        }
    }

    /// Rounds are hours here, so that a job of the lowest priority overtakes new ones of the highest after 25 of them.
    #[test]
    fn a_job_of_the_lowest_priority_starts_under_any_stream_of_urgent_ones(
        stream in prop::collection::vec(
            prop::collection::vec(((1u64..6, 1u64..40, 1..=LONGEST), 0u32..=100, 0usize..3), 2..6), 8
        ),
        gang in 1u32..=3,
    ) {
        let mut pool = Stream::new();
        let queues = [DEFAULT_QUEUE, "other", "third"];
        let arrivals = |round: u64| {
            let arrivals = &stream[round as usize % stream.len()];
            let smalls: Vec<Small> = arrivals.iter().map(|(small, ..)| *small).collect();
            let spec = |((tflops, memory, _), priority, queue): &(Small, u32, usize)| JobSpec {
                priority: *priority,
                queue: queues[*queue].to_owned(),
                ..job(*tflops, *memory)
            };
            (arrivals.iter().map(spec).collect::<Vec<JobSpec>>(), smalls)
        };
        let hour = Duration::from_secs(3600);
        for round in 0..4 {
            let (specs, smalls) = arrivals(round);
            pool.round_of(round, specs, &smalls, hour);
        }
        let large = pool.world.submit(JobSpec { gang, priority: 0, ..job(10, 100) });
        let mut round = 4;
        while pool.world.job_state(large) == JobState::Pending {
            let (specs, smalls) = arrivals(round);
            pool.round_of(round, specs, &smalls, hour);
            round += 1;
            prop_assert!(round < 26 + 2 * BOUND, "the large job has starved");
        }
    }
}
