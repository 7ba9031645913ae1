//! The metrics of members and agents.
//!
//! Every metric is declared once, in [`table`]: its name, type, labels, bounds and meaning. From the declaration follow
//! how it is registered and encoded ([`declare`]), its unit, its row in docs/metrics.md ([`document`]), and what a page
//! is held against in tests ([`page`]). Whoever adds a metric adds it to the table and uses it; nothing else is told.
//!
//! What reports say of measured values is [`quantile`], one definition for all of them.
//!
//! No metric has a series per job, and of members none has one per node or card: pages stay small whatever the pool's
//! size. Labels of queues are bounded by [`QueueLabels`]; series of what comes and goes end with it ([`Ending`]).

pub mod declare;
pub mod document;
pub mod histograms;
pub mod page;
mod quantile;
mod queue_label;
pub mod revision;
mod scrape;
mod series;
pub mod table;

pub use declare::{Counters, Gauges};
pub use histograms::{Histograms, TracedHistograms};
pub use quantile::quantile;
pub use queue_label::{OTHER_QUEUES, QUEUES_SHOWN, QueueLabels};
pub use scrape::Scrape;
pub use series::Ending;
