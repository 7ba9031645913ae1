//! The check of a page of metrics against the table.

use std::collections::BTreeMap;

use crate::declare::{Declaration, Process};
use crate::table;

/// Returns the deviations of a page in Prometheus' text format from the table: metrics that are not declared for the
/// process, with another type or other labels, and declared ones without labels that the page does not describe.
/// Metrics with labels have no series until something happened; `absent` may be missing too.
#[must_use]
pub fn problems(page: &str, process: Process, absent: &[&Declaration]) -> Vec<String> {
    let mut missing: BTreeMap<&str, &Declaration> =
        table::all().filter(|metric| metric.is_of(process)).map(|metric| (metric.name, metric)).collect();
    let declared = missing.clone();
    let mut problems = Vec::new();
    let mut last: Option<&Declaration> = None;
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            missing.remove(name);
            last = declared.get(name).copied();
            match last {
                None => problems.push(format!("{name} is not declared for this process")),
                Some(metric) if metric.kind.name() != kind => problems.push(format!("{name} is shown as a {kind}")),
                Some(_) => {}
            }
        } else if !line.starts_with('#')
            && let Some(metric) = last
        {
            problems.extend(strange_labels(line, metric));
        }
    }
    missing.retain(|_, metric| metric.labels.is_empty());
    missing.retain(|name, _| !absent.iter().any(|metric| metric.name == *name));
    problems.extend(missing.keys().map(|name| format!("{name} is declared and not on the page")));
    problems
}

fn strange_labels(line: &str, metric: &Declaration) -> Option<String> {
    let shown = match line.split_once('{') {
        Some((_, rest)) => rest.split("=\"").filter_map(|part| part.rsplit(['"', ',']).next()).collect(),
        None => Vec::new(),
    };
    let shown: Vec<&str> = shown.into_iter().filter(|name| !name.starts_with('}') && *name != "le").collect();
    let same = shown.iter().all(|name| metric.labels.contains(name)) && shown.len() == metric.labels.len();
    (!same).then(|| format!("{line} has other labels than {:?}", metric.labels))
}
