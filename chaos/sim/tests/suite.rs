//! The part of the suite that simulates: a bounded number of seeds, the seeds that once found something, and the promise that
//! a seed decides everything. What a run costs is said in docs/failure-model.md.

use std::path::Path;
use std::time::{Duration, Instant};

use tessera_sim::corpus;
use tessera_sim::many::{self, Plan};
use tessera_sim::script::Script;

/// Seeds beside the corpus.
const SEEDS: std::ops::Range<u64> = 0..24;
/// No further seed is begun after so long: on a machine that is busy otherwise, fewer are run.
const BOUND: Duration = Duration::from_secs(120);
/// What is run however long it takes.
const AT_LEAST: u64 = 8;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tessera-sim"))
}

#[test]
fn a_seed_decides_everything() {
    let traces = [1u64, 6].map(|seed| {
        let arguments: &[&str] = if seed == 1 { &["--calm", "--trace"] } else { &["--trace"] };
        let run = || many::one_by(program(), seed, arguments).expect("a run is started");
        let (one, other) = (run(), run());
        assert!(one.trace.is_some(), "nothing was traced: {one:?}");
        assert!(one.story.1 > 0, "nothing happened: {one:?}");
        assert_eq!((one.story, one.trace), (other.story, other.trace), "two runs of seed {seed} differ");
        one.trace
    });
    assert_ne!(traces[0], traces[1], "two seeds give one trace");
}

#[test]
fn nothing_is_broken_where_nothing_goes_wrong() {
    let report = many::one_by(program(), 3, &["--calm"]).expect("a run is started");
    assert_eq!(report.violation, None, "{}", report.ending);
    assert!(report.accepted > 0 && report.computations > 0, "nothing was done: {report:?}");
}

#[test]
fn every_script_is_survived() {
    for script in Script::ALL {
        let report = many::one_by(program(), 0, &["--script", script.name()]).expect("a run is started");
        assert_eq!(report.violation, None, "{}: {}", script.name(), report.ending);
        assert!(!report.faults.is_empty(), "nothing went wrong in {}: {report:?}", script.name());
    }
}

#[test]
fn what_once_went_wrong_goes_right() {
    let seeds = corpus::read(Path::new("corpus.txt")).expect("the corpus is there");
    let plan = Plan { program: program().to_owned(), seeds, until: None, jobs: 2, progress: true };
    let summary = many::run(&plan).expect("runs are started");
    assert!(summary.failed.is_empty(), "{}", summary.text());
}

#[test]
fn seeds_find_nothing_broken() {
    let plan = |seeds: std::ops::Range<u64>, until| Plan {
        program: program().to_owned(),
        seeds: seeds.collect(),
        until,
        jobs: 2,
        progress: true,
    };
    let until = Instant::now() + BOUND;
    let first = many::run(&plan(SEEDS.start..SEEDS.start + AT_LEAST, None)).expect("runs are started");
    let further = many::run(&plan(SEEDS.start + AT_LEAST..SEEDS.end, Some(until))).expect("runs are started");
    for summary in [&first, &further] {
        assert!(summary.failed.is_empty(), "{}", summary.text());
    }
    assert_eq!(first.runs, AT_LEAST, "not all were run");
    println!("{}\n{}", first.text(), further.text());
}
