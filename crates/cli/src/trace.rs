//! The trace context of one command, so that what it caused can be found in members, agents and the ledger.

use opentelemetry::propagation::{Injector, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use uuid::Uuid;

/// The W3C trace context to send: that of the current span when traces are collected, else a fresh one.
#[must_use]
pub fn traceparent() -> String {
    struct Slot(Option<String>);
    impl Injector for Slot {
        fn set(&mut self, key: &str, value: String) {
            if key == "traceparent" {
                self.0 = Some(value);
            }
        }
    }
    let mut slot = Slot(None);
    TraceContextPropagator::new().inject_context(&tracing::Span::current().context(), &mut slot);
    slot.0.unwrap_or_else(fresh)
}

fn fresh() -> String {
    let trace = Uuid::new_v4().simple();
    let (span, _) = Uuid::new_v4().as_u64_pair();
    format!("00-{trace}-{:016x}-00", span | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_collector_has_a_trace_of_its_own() {
        let (first, second) = (traceparent(), traceparent());
        assert_ne!(first, second);
        let lengths: Vec<usize> = first.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2]);
    }
}
