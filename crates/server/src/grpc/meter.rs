//! Counts and times of calls, under the names that dashboards and alerts made for other gRPC servers expect.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tonic::Code;

use super::methods::Methods;

/// Upper bounds of the buckets of call durations, in seconds.
const BUCKETS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Codes have the numbers 0 to 16.
const CODES: usize = 17;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandledLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
    grpc_code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    grpc_type: &'static str,
    grpc_service: String,
    grpc_method: String,
}

type Durations = Family<MethodLabels, Histogram, fn() -> Histogram>;

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// The meters of one method; counting costs no lock and no lookup of labels.
#[derive(Debug)]
pub(super) struct MethodMeter {
    labels: MethodLabels,
    family: Family<HandledLabels, Counter>,
    handled: [OnceLock<Counter>; CODES],
    seconds: Histogram,
}

impl MethodMeter {
    /// Counts one call that ended with `code` after `duration`.
    pub(super) fn record(&self, code: Code, duration: Duration) {
        self.seconds.observe(duration.as_secs_f64());
        let slot = usize::try_from(i32::from(code)).ok().and_then(|number| self.handled.get(number));
        if let Some(slot) = slot {
            slot.get_or_init(|| self.counter(code)).inc();
        }
    }

    fn counter(&self, code: Code) -> Counter {
        self.family.get_or_create_owned(&HandledLabels {
            grpc_type: self.labels.grpc_type,
            grpc_service: self.labels.grpc_service.clone(),
            grpc_method: self.labels.grpc_method.clone(),
            grpc_code: code_name(code),
        })
    }
}

/// The meters of all methods of the API.
#[derive(Clone, Debug)]
pub struct CallMeters {
    by_path: Arc<HashMap<String, Arc<MethodMeter>>>,
    handled: Family<HandledLabels, Counter>,
    durations: Durations,
}

impl CallMeters {
    /// Meters for the given methods; nothing is counted yet.
    #[must_use]
    pub fn new(methods: &Methods) -> Self {
        let handled = Family::default();
        let durations = Durations::new_with_constructor(histogram);
        let by_path = methods
            .iter()
            .map(|(path, method)| {
                let labels = MethodLabels {
                    grpc_type: if method.streaming { "stream" } else { "unary" },
                    grpc_service: method.service.clone(),
                    grpc_method: method.name.clone(),
                };
                let meter = MethodMeter {
                    seconds: durations.get_or_create_owned(&labels),
                    labels,
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
        registry.register(
            "grpc_server_handled",
            "Calls that ended, successfully or not, by service, method and code",
            self.handled.clone(),
        );
        registry.register_with_unit(
            "grpc_server_handling",
            "Time from the arrival of a call to its end",
            Unit::Seconds,
            self.durations.clone(),
        );
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
        meter.record(Code::NotFound, Duration::from_millis(3));
        meter.record(Code::NotFound, Duration::from_millis(3));
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
