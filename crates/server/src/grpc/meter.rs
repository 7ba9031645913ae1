//! Counts and times of calls, under the names that dashboards and alerts made for other gRPC servers expect.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tessera_metrics::histograms::TracedHistogram;
use tessera_metrics::{Counters, TracedHistograms, table};
use tonic::Code;

use super::methods::Methods;

/// Codes have the numbers 0 to 16.
const CODES: usize = 17;

/// The meters of one method; counting costs no lock and no lookup of labels.
#[derive(Debug)]
pub(super) struct MethodMeter {
    kind: &'static str,
    service: String,
    name: String,
    family: Counters<4>,
    handled: [OnceLock<Counter>; CODES],
    seconds: TracedHistogram,
}

impl MethodMeter {
    /// Counts one call that ended with `code` after `duration`; `trace` is its trace's id, where somebody
    /// collects them.
    pub(super) fn record(&self, code: Code, duration: Duration, trace: Option<String>) {
        self.seconds.observe(duration, trace);
        let slot = usize::try_from(i32::from(code)).ok().and_then(|number| self.handled.get(number));
        if let Some(slot) = slot {
            slot.get_or_init(|| self.counter(code)).inc();
        }
    }

    fn counter(&self, code: Code) -> Counter {
        self.family.of([self.kind, &self.service, &self.name, code_name(code)])
    }
}

/// The meters of all methods of the API.
#[derive(Clone, Debug)]
pub struct CallMeters {
    by_path: Arc<HashMap<String, Arc<MethodMeter>>>,
    handled: Counters<4>,
    durations: TracedHistograms<3>,
}

impl CallMeters {
    /// Meters for the given methods; nothing is counted yet.
    #[must_use]
    pub fn new(methods: &Methods) -> Self {
        let handled = table::GRPC_HANDLED.unregistered();
        let durations = table::GRPC_HANDLING.traced_unregistered();
        let by_path = methods
            .iter()
            .map(|(path, method)| {
                let kind = if method.streaming { "stream" } else { "unary" };
                let meter = MethodMeter {
                    kind,
                    service: method.service.clone(),
                    name: method.name.clone(),
                    seconds: durations.of([kind, &method.service, &method.name]),
                    family: handled.clone(),
                    handled: std::array::from_fn(|_| OnceLock::new()),
                };
                (path.to_owned(), Arc::new(meter))
            })
            .collect();
        Self { by_path: Arc::new(by_path), handled, durations }
    }

    /// Adds the meters to a registry without prefix.
    pub fn register(&self, registry: &mut Registry) {
        self.handled.register(registry);
        self.durations.register(registry);
    }

    /// The meter of the method at a path.
    pub(super) fn get(&self, path: &str) -> Option<&Arc<MethodMeter>> {
        self.by_path.get(path)
    }
}

/// The name of a code as other gRPC servers write it in labels.
const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_under_the_names_that_dashboards_expect() {
        let meters = CallMeters::new(&Methods::load().expect("descriptors decode"));
        let meter = meters.get("/tessera.v1.JobService/GetJob").expect("method exists");
        meter.record(Code::NotFound, Duration::from_millis(3), None);
        meter.record(Code::NotFound, Duration::from_millis(3), None);
        let mut registry = Registry::default();
        meters.register(&mut registry);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("writing to a string succeeds");
        let line = "grpc_server_handled_total{grpc_type=\"unary\",grpc_service=\"tessera.v1.JobService\",\
                    grpc_method=\"GetJob\",grpc_code=\"NotFound\"} 2";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("grpc_server_handling_seconds_count{grpc_type=\"unary\""), "{page}");
    }
}
