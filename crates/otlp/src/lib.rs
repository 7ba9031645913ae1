//! Telemetry that a process sends to a collector of OpenTelemetry: the spans of a job's life, and its metrics, over
//! OTLP.
//!
//! A trace begins with a submission. Its context is kept with the job in the ledger, so that whoever does something for
//! the job later, be it another leader or an agent that was started anew, adds its span to the same trace.
//!
//! * [`span`]: spans of what goes on and of what is over. As long as no collector is named, none is made, and looking
//!   for one costs one atomic load and no memory.
//! * [`traceparent`]: a trace context as text.
//! * `export` (a feature of its own, which the binary has): where spans and metrics go.
//!
//! Metrics are declared once, in the registry that the page for Prometheus is made from: [`push`] reads that page.

#[cfg(feature = "export")]
mod export;
pub mod span;
pub mod traceparent;

#[cfg(feature = "export")]
pub use export::{Collector, CollectorError, Service};
pub use span::{Draft, Span, SpanIdentity};

use tokio_util::sync::CancellationToken;

/// Sends the metrics on a page, in OpenMetrics text, to the collector again and again, and once more at the `end`.
/// Without a collector it ends at once. A page that cannot be had is left out.
#[cfg_attr(not(feature = "export"), allow(clippy::unused_async, reason = "with the feature it waits"))]
pub async fn push<P: Future<Output = Option<String>>>(page: impl Fn() -> P, end: CancellationToken) {
    #[cfg(feature = "export")]
    export::push(page, end).await;
    #[cfg(not(feature = "export"))]
    drop((page, end));
}
