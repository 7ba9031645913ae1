//! A job as it was submitted, as it is shown.

use std::ops::Deref;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use tessera_api::v1;
use tessera_ledger::wire::spec_to_wire;
use tessera_ledger::{DEFAULT_PRIORITY, JobSpec, Mebibytes, MilliTflops, VirtualCardRequest};

use super::shown::Shown;
use super::words;

/// The spec as it was submitted: every field of the message `JobSpec`, whichever this release has.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecView(Shown<v1::JobSpec>);

impl From<v1::JobSpec> for SpecView {
    /// A member spells every default out; what an older one does not is filled in here.
    fn from(mut spec: v1::JobSpec) -> Self {
        spec.gang = spec.gang.max(1);
        spec.gang_min.get_or_insert(spec.gang);
        spec.priority.get_or_insert(DEFAULT_PRIORITY);
        spec.preemptible.get_or_insert(true);
        Self(spec.into())
    }
}

impl Deref for SpecView {
    type Target = v1::JobSpec;

    fn deref(&self) -> &v1::JobSpec {
        &self.0
    }
}

impl Serialize for SpecView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Printed<'a> {
            #[serde(flatten)]
            spec: &'a Shown<v1::JobSpec>,
            // Names under which programs found these before everything else about them was shown too.
            checkpoint_mode: String,
            max_retries: u32,
        }
        let checkpoint_mode = words::checkpoint_mode(self.checkpoint.as_ref().map_or(0, |policy| policy.mode));
        let max_retries = self.retry.as_ref().map_or(0, |policy| policy.max_retries);
        Printed { spec: &self.0, checkpoint_mode, max_retries }.serialize(serializer)
    }
}

/// Fields that the page of a job shows in lines of their own, or that are too long for a page.
const ELSEWHERE: [&str; 15] = [
    "name",
    "queue",
    "priority",
    "preemptible",
    "command",
    "gang",
    "gang_min",
    "virtual_card",
    "host",
    "affinity",
    "packing",
    "checkpoint",
    "labels",
    "script",
    "environment",
];

impl SpecView {
    /// Whatever else was said, a line each: its name and its value. What is as it is when nothing is said of it is left
    /// out.
    pub fn other_lines(&self) -> Vec<(String, String)> {
        let plain = JobSpec::new(Vec::new(), VirtualCardRequest::new(MilliTflops::ZERO, Mebibytes::ZERO));
        let unsaid = [by_name(&spec_to_wire(&plain).into()), by_name(&Shown::default())];
        let is_said = |name: &String, value: &Value| unsaid.iter().all(|unsaid| unsaid.get(name) != Some(value));
        let others = by_name(&self.0)
            .into_iter()
            .filter(|(name, value)| !ELSEWHERE.contains(&name.as_str()) && is_said(name, value));
        others.map(|(name, value)| line(&name, &value)).collect()
    }
}

/// The printed fields, by name: a page has them in this order.
fn by_name(spec: &Shown<v1::JobSpec>) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn line(name: &str, value: &Value) -> (String, String) {
    match (name.strip_suffix("_seconds"), value.as_f64().map(Duration::try_from_secs_f64)) {
        (Some(name), Some(Ok(time))) => (name.replace('_', " "), humantime::format_duration(time).to_string()),
        _ => (name.replace('_', " "), value_text(value)),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(name, value)| match value {
                Value::Number(_) => line(name, value),
                _ => (name.clone(), value_text(value)),
            });
            pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> v1::JobSpec {
        let card = VirtualCardRequest::new(MilliTflops::from_tflops(1), Mebibytes(1));
        spec_to_wire(&JobSpec::new(vec!["true".to_owned()], card))
    }

    #[test]
    fn a_page_says_all_that_was_said_and_nothing_that_was_not() {
        assert_eq!(SpecView::from(spec()).other_lines(), []);
        let said = v1::JobSpec {
            time_limit: Some(prost_types::Duration { seconds: 5400, nanos: 0 }),
            node_labels: [("rack".to_owned(), "7".to_owned())].into(),
            retry: Some(v1::RetryPolicy { max_retries: 3, ..spec().retry.unwrap_or_default() }),
            on_disconnect: v1::OnDisconnect::Keep.into(),
            ..spec()
        };
        let lines: Vec<String> =
            SpecView::from(said).other_lines().into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "node labels: rack=7",
            "on disconnect: keep",
            "retry: backoff=1s, max backoff=5m, max retries=3",
            "time limit: 1h 30m",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_field_is_printed_and_the_old_names_stay() {
        let printed = serde_json::to_value(SpecView::from(spec())).unwrap_or_default();
        assert_eq!(printed["checkpoint_mode"], "requeue");
        assert_eq!(printed["checkpoint"]["grace_seconds"], 10.0);
        assert_eq!((&printed["max_retries"], &printed["gang_min"]), (&Value::from(0), &Value::from(1)));
        assert_eq!((&printed["packing"], printed.get("held")), (&Value::Null, None));
        assert_eq!(printed["script"], "");
    }
}
