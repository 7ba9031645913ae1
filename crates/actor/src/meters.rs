//! What Prometheus sees of actors: how full their mailboxes are, how long messages wait and how long handling takes.
//! Labelled by the actor's name, of which there are few: sessions of nodes share one.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds in seconds for what should take microseconds to a second.
const BOUNDS: [f64; 11] = [0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    actor: &'static str,
}

/// The metrics of every actor of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct ActorMeters {
    depth: Family<Label, Gauge>,
    refused: Family<Label, Counter>,
    panics: Family<Label, Counter>,
    wait: Family<Label, Histogram, fn() -> Histogram>,
    handle: Family<Label, Histogram, fn() -> Histogram>,
}

fn histogram() -> Histogram {
    Histogram::new(BOUNDS)
}

impl Default for ActorMeters {
    fn default() -> Self {
        Self {
            depth: Family::default(),
            refused: Family::default(),
            panics: Family::default(),
            wait: Family::new_with_constructor(histogram),
            handle: Family::new_with_constructor(histogram),
        }
    }
}

impl ActorMeters {
    /// Registers the metrics; their names begin with `tessera_`, so the registry must not add a prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tessera_actor_mailbox_depth", "Messages that wait in mailboxes", self.depth.clone());
        registry.register(
            "tessera_actor_refused",
            "Messages that were refused because a mailbox was full",
            self.refused.clone(),
        );
        registry.register("tessera_actor_panics", "Panics of actors; each is a bug", self.panics.clone());
        registry.register("tessera_actor_wait_seconds", "Time that messages waited in mailboxes", self.wait.clone());
        registry.register("tessera_actor_handle_seconds", "Time to handle a message", self.handle.clone());
    }

    pub(crate) fn of(&self, actor: &'static str) -> MailboxMeters {
        let label = Label { actor };
        MailboxMeters {
            actor,
            depth: self.depth.get_or_create(&label).clone(),
            refused: self.refused.get_or_create(&label).clone(),
            wait: self.wait.get_or_create(&label).clone(),
            handle: self.handle.get_or_create(&label).clone(),
        }
    }

    pub(crate) fn panicked(&self, actor: &'static str) {
        self.panics.get_or_create(&Label { actor }).inc();
    }
}

/// The metrics of one mailbox.
#[derive(Clone, Debug)]
pub(crate) struct MailboxMeters {
    actor: &'static str,
    depth: Gauge,
    refused: Counter,
    wait: Histogram,
    handle: Histogram,
}

impl MailboxMeters {
    pub(crate) const fn actor(&self) -> &'static str {
        self.actor
    }

    pub(crate) fn put(&self) {
        self.depth.inc();
    }

    pub(crate) fn take(&self, waited: Duration) {
        self.depth.dec();
        self.wait.observe(waited.as_secs_f64());
    }

    pub(crate) fn lose(&self) {
        self.depth.dec();
    }

    pub(crate) fn refuse(&self) {
        self.refused.inc();
    }

    pub(crate) fn handled(&self, took: Duration) {
        self.handle.observe(took.as_secs_f64());
    }
}
