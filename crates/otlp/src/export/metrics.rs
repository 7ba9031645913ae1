//! Metrics over OTLP: what the page for Prometheus shows, sent again and again. So each metric is declared once, and
//! both ways of looking at it show the same.

use std::env;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource as WireResource;
use opentelemetry_proto::transform::common::tonic::Attributes;
use opentelemetry_sdk::Resource;
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::page::metrics_of;
use super::{CollectorError, Service};

/// The interval between sendings of metrics where the environment sets none; the standard's own default.
const INTERVAL: Duration = Duration::from_secs(60);
/// The time limit for sending metrics where the environment sets none; the standard's own default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for the last sending: the process is about to end.
const LAST: Duration = Duration::from_secs(2);

/// The destination of metrics, once a collector is named.
static SINK: OnceLock<Sink> = OnceLock::new();

type Header = (MetadataKey<Ascii>, MetadataValue<Ascii>);

#[derive(Debug)]
struct Sink {
    channel: Channel,
    headers: Vec<Header>,
    resource: WireResource,
    scope: InstrumentationScope,
    interval: Duration,
    /// Since when counters count: a process begins with all of them at zero.
    began: SystemTime,
}

pub(super) fn begin(endpoint: &str, service: &Service, resource: &Resource) -> Result<(), CollectorError> {
    let timeout = env_millis("OTEL_EXPORTER_OTLP_TIMEOUT").unwrap_or(TIMEOUT);
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(CollectorError::Metrics)?;
    let attributes = resource.iter().map(|(key, value)| opentelemetry::KeyValue::new(key.clone(), value.clone()));
    let sink = Sink {
        channel: endpoint.timeout(timeout).connect_timeout(timeout).connect_lazy(),
        headers: headers(&env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())?,
        resource: WireResource { attributes: Attributes::from(attributes).0, ..Default::default() },
        scope: InstrumentationScope {
            name: "tessera".to_owned(),
            version: service.version.to_owned(),
            ..Default::default()
        },
        interval: env_millis("OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(INTERVAL),
        began: SystemTime::now(),
    };
    // A process names its collector once.
    let _ = SINK.set(sink);
    Ok(())
}

fn env_millis(variable: &str) -> Option<Duration> {
    let millis = env::var(variable).ok()?.trim().parse().ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis))
}

/// Headers as the standard's variable has them; values may be percent-encoded.
fn headers(text: &str) -> Result<Vec<Header>, CollectorError> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let header = |pair: &str| -> Option<Header> {
        let (name, value) = pair.split_once('=')?;
        let value = decoded(value.trim())?;
        Some((name.trim().to_ascii_lowercase().parse().ok()?, value.parse().ok()?))
    };
    pairs.map(|pair| header(pair).ok_or(CollectorError::Headers)).collect()
}

/// A text without its percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// See [`push`](crate::push).
pub(crate) async fn push<P: Future<Output = Option<String>>>(page: impl Fn() -> P, end: CancellationToken) {
    let Some(sink) = SINK.get() else { return };
    let mut due = interval_at(tokio::time::Instant::now() + sink.interval, sink.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = due.tick() => sink.send(&page, &end).await,
        }
    }
    // The collector may be gone too.
    drop(tokio::time::timeout(LAST, sink.send(&page, &CancellationToken::new())).await);
}

impl Sink {
    async fn send<P: Future<Output = Option<String>>>(&self, page: &impl Fn() -> P, end: &CancellationToken) {
        let Some(page) = page().await else { return };
        let mut request = tonic::Request::new(self.request(&page));
        for (name, value) in &self.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        let mut client = MetricsServiceClient::new(self.channel.clone());
        tokio::select! {
            () = end.cancelled() => {}
            sent = client.export(request) => match sent.map(|answer| answer.into_inner().partial_success) {
                Ok(None) => {}
                Ok(Some(partly)) if partly.rejected_data_points == 0 => {}
                Ok(Some(partly)) => {
                    tracing::warn!(rejected = partly.rejected_data_points, why = partly.error_message, "metrics were refused");
                }
                Err(error) => tracing::warn!(%error, "metrics were not sent"),
            },
        }
    }

    fn request(&self, page: &str) -> ExportMetricsServiceRequest {
        let metrics = metrics_of(page, nanos(self.began), nanos(SystemTime::now()));
        let scope = ScopeMetrics { scope: Some(self.scope.clone()), metrics, ..Default::default() };
        let resource =
            ResourceMetrics { resource: Some(self.resource.clone()), scope_metrics: vec![scope], ..Default::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![resource] }
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_the_standard_writes_them() {
        let read = headers("Authorization=Basic%20abc, x-scope = a ,").expect("good");
        let texts: Vec<(&str, &str)> =
            read.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        assert_eq!(texts, [("authorization", "Basic abc"), ("x-scope", "a")]);
        assert!(headers("").expect("none is fine").is_empty());
        for bad in ["name", "a b=c", "name=%4", "name=%zz"] {
            assert!(headers(bad).is_err(), "{bad}");
        }
    }
}
