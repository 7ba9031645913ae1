//! One run in this process, told or reported.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;
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

/// Digests every event and span of every library, at the finest level.
pub fn digest_log() -> Traced {
    let traced = Traced::default();
    Digester { traced: traced.clone(), spans: AtomicU64::new(0) }.init();
    traced
}

/// A digest of what is logged.
#[derive(Clone, Default)]
pub struct Traced(Arc<Mutex<Xxh3>>);

impl Traced {
    /// The digest of everything logged so far.
    pub fn digest(&self) -> u64 {
        self.lock().digest()
    }

    fn lock(&self) -> MutexGuard<'_, Xxh3> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Digests what it is told, field by field: writing lines of it would take four times as long as all the rest of a run.
struct Digester {
    traced: Traced,
    /// The number of spans so far.
    spans: AtomicU64,
}

impl Digester {
    fn note(&self, what: &str, number: u64) {
        let mut digest = self.traced.lock();
        digest.update(what.as_bytes());
        digest.update(&number.to_le_bytes());
    }
}

impl Subscriber for Digester {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::of(attributes.metadata());
        attributes.record(&mut fields);
        self.note("span", fields.0.digest());
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut fields = Fields(Xxh3::new());
        values.record(&mut fields);
        self.note("of", span.into_u64());
        self.note("recorded", fields.0.digest());
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.note("after", follows.into_u64());
        self.note("follows", span.into_u64());
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::of(event.metadata());
        event.record(&mut fields);
        self.note("event", fields.0.digest());
    }

    fn enter(&self, span: &Id) {
        self.note("enter", span.into_u64());
    }

    fn exit(&self, span: &Id) {
        self.note("exit", span.into_u64());
    }
}

/// The fields of one event or span, digested apart: a value may log while it is formatted.
struct Fields(Xxh3);

impl Fields {
    fn of(metadata: &Metadata<'_>) -> Self {
        let mut digest = Xxh3::new();
        for text in [metadata.level().as_str(), metadata.target(), metadata.name()] {
            digest.update(text.as_bytes());
        }
        Self(digest)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A digest takes everything.
        let _ = write!(self, "{field}={value:?};");
    }
}

impl fmt::Write for Fields {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
