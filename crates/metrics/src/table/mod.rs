//! The table of all metrics. One entry is all that a metric needs:
//!
//! ```text
//! JOBS_SUBMITTED: CounterKind "tessera_jobs_submitted_total" ["queue"] "Jobs submitted";
//! ```
//!
//! The unit is the last word of the name. Names follow the rules of Prometheus: base units, `_total` for counters, and
//! sums over all labels mean something.

mod agents;
mod every;
mod jobs;
mod members;

pub use agents::*;
pub use every::*;
pub use jobs::*;
pub use members::*;

use crate::declare::{CounterKind, Declaration, GaugeKind, HistogramKind, Kind, Metric, Process};

/// Every metric.
pub fn all() -> impl Iterator<Item = &'static Declaration> {
    members::ALL.iter().chain(agents::ALL).chain(every::ALL).chain(jobs::ALL).copied()
}

/// What a marker stands for.
pub(crate) trait Marks {
    const KIND: Kind;
}

impl Marks for CounterKind {
    const KIND: Kind = Kind::Counter;
}

impl Marks for GaugeKind {
    const KIND: Kind = Kind::Gauge;
}

impl Marks for HistogramKind {
    const KIND: Kind = Kind::Histogram;
}

/// Declares metrics, and the list of them.
macro_rules! metrics {
    (
        $process:ident;
        $($name:ident: $kind:ident $shown:literal [$($label:literal),*] $(in $bounds:ident)? $help:literal;)+
    ) => {
        $(
            #[doc = $help]
            pub static $name: Metric<$kind, { <[&str]>::len(&[$($label),*]) }> = Metric::new(
                Declaration {
                    name: $shown,
                    kind: <$kind as super::Marks>::KIND,
                    labels: &[$($label),*],
                    bounds: metrics!(@bounds $($bounds)?),
                    of: Process::$process,
                    help: $help,
                },
                [$($label),*],
            );
        )+

        pub(super) static ALL: &[&Declaration] = &[$(&$name.declaration),+];
    };
    (@bounds) => { &[] };
    (@bounds $bounds:ident) => { &$bounds };
}
use metrics;
