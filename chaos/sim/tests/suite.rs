//! The part of the suite that simulates: a bounded number of seeds, the seeds that once found something, and the
//! promise that a seed decides everything. What a run costs is said in docs/failure-model.md.
#![cfg_attr(clippy, deny(warnings))]

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tessera_sim::corpus;
use tessera_sim::interruptions::{Pair, SHARES};
use tessera_sim::many::{self, Plan, Run};
use tessera_sim::report::Summary;
use tessera_sim::script::Script;

/// Seeds beside the corpus.
const SEEDS: std::ops::Range<u64> = 0..24;
/// No further seed is begun after so long: on a machine that is busy otherwise, fewer are run.
const BOUND: Duration = Duration::from_secs(120);
/// Fewer than that, and the suite has failed: it has not looked. So many are run however long they take.
const FLOOR: u64 = 8;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tessera-sim"))
}

/// Says something in the output of a suite that succeeds, too.
fn say(what: &str) {
    // Whoever cannot be told is not there.
    let _ = writeln!(std::io::stderr(), "simulation: {what}");
}

fn run(runs: impl IntoIterator<Item = Run>, until: Option<Instant>) -> Summary {
    let plan = Plan { program: program().to_owned(), runs: runs.into_iter().collect(), until, jobs: 2, progress: true };
    many::run(&plan).expect("runs are started")
}

fn seeds(seeds: std::ops::Range<u64>) -> impl Iterator<Item = Run> {
    seeds.map(Run::of)
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
fn what_once_went_wrong_goes_right() {
    let seeds = corpus::read(Path::new("corpus.txt")).expect("the corpus is there");
    let count = seeds.len() as u64;
    let summary = run(seeds.into_iter().map(Run::of), None);
    assert!(summary.failed.is_empty(), "{}", summary.text());
    assert_eq!(summary.runs, count, "not all were run");
    say(&format!("all {count} seeds of the corpus were run, none failed"));
}

/// Whoever has a part in what is done to running work is hit in each of its steps.
#[test]
fn everybody_is_hit_at_every_step() {
    let summary = run((0..SHARES).map(|seed| Run { seed, script: Some(Script::Interrupted) }), None);
    assert!(summary.failed.is_empty(), "{}", summary.text());
    let (never, all) = (summary.never_hit_on_purpose(), Pair::all().count());
    assert!(never.is_empty(), "never hit {}", never.join(", "));
    say(&format!("on purpose everybody was hit at every step: {all} pairs in {SHARES} runs"));
}

/// The runs on every machine must meet all that workloads are there for. When the simulation or the pool has changed,
/// other runs come of the same seeds; what none of them meets any more needs a workload or a script that does.
#[test]
fn nothing_is_broken_and_everything_is_met() {
    let until = Instant::now() + BOUND;
    // That one has a test of its own.
    let scripted: Vec<Script> = Script::ALL.into_iter().filter(|script| *script != Script::Interrupted).collect();
    let count = scripted.len() as u64;
    let scripts = run(scripted.into_iter().map(|script| Run { seed: 0, script: Some(script) }), None);
    assert_eq!(scripts.runs, count, "not all were run");
    assert!(scripts.failed.is_empty(), "{}", scripts.text());
    let first = run(seeds(SEEDS.start..SEEDS.start + FLOOR), None);
    let further = run(seeds(SEEDS.start + FLOOR..SEEDS.end), Some(until));
    let ran = first.runs + further.runs;
    let always = scripts.and(first);
    let unseen = always.unseen();
    let all = always.and(further);
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulation.txt");
    std::fs::write(&report, all.text()).expect("the report is written");
    let (failed, report) = (all.failed.len(), report.display());
    say(&format!(
        "{count} scripts and {ran} seeds of {} were run ({FLOOR} must be), {failed} failed: {report}",
        SEEDS.end
    ));
    assert_eq!(failed, 0, "{}", all.text());
    assert!(ran >= FLOOR, "only {ran} seeds were run, and {FLOOR} must be:\n{}", all.text());
    assert!(
        unseen.is_empty(),
        "the scripts and the first {FLOOR} seeds never met: {}\n{}",
        unseen.join(", "),
        all.text()
    );
}
