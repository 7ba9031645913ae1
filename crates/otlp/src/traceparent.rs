//! W3C trace contexts as text: `00-TRACE-SPAN-FLAGS`, all in small hexadecimal digits.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Name of the header, and of the variable of workers and of the command line.
pub const HEADER: &str = "traceparent";
/// Length of a context of version 00.
const LENGTH: usize = 55;

/// Reads a context that came from another process; `None` for everything that is not one.
#[must_use]
pub fn parse(text: &str) -> Option<SpanContext> {
    if text.len() != LENGTH || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')) {
        return None;
    }
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if (version.len(), trace.len(), span.len(), flags.len()) != (2, 32, 16, 2) || version == "ff" {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

#[must_use]
pub fn text(context: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags())
}

/// The trace's id in hexadecimal digits, if what happens in it is collected: only then can somebody look at it.
#[must_use]
pub fn sampled_trace(text: &str) -> Option<String> {
    parse(text).filter(SpanContext::is_sampled).map(|context| context.trace_id().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_survives_the_way_through_text() {
        let context = parse(GOOD).expect("it is one");
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(text(&context), GOOD);
        assert!(!parse(&GOOD.replace("-01", "-00")).expect("it is one").is_sampled());
    }

    #[test]
    fn only_a_trace_that_is_collected_is_shown() {
        assert_eq!(sampled_trace(GOOD).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(sampled_trace(&GOOD.replace("-01", "-00")), None);
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        let zeros = |part: &str| GOOD.replace(part, &"0".repeat(part.len()));
        let bad = [
            String::new(),
            GOOD.to_uppercase(),
            GOOD.replace("-01", "-0"),
            GOOD.replace("-01", "--1"),
            GOOD.replace("00-4", "ff-4"),
            format!("{GOOD}-"),
            zeros("4bf92f3577b34da6a3ce929d0e0e4736"),
            zeros("00f067aa0ba902b7"),
            "00-drop table".to_owned(),
        ];
        for text in bad {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}
