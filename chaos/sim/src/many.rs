//! Many seeds: each in a process of its own, several at once.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::report::{Report, Summary};
use crate::script::Script;

/// Real time that one run may take before it is taken for stuck.
const LONGEST: Duration = Duration::from_secs(600);
/// Interval between two checks of whether a run is over.
const LOOK: Duration = Duration::from_millis(10);

/// One of many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub seed: u64,
    /// The script that it has whatever the seed says.
    pub script: Option<Script>,
}

impl Run {
    /// As the seed says.
    pub const fn of(seed: u64) -> Self {
        Self { seed, script: None }
    }

    fn arguments(self) -> Vec<&'static str> {
        self.script.map(|script| ["--script", script.name()]).into_iter().flatten().collect()
    }

    /// The command that runs it again and prints its story.
    fn again(self) -> String {
        format!("tessera-sim replay {} {}", self.seed, self.arguments().join(" "))
    }
}

/// The runs to make, and the way to make them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program that runs one seed: this one.
    pub program: PathBuf,
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// Time after which no further run is begun.
    pub until: Option<Instant>,
    /// Runs at once.
    pub jobs: usize,
    /// True if progress is reported on standard error.
    pub progress: bool,
}

/// Runs all of them.
///
/// # Errors
/// When a process cannot be started.
pub fn run(plan: &Plan) -> anyhow::Result<Summary> {
    let (next, summary) = (AtomicU64::new(0), Mutex::new(Summary::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                let place = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                let Some(run) = plan.runs.get(place) else { return Ok(()) };
                if plan.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(());
                }
                let report = one_by(&plan.program, run.seed, &run.arguments())?;
                let mut summary = summary.lock().map_err(|_| anyhow::anyhow!("another run panicked"))?;
                summary.add(&report);
                if let Some((oracle, what)) = &report.violation {
                    let Run { seed, .. } = run;
                    eprintln!("seed {seed} FAILED: {oracle}: {what}\n{}\nreplay: {}", report.ending, run.again());
                } else if plan.progress && summary.runs.is_multiple_of(10) {
                    let took = began.elapsed().as_secs();
                    eprintln!(
                        "{} seeds in {took} s, {:.2} simulated hours, {} failed",
                        summary.runs,
                        summary.hours(),
                        summary.failed.len()
                    );
                }
            }
        };
        let workers: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a run panicked"))??;
        }
        Ok::<(), anyhow::Error>(())
    })?;
    summary.into_inner().map_err(|_| anyhow::anyhow!("a run panicked"))
}

/// Runs one seed in a fresh process.
///
/// # Errors
/// When the process cannot be started. What goes wrong in it is in the report.
pub fn one(seed: u64, arguments: &[&str]) -> anyhow::Result<Report> {
    let own = std::env::current_exe().context("where this program lies")?;
    one_by(&own, seed, arguments)
}

/// As [`one`], by a given program.
///
/// # Errors
/// When the process cannot be started.
pub fn one_by(program: &std::path::Path, seed: u64, arguments: &[&str]) -> anyhow::Result<Report> {
    let mut child = Command::new(program)
        .arg("one")
        .arg(seed.to_string())
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting a run")?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: &mut Option<_>| -> String {
        fn all(pipe: &mut dyn std::io::Read) -> String {
            let mut bytes = Vec::new();
            // What could be read is all there is to show.
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        pipe.as_mut().map(|pipe| all(pipe)).unwrap_or_default()
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let errors = scope.spawn(move || {
            let mut text = String::new();
            if let Some(err) = err.as_mut() {
                // As above.
                let _ = err.read_to_string(&mut text);
            }
            text
        });
        let said = scope.spawn(move || read(&mut out));
        let mut stuck = false;
        while child.try_wait().context("waiting for a run")?.is_none() {
            if began.elapsed() > LONGEST {
                stuck = true;
                child.kill().context("ending a run that is stuck")?;
            }
            std::thread::sleep(LOOK);
        }
        let said = said.join().unwrap_or_default();
        let errors = errors.join().unwrap_or_default();
        let reported = said.lines().last().and_then(|line| serde_json::from_str::<Report>(line).ok());
        Ok(reported.unwrap_or_else(|| broken(seed, stuck, &errors)))
    })
}

/// A run that did not live to report.
fn broken(seed: u64, stuck: bool, errors: &str) -> Report {
    let what = if stuck { "it is stuck: no end after ten minutes" } else { "it panicked" };
    Report {
        seed,
        violation: Some(("the run itself".to_owned(), what.to_owned())),
        simulated_ms: 0,
        story: (0, 0),
        trace: None,
        coverage: crate::oracle::coverage::Coverage::default(),
        faults: std::collections::BTreeMap::new(),
        computations: 0,
        accepted: 0,
        ending: errors.to_owned(),
    }
}
