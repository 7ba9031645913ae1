//! A collector of OpenTelemetry in the process of the test: it takes spans and metrics over OTLP and keeps them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span as WireSpan;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Attributes, each value as text.
pub type Attributes = BTreeMap<String, String>;

/// A span as it came.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    /// Its trace, in hexadecimal digits.
    pub trace: String,
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// The id of the span that it lies in; empty at the root.
    pub parent: String,
    /// The beginning, in nanoseconds since the Unix epoch.
    pub start: u64,
    pub end: u64,
    pub attributes: Attributes,
    /// The reason why it failed, if it did.
    pub failed: Option<String>,
    /// The attributes of the process that reported it.
    pub resource: Attributes,
}

#[derive(Debug, Default)]
struct Kept {
    spans: Vec<Span>,
    /// The newest metrics by who told them (`service.instance.id`) and name.
    metrics: BTreeMap<String, (Attributes, BTreeMap<String, Metric>)>,
}

#[derive(Clone, Debug, Default)]
struct Receiver(Arc<Mutex<Kept>>);

/// The collector. It ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    /// The URL on which it listens, as processes are told.
    pub endpoint: String,
    receiver: Receiver,
    _server: AbortOnDropHandle<()>,
}

impl Collector {
    /// Starts one on a port of its own.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let receiver = Receiver::default();
        let served = Server::builder()
            .add_service(TraceServiceServer::new(receiver.clone()))
            .add_service(MetricsServiceServer::new(receiver.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { served.await.expect("the collector serves until it is dropped") });
        Ok(Self { endpoint, receiver, _server: AbortOnDropHandle::new(server) })
    }

    /// The variables that send spans and metrics here, soon.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.endpoint.clone()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200".to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
        ]
    }

    /// Everything that came so far.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.receiver.kept().spans.clone()
    }

    #[must_use]
    pub fn trace(&self, trace: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.trace == trace).collect()
    }

    /// The newest metrics of a process by name, and who it says that it is.
    #[must_use]
    pub fn metrics(&self, instance: &str) -> Option<(Attributes, BTreeMap<String, Metric>)> {
        self.receiver.kept().metrics.get(instance).cloned()
    }
}

impl Receiver {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of in request.into_inner().resource_spans {
            let resource = attributes_of(of.resource);
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.kept().spans.extend(spans.map(|span| read(span, &resource)));
        }
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        for of in request.into_inner().resource_metrics {
            let resource = attributes_of(of.resource);
            let instance = resource.get("service.instance.id").cloned().unwrap_or_default();
            let metrics = of.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
            let by_name = metrics.map(|metric| (metric.name.clone(), metric)).collect();
            self.kept().metrics.insert(instance, (resource, by_name));
        }
        Ok(Response::new(Default::default()))
    }
}

fn read(span: WireSpan, resource: &Attributes) -> Span {
    let status = span.status.unwrap_or_default();
    Span {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        attributes: attributes(&span.attributes),
        failed: (status.code() == StatusCode::Error).then_some(status.message),
        resource: resource.clone(),
    }
}

fn attributes_of(resource: Option<Resource>) -> Attributes {
    attributes(&resource.unwrap_or_default().attributes)
}

/// Attributes with their values as text.
#[must_use]
pub fn attributes(all: &[KeyValue]) -> Attributes {
    all.iter().map(|pair| (pair.key.clone(), text(pair.value.as_ref()))).collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(yes)) => yes.to_string(),
        Some(any_value::Value::DoubleValue(number)) => number.to_string(),
        Some(any_value::Value::ArrayValue(array)) => {
            array.values.iter().map(|value| text(Some(value))).collect::<Vec<_>>().join(",")
        }
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
