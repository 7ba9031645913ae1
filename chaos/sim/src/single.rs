//! One run in this process, told or reported.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use xxhash_rust::xxh3::Xxh3;

use crate::machine::begin_at;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::simulation::Simulation;
use crate::story::Story;

/// Lines of the story that a failure is shown with.
const ENDING: usize = 60;

/// Runs a scenario; tells its story as it happens when `aloud`.
pub fn run(scenario: Scenario, aloud: bool) -> Report {
    begin_at(scenario.begins_at);
    let story = Story::new(aloud);
    let ending = story.clone();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        eprintln!("{}", ending.ending(ENDING));
        usual(panic);
    }));
    let seed = scenario.seed;
    let outcome = Simulation::new(scenario, story.clone()).run();
    let failed = outcome.violation.is_some();
    Report {
        seed,
        violation: outcome.violation.map(|violation| (violation.oracle.to_owned(), violation.what)),
        simulated_ms: u64::try_from(outcome.simulated.as_millis()).unwrap_or(u64::MAX),
        story: story.digest(),
        trace: None,
        coverage: outcome.coverage,
        faults: outcome.faults,
        computations: outcome.computations,
        accepted: outcome.accepted,
        ending: if failed { story.ending(ENDING) } else { String::new() },
    }
}

/// Prints what `RUST_LOG` asks for between the lines of the story.
pub fn follow_log() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).init();
    }
}

/// Digests every line of every library, at the finest level.
pub fn digest_log() -> Traced {
    let traced = Traced::default();
    let writer = traced.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .without_time()
        .with_ansi(false)
        .with_writer(writer)
        .init();
    traced
}

/// A digest of what is logged.
#[derive(Clone, Default)]
pub struct Traced(Arc<Mutex<Xxh3>>);

impl Traced {
    /// The digest of everything logged so far.
    pub fn digest(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).digest()
    }
}

impl io::Write for Traced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Traced {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
