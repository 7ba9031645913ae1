//! The telemetry of a process: its log, and its spans and metrics for a collector, where one is named.

use std::io::{self, IsTerminal};

use tessera_diagnostics::shown::{self, Json};
use tessera_diagnostics::{Lines, Remarks};
use tessera_otlp::{Collector, Service};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use super::config_file::LogSection;
use super::thinning::Thinning;
use crate::args::{LogArgs, LogFormat};
use crate::exit::Exit;
use crate::failure::Failure;

/// The filter of the log unless one is set. The library warns of each heartbeat that was not answered before the next
/// was due, some 40 ms: on a busy host that happens with everybody up, and where somebody is away replication warns.
pub(crate) const DEFAULT_FILTER: &str = "info,openraft=warn,openraft::core::heartbeat=error";

/// The collector of this process; what is left for it is sent by [`Told::finish`].
pub struct Told(Option<Collector>);

/// Begins to log, and to send spans and metrics when a collector is named. Must be called inside a runtime. `instance`:
/// what the collector is to call this process.
///
/// # Errors
/// A [`Failure`] for a filter or a collector that cannot be used.
pub fn start(service: &'static str, instance: &str, args: &LogArgs, file: &LogSection) -> Result<Told, Failure> {
    let filter = args.log.as_deref().or(file.filter.as_deref()).unwrap_or(DEFAULT_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::from_error(Exit::Usage, format!("the log filter `{filter}` cannot be used"), &error)
    })?;
    let format = args.log_format.or(file.format).unwrap_or_default();
    let thinning = Thinning::default();
    let lines = lines(format).with_filter(thinning.clone());
    let started = tracing_subscriber::registry().with(lines).with(filter).try_init();
    started.map_err(|error| Failure::from_error(Exit::Failed, "logging cannot be started", &error))?;
    tokio::spawn(thinning.report());
    let collector = match args.otlp_endpoint.as_deref().or(file.otlp_endpoint.as_deref()) {
        Some(endpoint) => Some(collector(service, instance, endpoint)?),
        None => None,
    };
    Ok(Told(collector))
}

/// Logs of a command of the client, as text on standard error.
pub fn log_to_terminal(filter: &str) {
    let layer = fmt::layer().fmt_fields(Fields).with_writer(|| Remarks).with_ansi(io::stderr().is_terminal());
    // A second call in one process, as in tests, changes nothing.
    let _ = tracing_subscriber::registry().with(layer).with(EnvFilter::new(filter)).try_init();
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let text = match format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    if text {
        let layer = fmt::layer().fmt_fields(Fields).with_writer((|| Remarks).and(|| Lines));
        layer.with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).boxed()
    } else {
        let layer = fmt::layer().with_writer((|| Json(Remarks)).and(|| Json(Lines)));
        layer.json().flatten_event(true).boxed()
    }
}

/// The fields of an event and its spans as text: names, paths and messages in it may be another's, so none ends its
/// line.
struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&shown::line(&text))
    }
}

fn collector(service: &'static str, instance: &str, endpoint: &str) -> Result<Collector, Failure> {
    let service = Service { name: service, instance: instance.to_owned(), version: env!("CARGO_PKG_VERSION") };
    Collector::begin(endpoint, &service)
        .map_err(|error| Failure::from_error(Exit::Usage, format!("the collector {endpoint} cannot be used"), &error))
}

impl Told {
    /// Sends what is left.
    pub async fn finish(self) {
        if let Some(collector) = self.0 {
            collector.finish().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text that is logged.
    fn logged(log: impl FnOnce()) -> String {
        let paper = Paper::default();
        let writer = paper.clone();
        let layer = fmt::layer().fmt_fields(Fields).with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let bytes = paper.0.lock().expect("nobody panicked").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_line_of_the_log_is_one_line_whatever_others_wrote_into_it() {
        let text = logged(|| {
            let evil = "\u{1b}[2J\n\u{202e}end";
            let _span = tracing::info_span!("work", job = %evil).entered();
            tracing::info!(node = %evil, r#type = ?evil, "a node says {evil}");
        });
        assert!(text.ends_with('\n') && !text.trim_end_matches('\n').contains(shown::is_obeyed), "{text:?}");
        for told in [r"a node says \x1b[2J\n\u{202e}end", r"node=\u{1b}[2J", "type=", r"work{job=\u{1b}[2J"] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }

    #[test]
    fn a_line_of_the_log_says_what_caused_an_error_and_not_where_another_library_logged_it() {
        #[derive(Debug, thiserror::Error)]
        #[error("it cannot be kept")]
        struct Unkept(#[source] io::Error);

        let error = Unkept(io::Error::other("the disk is full\u{202e}"));
        let text = logged(|| {
            tracing::warn!(error = &error as &dyn std::error::Error, log.target = "elsewhere", "once more");
        });
        assert!(text.contains(r"error=it cannot be kept error.sources=[the disk is full\u{202e}]"), "{text}");
        assert!(!text.contains("elsewhere"), "{text}");
    }
}
