//! Keeps warnings that repeat from filling a disk: of the same ones a few a minute are written, and then how many more
//! there were. Libraries write a state of things as often as they look at it, each time with another number in it:
//! their warnings are the same when they come from the same line of code. Ours are when they say the same, but for what
//! somebody else [`SAID`].

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::Id;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

/// The time after which it begins anew, and says how many were left out.
const PERIOD: Duration = Duration::from_secs(60);
/// Warnings that are the same and are written in one period.
const WRITTEN: u64 = 10;
/// Different warnings that are told apart in one period; all beyond are written.
const TOLD_APART: usize = 4_096;

/// The field with words of somebody else, who could make a warning another one with each of them.
const SAID: &str = "said";

/// Bytes of a line that are looked at, and said again, at most.
const LOOKED_AT: usize = 512;

/// Decides which warnings and errors are written. Clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Thinning(Arc<Mutex<HashMap<Warning, Repeats>>>);

/// Warnings that count as the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Warning {
    place: &'static str,
    line: Option<u32>,
    /// The words of ours, and the span that they are within.
    ours: Option<(String, Option<Id>)>,
}

/// The number of times that the same was to be written in this period.
#[derive(Debug)]
struct Repeats {
    /// The words of the first.
    first: String,
    count: u64,
}

/// The words of a line, as far as they are looked at: all of them, and those that tell it from others.
#[derive(Default)]
struct Text {
    all: String,
    own: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let own = (field.name() != SAID).then_some(&mut self.own);
        for text in own.into_iter().chain([&mut self.all]).filter(|text| text.len() < LOOKED_AT) {
            // A String takes everything.
            let _ = write!(text, "{}={value:?} ", field.name());
        }
    }
}

impl Thinning {
    fn lock(&self) -> MutexGuard<'_, HashMap<Warning, Repeats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_written(&self, warning: Warning, text: String) -> bool {
        let mut repeats = self.lock();
        if repeats.len() >= TOLD_APART && !repeats.contains_key(&warning) {
            return true;
        }
        let repeats = repeats.entry(warning).or_insert(Repeats { first: text, count: 0 });
        repeats.count += 1;
        repeats.count <= WRITTEN
    }

    /// Begins anew; returns what was left out, by what the first of it said, and how often.
    fn begin_anew(&self) -> Vec<(String, u64)> {
        let repeats = std::mem::take(&mut *self.lock());
        let thinned = repeats.into_values().filter(|repeats| repeats.count > WRITTEN);
        thinned.map(|repeats| (repeats.first, repeats.count - WRITTEN)).collect()
    }

    /// Says how many were left out, as long as this process runs.
    pub(super) async fn report(self) {
        let mut period = tokio::time::interval(PERIOD);
        loop {
            period.tick().await;
            for (first, left_out) in self.begin_anew() {
                tracing::warn!(first, left_out, "a warning repeats, and was left out so many times in the last minute");
            }
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for Thinning {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN {
            return true;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let (place, line) = (metadata.target(), metadata.line());
        // One without a line was passed on from another way of logging, and all of them from the same place.
        let is_ours = place.starts_with("tessera") || line.is_none();
        let ours = is_ours.then(|| (text.own, context.event_span(event).map(|span| span.id())));
        self.is_written(Warning { place, line, ours }, text.all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Written(Arc<AtomicU64>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_warning_that_repeats_is_written_a_few_times_and_then_counted() {
        let (written, thinning) = (Arc::new(AtomicU64::new(0)), Thinning::default());
        let layer = Written(Arc::clone(&written)).with_filter(thinning.clone());
        let count = |said: &dyn Fn()| {
            let before = written.load(Ordering::Relaxed);
            said();
            written.load(Ordering::Relaxed) - before
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let repeat = |said: &dyn Fn(u64)| count(&|| (0..100).for_each(said));
            assert_eq!(repeat(&|_| tracing::warn!(node = "gpu-1", "it is lost")), WRITTEN);
            assert_eq!(
                repeat(&|number| tracing::warn!(number, "another node is lost")),
                100,
                "each says something else"
            );
            assert_eq!(repeat(&|number| tracing::error!(target: "openraft", number, "no vote")), WRITTEN);
            assert_eq!(repeat(&|_| tracing::info!("as ever")), 100, "nothing is wrong");
            let in_spans =
                repeat(&|node| tracing::error_span!("session", node).in_scope(|| tracing::warn!("it is cut")));
            assert_eq!(in_spans, 100, "each is said of another session");
            let refused = |from: u64, said: u64| {
                let session = tracing::error_span!("session", said);
                session.in_scope(|| tracing::warn!(parent: None, from, said, "a session was refused"));
            };
            assert_eq!(repeat(&|said| refused(1, said)), WRITTEN, "whatever else somebody says");
            assert_eq!(repeat(&|said| refused(2, said)), WRITTEN, "nobody hides behind another");
            let mut left_out = thinning.begin_anew();
            left_out.sort_unstable();
            let said = [
                "message=a session was refused from=1 said=0 ",
                "message=a session was refused from=2 said=0 ",
                "message=it is lost node=\"gpu-1\" ",
                "message=no vote number=0 ",
            ];
            assert_eq!(left_out, said.map(|first| (first.to_owned(), 100 - WRITTEN)));
            assert_eq!(repeat(&|_| tracing::warn!(node = "gpu-1", "it is lost")), WRITTEN, "in the next period");
        });
    }
}
