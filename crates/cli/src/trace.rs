//! The trace context of one command, so that what it caused can be found in members, agents and the ledger.

use tessera_otlp::traceparent;
use uuid::Uuid;

/// The variable that names the trace which a command belongs to: workers have it, and so do steps of pipelines that
/// are traced.
const VARIABLE: &str = "TRACEPARENT";

/// The W3C trace context to send: that of the environment, else a fresh one that asks members and agents to keep
/// its spans.
#[must_use]
pub fn traceparent() -> String {
    let around = std::env::var(VARIABLE).ok().filter(|text| traceparent::parse(text).is_some());
    around.unwrap_or_else(fresh)
}

fn fresh() -> String {
    let trace = Uuid::new_v4().simple();
    let (span, _) = Uuid::new_v4().as_u64_pair();
    format!("00-{trace}-{:016x}-01", span | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_trace_of_its_own_that_is_to_be_kept() {
        let (first, second) = (fresh(), fresh());
        assert_ne!(first, second);
        assert!(traceparent::parse(&first).expect("a context").is_sampled());
    }
}
