//! The accounts are exactly the integral of who held which blocks, however they are asked for, and however often what
//! they are made from is read.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::{
    AllocationId, AllocationPhase, CardKind, Command, JobId, LogTime, MoveId, MovePhase, Observation, Plan,
    QueueSettings, State, StopCause, Touched, WindowOf, WorkerReport, WorkerState,
};
use tessera_placement::{Limits, Pool};
use tessera_testkit::{card, job, node, numbered};
use tessera_usage::books::Entry;
use tessera_usage::{Books, Database, GroupBy, Keeper, Query, Settings};

#[test]
fn only_a_file_that_is_damaged_is_to_be_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("usage.sqlite");
    std::fs::write(&path, vec![7; 8192]).expect("it can be written");
    let damaged = Database::open(&path, "pool").expect_err("it is no database").to_string();
    assert!(damaged.contains("is damaged: set it aside"), "{damaged}");
    let missing = Database::open_to_read(&folder.path().join("none")).expect_err("it is not there").to_string();
    assert!(missing.contains("may be read") && !missing.contains("aside"), "{missing}");
}

/// Something that happens, at most so many milliseconds after what happened before.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        tflops: u64,
        gang: u32,
        priority: u32,
    },
    Decide,
    Start,
    Stop {
        which: usize,
        well: bool,
    },
    Cancel {
        which: u64,
    },
    Move {
        which: u64,
    },
    /// A move goes on to its next step, or is given up.
    Advance {
        proceed: bool,
    },
    Nothing,
    /// The member starts again from a state that it had before, or from none.
    Restart {
        since: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..7u64, 1..3u32, 0..3u32).prop_map(|(tflops, gang, priority)| Step::Submit { tflops, gang, priority }),
        4 => Just(Step::Decide),
        3 => Just(Step::Start),
        4 => (0..16usize, any::<bool>()).prop_map(|(which, well)| Step::Stop { which, well }),
        1 => (1..20u64).prop_map(|which| Step::Cancel { which }),
        2 => (1..20u64).prop_map(|which| Step::Move { which }),
        3 => (0..5u8).prop_map(|proceed| Step::Advance { proceed: proceed > 0 }),
        1 => Just(Step::Nothing),
        1 => (0..40usize).prop_map(|since| Step::Restart { since }),
    ]
}

/// A pool with its log, and the naive integral of it.
struct World {
    state: State,
    books: Books,
    entries: Vec<Entry>,
    /// Blocks times milliseconds by job and second.
    naive: BTreeMap<(JobId, u64), u128>,
    past: Vec<State>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            state: State::new(),
            books: Books::default(),
            entries: Vec::new(),
            naive: BTreeMap::new(),
            past: Vec::new(),
        };
        for name in ["a", "b"] {
            let cards = numbered([card(CardKind::Gpu, 6, 1024), card(CardKind::Npu, 5, 1024)]);
            world.apply(Command::RegisterNode { node: node(name), cards }, 1_000_000);
        }
        world
    }

    /// The blocks that each job holds now, by the owners of blocks.
    fn held(&self) -> BTreeMap<JobId, u64> {
        let mut held = BTreeMap::new();
        for (_, card) in self.state.cards() {
            for extent in card.extents.as_slice() {
                let Some(owner) = extent.state.owner() else { continue };
                let Some(allocation) = self.state.allocation(owner.allocation) else { continue };
                // Its blocks are kept for it, and not yet its own.
                if allocation.phase != AllocationPhase::Waiting {
                    *held.entry(allocation.job).or_default() += u64::from(extent.length.0);
                }
            }
        }
        held
    }

    fn apply(&mut self, command: Command, after_ms: u64) {
        self.past.push(self.state.clone());
        let (from, to) = (self.state.time().0, self.state.time().0 + after_ms);
        for (job, blocks) in self.held() {
            for at in from..to {
                *self.naive.entry((job, at / 1000)).or_default() += u128::from(blocks);
            }
        }
        tessera_testkit::apply(&mut self.state, LogTime(to), command);
        let touched = self.state.take_touched().into_iter().filter_map(|touched| match touched {
            Touched::Allocation(id) => Some(id),
            _ => None,
        });
        let allocations: Vec<AllocationId> = touched.collect();
        let changes = self.books.note(&self.state, allocations);
        self.entries.push(Entry { revision: self.state.revision(), time: self.state.time(), changes });
    }

    fn report(&mut self, after_ms: u64, which: impl Fn(usize, WorkerState) -> Option<Observation>) {
        let mut reports = BTreeMap::new();
        let mut number = 0;
        for allocation in self.state.allocations() {
            for worker in allocation.workers.iter() {
                if let Some(observation) = which(number, worker.state) {
                    let report = WorkerReport { worker: allocation.owner(worker.rank), observation };
                    reports.entry(worker.node).or_insert_with(Vec::new).push(report);
                }
                number += 1;
            }
        }
        for (node, reports) in reports {
            self.apply(Command::ReportWorkers { node, reports }, after_ms);
        }
    }

    fn go(&mut self, step: &Step, after_ms: u64) {
        match step {
            Step::Submit { tflops, gang, priority } => {
                let spec = tessera_ledger::JobSpec { gang: *gang, priority: *priority, ..job(*tflops, 16) };
                self.apply(tessera_testkit::submission(spec), after_ms);
            }
            Step::Decide => {
                let plan = Pool::new(&self.state).decide(&self.state, self.state.time(), &Limits::default()).plan;
                self.apply(Command::CommitPlan { plan }, after_ms);
            }
            Step::Start => {
                self.report(after_ms, |_, state| (state == WorkerState::Held).then_some(Observation::Running));
            }
            Step::Stop { which, well } => {
                let exit = tessera_testkit::exit(StopCause::Exited, Some(i32::from(!well)));
                self.report(after_ms, |number, state| {
                    let live = matches!(state, WorkerState::Running | WorkerState::Draining);
                    (live && number == *which).then(|| Observation::Stopped(exit.clone()))
                });
            }
            Step::Cancel { which } => self.apply(Command::CancelJob { job: JobId(*which) }, after_ms),
            Step::Move { which } => {
                let now = self.state.time();
                let planned = Pool::new(&self.state).move_one(&self.state, now, JobId(*which), None);
                let plan = Plan {
                    revision: self.state.revision(),
                    parts: planned.map_or_else(Vec::new, |planned| planned.parts()),
                };
                self.apply(Command::CommitPlan { plan }, after_ms);
            }
            Step::Advance { proceed } => {
                let first = self.state.moves().next().map(|movement| (movement.id, movement.phase));
                let (id, from) = first.unwrap_or((MoveId(1), MovePhase::Reserved));
                self.apply(Command::AdvanceMove { id, from, proceed: *proceed }, after_ms);
            }
            Step::Nothing => self.apply(Command::Tick, after_ms),
            Step::Restart { .. } => {}
        }
    }
}

fn by_job(database: &Database, from: LogTime, to: Option<LogTime>) -> BTreeMap<String, u128> {
    let query = Query { from, to, by: GroupBy::Job, rows: usize::MAX, ..Query::default() };
    let answer = database.sums(&query).expect("sums");
    assert!(answer.gaps.is_empty());
    answer.rows.into_iter().map(|row| (row.key, row.sums.block_ms)).filter(|(_, sum)| *sum > 0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn accounts_are_the_integral_of_what_was_held(
        steps in proptest::collection::vec((step(), 0..700u64), 1..60),
        cut in 0..60_000u64,
        flush in 1..9usize,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("usage.sqlite");
        let mut world = World::new();
        let mut database = Database::open(&path, "pool").expect("it opens");
        let mut kept = 0;
        for (number, (step, after_ms)) in steps.iter().enumerate() {
            if let Step::Restart { since } = step {
                // Some of what was kept is read again, from a state that the ledger has a snapshot of.
                drop(database);
                database = Database::open(&path, "pool").expect("it opens again");
                let since = (*since).min(kept);
                let before = world.past.get(since).unwrap_or(&world.state);
                let held = Books::default().replace(before);
                let gap = database.take_over(&held, (before.revision(), before.time())).expect("it is kept");
                prop_assert_eq!(gap, None);
                kept = since;
            } else {
                world.go(step, *after_ms);
            }
            if number % flush == 0 && kept < world.entries.len() {
                let last = world.entries.last().expect("some");
                database.keep(&world.entries[kept..], (last.revision, last.time)).expect("it is kept");
                kept = world.entries.len();
            }
        }
        let now = world.state.time();
        database.keep(&world.entries[kept..], (world.state.revision(), now)).expect("it is kept");

        let mut expected: BTreeMap<String, u128> = BTreeMap::new();
        for ((job, _), sum) in &world.naive {
            *expected.entry(job.0.to_string()).or_default() += sum;
        }
        let whole = by_job(&database, LogTime(0), None);
        prop_assert_eq!(&whole, &expected);

        // Cut in two anywhere, the parts add up to the whole, job by job and all together.
        let middle = LogTime(1_000_000 + cut);
        let mut parts = by_job(&database, LogTime(0), Some(middle));
        for (job, sum) in by_job(&database, middle, None) {
            *parts.entry(job).or_default() += sum;
        }
        prop_assert_eq!(&parts, &whole);
        for by in [GroupBy::Nothing, GroupBy::Queue, GroupBy::Kind, GroupBy::Submitter, GroupBy::Label("x".to_owned())] {
            let answer = database.sums(&Query { by, rows: 1000, ..Query::default() }).expect("sums");
            let sum: u128 = answer.rows.iter().map(|row| row.sums.block_ms).sum();
            prop_assert_eq!(sum, expected.values().sum::<u128>());
            prop_assert_eq!(answer.total.sums.block_ms, sum);
        }

        // A whole second anywhere is what was held in it.
        let second = middle.0 / 1000;
        let window = by_job(&database, LogTime(second * 1000), Some(LogTime(second * 1000 + 1000)));
        let held = world.naive.iter().filter(|((_, at), _)| *at == second);
        let held: BTreeMap<String, u128> = held.map(|((job, _), sum)| (job.0.to_string(), *sum)).collect();
        prop_assert_eq!(window, held);
    }
}

#[test]
fn a_member_that_took_over_a_state_says_what_it_does_not_know_and_counts_on_without_counting_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new();
    world.go(&Step::Submit { tflops: 4, gang: 1, priority: 0 }, 0);
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 1_000);
    let mut database = Database::open(&folder.path().join("usage.sqlite"), "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    // The first job goes on; a second one begins, unseen.
    world.go(&Step::Submit { tflops: 2, gang: 1, priority: 0 }, 500);
    world.go(&Step::Decide, 500);
    let (known, at) = (world.entries.len(), (world.state.revision(), world.state.time()));
    let gap = database.take_over(&Books::default().replace(&world.state), at).expect("it is kept").expect("a gap");
    assert_eq!((gap.before, gap.to), at);
    world.go(&Step::Nothing, 2_000);
    database.keep(&world.entries[known..], (world.state.revision(), world.state.time())).expect("it is kept");
    let answer = database.sums(&Query { by: GroupBy::Job, rows: 10, ..Query::default() }).expect("sums");
    let sums: Vec<(String, u128)> = answer.rows.iter().map(|row| (row.key.clone(), row.sums.block_ms)).collect();
    // The first is the same allocation all along; of the second only is counted what is known.
    assert_eq!(sums, [("1".to_owned(), 4 * 4_000), ("2".to_owned(), 2 * 2_000)]);
    assert_eq!(answer.gaps, [gap]);
}

/// The history of a job does not tell when its target was reserved for it: the next attempt begins with the transfer.
#[test]
fn a_job_that_moves_pays_for_both_places_from_the_reservation_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new();
    world.go(&Step::Submit { tflops: 2, gang: 1, priority: 0 }, 0);
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 0);
    // One move is given up a second after it began, and another one is made.
    world.go(&Step::Move { which: 1 }, 1_000);
    world.go(&Step::Advance { proceed: false }, 1_000);
    let exit = tessera_testkit::exit(StopCause::Ordered, Some(1));
    world.report(0, |_, state| (state == WorkerState::Draining).then(|| Observation::Stopped(exit.clone())));
    world.go(&Step::Move { which: 1 }, 1_000);
    world.go(&Step::Advance { proceed: true }, 100);
    world.report(200, |_, state| (state == WorkerState::Draining).then(|| Observation::Stopped(exit.clone())));
    world.go(&Step::Advance { proceed: true }, 400);
    world.go(&Step::Nothing, 5_000);
    let mut database = Database::open(&folder.path().join("usage.sqlite"), "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    let history = &world.state.job(JobId(1)).expect("submitted").history;
    let attempts: Vec<u64> =
        history.iter().map(|attempt| attempt.ended_at.unwrap_or(world.state.time()).0 - attempt.granted_at.0).collect();
    assert_eq!(attempts, [3_300, 5_000], "the second begins when the first has stopped and its data is there");
    let sum = by_job(&database, LogTime(0), None)["1"];
    // The target of the first move was held for a second, and that of the second for 700 ms before its attempt.
    assert_eq!(sum, 2 * (3_300 + 5_000 + 1_000 + 700));
}

/// Work that a job had saved is not lost when it is interrupted; what it computed afterwards is, and the rest of the
/// accounts stays as it was.
#[test]
fn lost_is_what_no_checkpoint_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("usage.sqlite");
    let mut world = World::new();
    for tflops in [4, 2] {
        world.go(&Step::Submit { tflops, gang: 1, priority: 0 }, 0);
    }
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 0);
    let part = tessera_testkit::saved(1, 5);
    // Only the first one saves, after three seconds.
    world.report(3_000, |number, _| (number == 0).then(|| Observation::Saved(part.clone())));
    for job in [1, 2] {
        world.apply(Command::SuspendJob { job: JobId(job) }, 1_000);
    }
    let exit = tessera_testkit::exit(StopCause::Ordered, Some(1));
    world.report(0, |_, _| Some(Observation::Stopped(exit.clone())));
    let mut database = Database::open(&path, "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    let lost = |from: u64| {
        let query = Query { from: LogTime(from), by: GroupBy::Job, rows: 10, ..Query::default() };
        let rows = database.sums(&query).expect("sums").rows;
        rows.iter().map(|row| (row.sums.block_ms, row.sums.lost_block_ms)).collect::<Vec<_>>()
    };
    let begin = world.state.time().0 - 5_000;
    assert_eq!(lost(0), [(4 * 5_000, 4 * 2_000), (2 * 5_000, 2 * 5_000)]);
    assert_eq!(lost(begin + 4_000), [(4 * 1_000, 4 * 1_000), (2 * 1_000, 2 * 1_000)]);
}

/// A job whose window closes loses what it had not saved, as any job that is suspended does.
#[test]
fn a_window_that_closes_costs_what_was_not_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new();
    world.go(&Step::Submit { tflops: 4, gang: 1, priority: 0 }, 0);
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 0);
    let name = world.state.job(JobId(1)).expect("submitted").spec.queue.clone();
    let windows = vec!["0 20 * * * for 10h".to_owned()];
    let queue = QueueSettings { windows: windows.clone(), ..QueueSettings::new(&name) };
    world.apply(Command::SetQueue { queue }, 0);
    let time = LogTime(world.state.time().0 + 3_600_000);
    world.apply(Command::CloseUntil { whose: WindowOf::Queue(name), windows, time }, 3_000);
    let exit = tessera_testkit::exit(StopCause::Ordered, Some(1));
    world.report(0, |_, _| Some(Observation::Stopped(exit.clone())));
    let mut database = Database::open(&folder.path().join("usage.sqlite"), "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    let rows = database.sums(&Query { by: GroupBy::Job, rows: 10, ..Query::default() }).expect("sums").rows;
    assert_eq!((rows[0].sums.block_ms, rows[0].sums.lost_block_ms), (4 * 3_000, 4 * 3_000));
}

#[test]
fn accounts_of_another_pool_are_not_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("usage.sqlite");
    drop(Database::open(&path, "one").expect("it opens"));
    let refused = Database::open(&path, "two").expect_err("it is of another pool").to_string();
    assert!(refused.contains("of the pool one, not of two"), "{refused}");
}

#[test]
fn what_is_too_old_is_forgotten_and_what_goes_on_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new();
    for _ in 0..2 {
        world.go(&Step::Submit { tflops: 2, gang: 1, priority: 0 }, 0);
    }
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 1_000);
    world.go(&Step::Stop { which: 0, well: true }, 1_000);
    world.go(&Step::Nothing, 60_000);
    let mut database = Database::open(&folder.path().join("usage.sqlite"), "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    let before = LogTime(world.state.time().0 - u64::try_from(Duration::from_secs(30).as_millis()).expect("it fits"));
    assert_eq!(database.forget(before).expect("it is kept"), 1);
    let answer = database.sums(&Query { by: GroupBy::Job, rows: 10, ..Query::default() }).expect("sums");
    assert_eq!(answer.rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["2"]);
}

#[test]
fn what_was_held_is_kept_for_the_time_that_is_set() {
    let keys = |retention: Duration| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("usage.sqlite");
        let keeper = Keeper::start(Settings { path, cluster: "pool".to_owned(), retention }).expect("it opens");
        let mut world = World::new();
        world.go(&Step::Submit { tflops: 2, gang: 1, priority: 0 }, 0);
        world.go(&Step::Decide, 0);
        world.go(&Step::Start, 1_000);
        world.go(&Step::Stop { which: 0, well: true }, 1_000);
        // Nobody holds anything, and what is too old is looked for once in an hour.
        world.go(&Step::Nothing, 3_700_000);
        world.entries.drain(..).for_each(|entry| keeper.keep(entry));
        keeper.flush(world.state.revision(), world.state.time()).expect("it keeps them");
        let answer = keeper.sums(&Query { by: GroupBy::Job, rows: 10, ..Query::default() }).expect("sums");
        answer.rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(Duration::from_secs(7_200)), ["1"]);
    assert_eq!(keys(Duration::from_secs(60)), Vec::<String>::new());
}

#[test]
fn from_a_moment_that_has_yet_to_come_nothing_was_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new();
    world.go(&Step::Submit { tflops: 2, gang: 1, priority: 0 }, 0);
    world.go(&Step::Decide, 0);
    world.go(&Step::Start, 1_000);
    world.go(&Step::Nothing, 1_000);
    let mut database = Database::open(&folder.path().join("usage.sqlite"), "pool").expect("it opens");
    database.keep(&world.entries, (world.state.revision(), world.state.time())).expect("it is kept");
    for from in [world.state.time().0 + 1, u64::MAX] {
        assert!(by_job(&database, LogTime(from), None).is_empty(), "from {from}");
    }
}
