//! Logs and traces of a process.

use std::io::{self, IsTerminal};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use super::config_file::LogSection;
use crate::args::{LogArgs, LogFormat};
use crate::exit::Exit;
use crate::failure::Failure;

/// What is logged when nothing is said.
const DEFAULT_FILTER: &str = "info,openraft=warn";
/// How long the last traces may take to be sent.
const FLUSH: Duration = Duration::from_secs(3);

/// The traces of this process; the last of them are sent by [`Traces::finish`].
pub struct Traces(Option<SdkTracerProvider>);

/// Begins to log, and to send traces when a collector is named. Must be called inside a runtime.
///
/// # Errors
/// A [`Failure`] for a filter or a collector that cannot be used.
pub fn start(service: &'static str, args: &LogArgs, file: &LogSection) -> Result<Traces, Failure> {
    let filter = args.log.as_deref().or(file.filter.as_deref()).unwrap_or(DEFAULT_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::from_error(Exit::Usage, format!("the log filter `{filter}` cannot be used"), &error)
    })?;
    let format = args.log_format.or(file.format).unwrap_or_default();
    let provider = match args.otlp_endpoint.as_deref().or(file.otlp_endpoint.as_deref()) {
        Some(endpoint) => Some(collector(service, endpoint)?),
        None => None,
    };
    let traces =
        provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("tessera")));
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let started = tracing_subscriber::registry().with(lines(format)).with(traces).with(filter).try_init();
    started.map_err(|error| Failure::from_error(Exit::Failed, "logging cannot be started", &error))?;
    Ok(Traces(provider))
}

/// Logs of a command of the client, as text on standard error.
pub fn log_to_terminal(filter: &str) {
    let layer = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // A second call in one process, as in tests, changes nothing.
    let _ = tracing_subscriber::registry().with(layer).with(EnvFilter::new(filter)).try_init();
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let text = match format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let layer = fmt::layer().with_writer(io::stderr);
    if text {
        layer.with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).boxed()
    } else {
        layer.json().flatten_event(true).boxed()
    }
}

fn collector(service: &'static str, endpoint: &str) -> Result<SdkTracerProvider, Failure> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build().map_err(|error| {
        Failure::from_error(Exit::Usage, format!("the collector of traces {endpoint} cannot be used"), &error)
    })?;
    let resource = Resource::builder().with_service_name(service).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

impl Traces {
    /// Sends what is left.
    pub async fn finish(self) {
        let Some(provider) = self.0 else { return };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}
