//! The destination of spans and metrics: a collector that speaks OTLP over gRPC.
//!
//! What the standard's environment variables say counts: who a process is (`OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`), what is kept (`OTEL_TRACES_SAMPLER`), what is sent and how often
//! (`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_BSP_*`, `OTEL_METRIC_EXPORT_INTERVAL`), and with which
//! headers (`OTEL_EXPORTER_OTLP_HEADERS`).

mod metrics;
mod page;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, SdkTracerProvider,
};

pub(crate) use metrics::push;

use crate::span;

/// The longest time that ended spans wait for others to be sent with. Spans that a killed process had not sent are
/// lost.
const SPANS_WAIT: Duration = Duration::from_secs(1);
/// The time limit for sending the last spans.
const FLUSH: Duration = Duration::from_secs(3);

/// The reporting process, in the words of the semantic conventions.
#[derive(Clone, Debug)]
pub struct Service {
    /// `service.name`, where the environment does not say.
    pub name: &'static str,
    /// `service.instance.id`: the same after a restart, and of one process of this name only.
    pub instance: String,
    /// `service.version`.
    pub version: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("spans cannot be sent to it; name one that speaks OTLP over gRPC, such as http://127.0.0.1:4317")]
    Spans(#[source] ExporterBuildError),
    #[error("metrics cannot be sent to it; name one that speaks OTLP over gRPC, such as http://127.0.0.1:4317")]
    Metrics(#[source] tonic::transport::Error),
    /// The environment names no headers.
    #[error("`OTEL_EXPORTER_OTLP_HEADERS` must be like `name=value,name=value`")]
    Headers,
}

/// The collector of this process.
#[derive(Debug)]
pub struct Collector {
    spans: Option<SdkTracerProvider>,
}

impl Collector {
    /// Begins to send spans to an endpoint, and lets [`push`](crate::push) send metrics. Must be called inside a
    /// runtime, once.
    ///
    /// # Errors
    /// [`CollectorError`], when the endpoint cannot be one. Whether anybody is there shows later, in the log.
    pub fn begin(endpoint: &str, service: &Service) -> Result<Self, CollectorError> {
        let resource = resource(service);
        let spans = if is_switched_off("OTEL_TRACES_EXPORTER") { None } else { Some(provider(endpoint, &resource)?) };
        if !is_switched_off("OTEL_METRICS_EXPORTER") {
            metrics::begin(endpoint, service, &resource)?;
        }
        if let Some(spans) = &spans {
            opentelemetry::global::set_tracer_provider(spans.clone());
            span::collect_with(opentelemetry::global::tracer("tessera"));
        }
        Ok(Self { spans })
    }

    /// Sends the spans that are left.
    pub async fn finish(self) {
        let Some(spans) = self.spans else { return };
        let ended = tokio::task::spawn_blocking(move || spans.shutdown_with_timeout(FLUSH)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// The standard's word for a signal that is not to be sent.
fn is_switched_off(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value.trim() == "none")
}

fn provider(endpoint: &str, resource: &Resource) -> Result<SdkTracerProvider, CollectorError> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let mut batches = BatchConfigBuilder::default();
    if std::env::var_os("OTEL_BSP_SCHEDULE_DELAY").is_none() {
        batches = batches.with_scheduled_delay(SPANS_WAIT);
    }
    let processor = BatchSpanProcessor::builder(exporter.map_err(CollectorError::Spans)?)
        .with_batch_config(batches.build())
        .build();
    // The sampler is the standard's: the caller's word counts, what has none is kept, and the environment can
    // say otherwise.
    let provider = SdkTracerProvider::builder().with_span_processor(processor).with_id_generator(Ids::default());
    Ok(provider.with_resource(resource.clone()).build())
}

fn resource(service: &Service) -> Resource {
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let own = [
        KeyValue::new("service.name", service.name),
        KeyValue::new("service.instance.id", service.instance.clone()),
        KeyValue::new("service.version", service.version),
    ];
    let resource = Resource::builder_empty()
        .with_attributes(own)
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match name {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// Ids that are drawn, except those that are known beforehand.
#[derive(Debug, Default)]
struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        span::take_wanted_id().unwrap_or_else(|| self.0.new_span_id())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
    use std::time::SystemTime;

    use opentelemetry::global::tracer;
    use opentelemetry::trace::{SpanKind, Status};
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SpanData, SpanExporter};

    use super::*;
    use crate::span::{at_millis, current, within};
    use crate::{Draft, Span, SpanIdentity, traceparent};

    /// Keeps what is told; one for all tests of this process.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl Kept {
        fn begin() -> Self {
            static KEPT: OnceLock<Kept> = OnceLock::new();
            let begin = || {
                let kept = Kept::default();
                let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone());
                opentelemetry::global::set_tracer_provider(provider.with_id_generator(Ids::default()).build());
                span::collect_with(tracer("test"));
                kept
            };
            KEPT.get_or_init(begin).clone()
        }

        fn spans(&self) -> MutexGuard<'_, Vec<SpanData>> {
            self.0.lock().expect("no test panics while it holds it")
        }

        /// The spans of a trace, in the order in which they ended.
        fn of(&self, trace: &str) -> Vec<SpanData> {
            let spans = self.spans();
            spans.iter().filter(|span| span.span_context.trace_id().to_string() == trace).cloned().collect()
        }
    }

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.spans().extend(batch);
            Ok(())
        }
    }

    #[test]
    fn spans_of_what_is_over_have_the_times_and_the_ids_that_are_known() {
        let kept = Kept::begin();
        let trace = "11111111111111111111111111111111";
        let context = format!("00-{trace}-00f067aa0ba902b7-01");
        let identity = SpanIdentity::of("run", &[7, 1, 0]);
        assert_ne!(identity, SpanIdentity::of("stop", &[7, 1, 0]));
        let told = identity.traceparent(&context).expect("it is kept");
        let draft = || Draft::following("run", &context).expect("somebody collects").known_as(identity);
        draft().since(at_millis(1_000)).with("tessera.rank", 3_i64).failed(Some("why")).until(at_millis(5_000));
        draft().since(at_millis(5_000)).failed(None::<String>).until(at_millis(1_000));
        let [first, second]: [SpanData; 2] = kept.of(trace).try_into().expect("two spans");
        assert_eq!(traceparent::text(&first.span_context), told);
        assert_eq!(first.span_context.span_id(), second.span_context.span_id());
        assert_eq!(
            (first.parent_span_id.to_string().as_str(), first.parent_span_is_remote),
            ("00f067aa0ba902b7", true)
        );
        assert_eq!((first.start_time, first.end_time), (at_millis(1_000), at_millis(5_000)));
        assert_eq!((&first.status, &second.status), (&Status::error("why"), &Status::Unset));
        assert_eq!(second.end_time, at_millis(5_000), "no span ends before it begins");
    }

    #[test]
    fn what_the_caller_does_not_want_kept_is_not_told() {
        let kept = Kept::begin();
        let trace = "22222222222222222222222222222222";
        let context = format!("00-{trace}-00f067aa0ba902b7-00");
        Draft::following("run", &context).expect("somebody collects").until(SystemTime::now());
        assert_eq!(SpanIdentity::of("run", &[1]).traceparent(&context), None);
        let call = Span::of_call("/s/M", Some(&context)).expect("it goes on");
        let _current = call.enter();
        assert!(Span::here("submit").is_none());
        assert!(
            current().is_some_and(|context| context.contains(trace) && context.ends_with("-00")),
            "the word is handed on"
        );
        drop(call);
        assert!(kept.of(trace).is_empty());
    }

    #[tokio::test]
    async fn a_call_without_a_context_begins_a_trace_and_what_is_done_in_it_lies_in_it() {
        let kept = Kept::begin();
        let call = Span::of_call("/tessera.v1.JobService/SubmitJob", None).expect("somebody collects");
        assert!(Span::here("submit").is_none(), "nothing is current");
        let work = async {
            let submit = Span::here("submit").expect("a call is current");
            assert_eq!(current(), Some(call.traceparent()), "it is not entered");
            submit.set("tessera.job.id", 7_i64);
            submit.draft("commit").until(SystemTime::now());
            submit.fail("refused");
        };
        within(Some(&call), work).await;
        assert_eq!(current(), None);
        let context = traceparent::parse(&call.traceparent()).expect("a context");
        drop(call);
        let [commit, submit, call]: [SpanData; 3] =
            kept.of(&context.trace_id().to_string()).try_into().expect("three spans");
        assert_eq!(call.parent_span_id, SpanId::INVALID);
        assert_eq!((call.name.as_ref(), &call.span_kind), ("tessera.v1.JobService/SubmitJob", &SpanKind::Server));
        assert_eq!(submit.parent_span_id, call.span_context.span_id());
        assert_eq!(commit.parent_span_id, submit.span_context.span_id());
        assert_eq!(submit.status, Status::error("refused"));
    }
}
