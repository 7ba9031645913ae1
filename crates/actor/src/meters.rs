//! Metrics of actors for Prometheus: how full their mailboxes are, how long messages wait and how long handling takes.
//! Labelled by the actor's name, of which there are few: sessions of nodes share one.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tessera_metrics::{Counters, Gauges, Histograms, table};

/// The metrics of every actor of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct ActorMeters {
    depth: Gauges<1>,
    refused: Counters<1>,
    panics: Counters<1>,
    wait: Histograms<1>,
    handle: Histograms<1>,
}

impl Default for ActorMeters {
    fn default() -> Self {
        Self {
            depth: table::ACTOR_MAILBOX_DEPTH.unregistered(),
            refused: table::ACTOR_REFUSED.unregistered(),
            panics: table::ACTOR_PANICS.unregistered(),
            wait: table::ACTOR_WAIT.unregistered(),
            handle: table::ACTOR_HANDLE.unregistered(),
        }
    }
}

impl ActorMeters {
    /// Registers the metrics; their names begin with `tessera_`, so the registry must not add a prefix.
    pub fn register(&self, registry: &mut Registry) {
        self.depth.register(registry);
        self.refused.register(registry);
        self.panics.register(registry);
        self.wait.register(registry);
        self.handle.register(registry);
    }

    pub(crate) fn of(&self, actor: &'static str) -> MailboxMeters {
        // There from the beginning, so that the first panic is an increase.
        let _ = self.panics.of([actor]);
        MailboxMeters {
            actor,
            depth: self.depth.of([actor]),
            refused: self.refused.of([actor]),
            wait: self.wait.of([actor]),
            handle: self.handle.of([actor]),
        }
    }

    pub(crate) fn panicked(&self, actor: &'static str) {
        self.panics.of([actor]).inc();
    }
}

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
