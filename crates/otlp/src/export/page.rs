//! Reads a page of metrics in OpenMetrics text and writes them as OTLP has them.
//!
//! | on the page | in OTLP |
//! |---|---|
//! | counter | cumulative monotonic sum, named without `_total` |
//! | gauge, unknown | gauge |
//! | histogram | cumulative histogram with the same bounds |
//! | info | gauge of 1, named with `_info` |
//!
//! Whoever makes names of Prometheus from those of OTLP by the standard's rules gets the names on the page again.
//! Exemplars are left out.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

/// Units by the last word of a name, as the naming rules of Prometheus have them, in the words of UCUM.
const UNITS: [(&str, &str); 6] =
    [("seconds", "s"), ("bytes", "By"), ("ratio", "1"), ("celsius", "Cel"), ("watts", "W"), ("entries", "{entry}")];

/// The metrics on a page; what is counted is counted since `began`. Times are in nanoseconds since the Unix epoch.
#[must_use]
pub(super) fn metrics_of(page: &str, began: u64, now: u64) -> Vec<Metric> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            describe(&mut families, rest);
        } else if let (Some(family), Some(sample)) = (families.last_mut(), Sample::read(line)) {
            family.take(sample);
        }
    }
    families.into_iter().filter_map(|family| family.metric(began, now)).collect()
}

/// A metric with all its series.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: String,
    kind: &'a str,
    unit: &'a str,
    numbers: Vec<(Vec<KeyValue>, Value)>,
    histograms: Vec<Series>,
}

/// One series of a histogram; its buckets count everything up to their bound, as on the page.
#[derive(Default)]
struct Series {
    labels: Vec<KeyValue>,
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// One line with a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<KeyValue>,
    bound: Option<f64>,
    value: Value,
}

/// Takes in a line that tells of the samples after it.
fn describe<'a>(families: &mut Vec<Family<'a>>, line: &'a str) {
    let mut words = line.splitn(3, ' ');
    let (Some(word), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else { return };
    if families.last().is_none_or(|family| family.name != name) {
        families.push(Family { name, ..Family::default() });
    }
    let Some(family) = families.last_mut() else { return };
    match word {
        "HELP" => family.help = unescaped(text),
        "TYPE" => family.kind = text,
        "UNIT" => family.unit = text,
        _ => {}
    }
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let end_of_name = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end_of_name);
        let (mut labels, mut bound, mut rest) = (Vec::new(), None, rest);
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            while let Some((key, after)) = rest.split_once("=\"").filter(|_| !rest.starts_with('}')) {
                let end = end_of_value(after)?;
                let value = unescaped(&after[..end]);
                let key = key.trim_start_matches(',');
                if key == "le" {
                    bound = Some(number(&value)?);
                } else {
                    labels.push(attribute(key, value));
                }
                rest = &after[end + 1..];
            }
            rest = rest.strip_prefix('}')?;
        }
        let text = rest.split_whitespace().next()?;
        let value = match text.parse() {
            Ok(whole) => Value::AsInt(whole),
            Err(_) => Value::AsDouble(number(text)?),
        };
        Some(Self { name, labels, bound, value })
    }
}

/// The end of a label's text: the position of the first quotation mark that is not escaped.
fn end_of_value(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, if char == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some(other)) => out.push(other),
            (other, _) => out.push(other),
        }
    }
    out
}

fn number(text: &str) -> Option<f64> {
    // Rust reads `+Inf` and `NaN` too.
    text.parse().ok()
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
}

impl Family<'_> {
    fn take(&mut self, sample: Sample<'_>) {
        if self.kind != "histogram" {
            self.numbers.push((sample.labels, sample.value));
            return;
        }
        let part = sample.name.strip_prefix(self.name).unwrap_or_default();
        if self.histograms.last().is_none_or(|series| series.labels != sample.labels) {
            self.histograms.push(Series { labels: sample.labels, ..Series::default() });
        }
        let Some(series) = self.histograms.last_mut() else { return };
        match (part, sample.bound) {
            ("_sum", _) => series.sum = fraction(sample.value),
            ("_count", _) => series.count = count(sample.value),
            ("_bucket", Some(bound)) => series.buckets.push((bound, count(sample.value))),
            _ => {}
        }
    }

    fn metric(self, began: u64, now: u64) -> Option<Metric> {
        let temporality = AggregationTemporality::Cumulative.into();
        let (suffix, data) = match self.kind {
            "counter" => {
                let data_points = numbers(self.numbers, began, now);
                ("", Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic: true }))
            }
            "histogram" => {
                let data_points = self.histograms.into_iter().map(|series| series.point(began, now)).collect();
                ("", Data::Histogram(Histogram { data_points, aggregation_temporality: temporality }))
            }
            kind => {
                let suffix = if kind == "info" { "_info" } else { "" };
                (suffix, Data::Gauge(Gauge { data_points: numbers(self.numbers, 0, now) }))
            }
        };
        let unit = if self.unit.is_empty() { self.name.rsplit('_').next().unwrap_or_default() } else { self.unit };
        let unit = UNITS.iter().find(|(word, _)| *word == unit).map_or("", |(_, unit)| *unit);
        // A family of which there is no series yet has nothing to say.
        let empty = match &data {
            Data::Histogram(histogram) => histogram.data_points.is_empty(),
            Data::Sum(sum) => sum.data_points.is_empty(),
            Data::Gauge(gauge) => gauge.data_points.is_empty(),
            _ => true,
        };
        (!empty).then(|| Metric {
            name: format!("{}{suffix}", self.name),
            // The registry ends each sentence with a full stop of its own.
            description: self.help.trim_end_matches('.').to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..Default::default()
        })
    }
}

fn numbers(series: Vec<(Vec<KeyValue>, Value)>, began: u64, now: u64) -> Vec<NumberDataPoint> {
    let point = |(attributes, value): (Vec<KeyValue>, Value)| NumberDataPoint {
        attributes,
        start_time_unix_nano: began,
        time_unix_nano: now,
        value: Some(value),
        ..Default::default()
    };
    series.into_iter().map(point).collect()
}

impl Series {
    fn point(self, began: u64, now: u64) -> HistogramDataPoint {
        let (mut bucket_counts, mut before) = (Vec::with_capacity(self.buckets.len()), 0);
        for (_, upto) in &self.buckets {
            bucket_counts.push(upto.saturating_sub(before));
            before = *upto;
        }
        let bounds = self.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
        HistogramDataPoint {
            attributes: self.labels,
            start_time_unix_nano: began,
            time_unix_nano: now,
            count: self.count,
            sum: Some(self.sum),
            bucket_counts,
            explicit_bounds: bounds.collect(),
            ..Default::default()
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a sum of what was measured")]
const fn fraction(value: Value) -> f64 {
    match value {
        Value::AsDouble(value) => value,
        Value::AsInt(value) => value as f64,
    }
}

fn count(value: Value) -> u64 {
    match value {
        Value::AsInt(value) => u64::try_from(value).unwrap_or_default(),
        // Counts are whole.
        Value::AsDouble(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family as Labelled;
    use prometheus_client::metrics::gauge::Gauge as Level;
    use prometheus_client::metrics::histogram::Histogram as Spread;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    const BEGAN: u64 = 5;
    const NOW: u64 = 9;

    fn page() -> String {
        let mut registry = Registry::default();
        let calls = Labelled::<Vec<(String, String)>, Counter>::default();
        let labels = vec![("code".to_owned(), "O\"K\\,}\n".to_owned()), ("method".to_owned(), "Get".to_owned())];
        calls.get_or_create(&labels).inc_by(3);
        calls.get_or_create(&vec![]).inc_by(4);
        registry.register("calls", "Calls that ended", calls);
        registry.register("never_seen", "Nothing of it yet", Labelled::<Vec<(String, String)>, Counter>::default());
        let wait = Labelled::<Vec<(String, String)>, Spread>::new_with_constructor(|| Spread::new([0.5, 2.0]));
        for seconds in [0.25, 1.0, 1.5, 8.0] {
            wait.get_or_create(&vec![("queue".to_owned(), "a".to_owned())]).observe(seconds);
        }
        wait.get_or_create(&vec![("queue".to_owned(), "b".to_owned())]).observe(3.0);
        registry.register("wait_seconds", "Wait", wait);
        let used = Level::<f64, std::sync::atomic::AtomicU64>::default();
        used.set(1.5);
        registry.register_with_unit("used", "Used", Unit::Bytes, used);
        registry.register("build", "Build", Info::new(vec![("version", "1.2")]));
        let mut page = String::new();
        encode(&mut page, &registry).expect("it can be written");
        page
    }

    fn find(metrics: &[Metric], name: &str) -> Metric {
        metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name} in {metrics:#?}")).clone()
    }

    fn text(attribute: &KeyValue) -> (&str, &str) {
        match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => (&attribute.key, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counters_are_sums_with_their_labels() {
        let metrics = metrics_of(&page(), BEGAN, NOW);
        let calls = find(&metrics, "calls");
        assert_eq!((calls.description.as_str(), calls.unit.as_str()), ("Calls that ended", ""));
        let Some(Data::Sum(sum)) = calls.data else { panic!("{calls:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let mut points: Vec<_> = sum.data_points.iter().map(|point| (point.attributes.len(), point.value)).collect();
        points.sort_by_key(|(labels, _)| *labels);
        assert_eq!(points, [(0, Some(Value::AsInt(4))), (2, Some(Value::AsInt(3)))]);
        let labelled = sum.data_points.iter().find(|point| !point.attributes.is_empty()).expect("one has labels");
        let attributes: Vec<_> = labelled.attributes.iter().map(text).collect();
        assert_eq!(attributes, [("code", "O\"K\\,}\n"), ("method", "Get")]);
        assert_eq!((labelled.start_time_unix_nano, labelled.time_unix_nano), (BEGAN, NOW));
        assert!(!metrics.iter().any(|metric| metric.name == "never_seen"));
    }

    #[test]
    fn histograms_keep_bounds_and_what_lies_between_them() {
        let wait = find(&metrics_of(&page(), BEGAN, NOW), "wait_seconds");
        assert_eq!(wait.unit, "s");
        let Some(Data::Histogram(histogram)) = wait.data else { panic!("{wait:?}") };
        let mut points = histogram.data_points;
        points.sort_by_key(|point| point.count);
        assert_eq!((points[0].count, points[0].bucket_counts.as_slice()), (1, [0, 0, 1].as_slice()));
        assert_eq!((points[1].count, points[1].sum), (4, Some(10.75)));
        assert_eq!(points[1].explicit_bounds, [0.5, 2.0]);
        assert_eq!(points[1].bucket_counts, [1, 2, 1]);
        assert_eq!(text(&points[1].attributes[0]), ("queue", "a"));
    }

    #[test]
    fn gauges_keep_their_unit_and_an_info_is_a_gauge_of_one() {
        let metrics = metrics_of(&page(), BEGAN, NOW);
        let value = |metric: &Metric| match &metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points[0].value,
            other => panic!("{other:?}"),
        };
        let used = find(&metrics, "used_bytes");
        assert_eq!((used.unit.as_str(), value(&used)), ("By", Some(Value::AsDouble(1.5))));
        assert_eq!(value(&find(&metrics, "build_info")), Some(Value::AsInt(1)));
    }
}
