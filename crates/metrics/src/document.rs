//! docs/metrics.md, made from the table.

use std::collections::BTreeSet;

use crate::declare::{Declaration, Process};
use crate::queue_label::{OTHER_QUEUES, QUEUES_SHOWN};
use crate::table;

const HEAD: &str = include_str!("document.md");
const JOBS: &str = include_str!("jobs.md");
const TABLE: &str = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n";

#[must_use]
pub fn document() -> String {
    let mut page = HEAD.replace("{shown}", &QUEUES_SHOWN.to_string()).replace("{others}", OTHER_QUEUES);
    let sections =
        [("Of members", Process::Member), ("Of members, job by job", Process::JobsPage), ("Of agents", Process::Agent)];
    for (title, process) in sections {
        page.push_str(&format!("\n## {title}\n\n"));
        if process == Process::JobsPage {
            page.push_str(JOBS);
        }
        page.push_str(TABLE);
        for metric in of(process) {
            page.push_str(&row(metric));
        }
    }
    page
}

/// The metrics of a process, by name.
fn of(process: Process) -> Vec<&'static Declaration> {
    let mut metrics: Vec<_> = table::all().filter(|metric| metric.is_of(process)).collect();
    metrics.sort_by_key(|metric| metric.name);
    metrics
}

fn row(metric: &Declaration) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let unit = metric.unit().map_or("", |(_, unit)| unit);
    let (name, kind, labels) = (metric.name, metric.kind.name(), labels.join(", "));
    format!("| `{name}` | {kind} | {unit} | {labels} | {} |\n", metric.help)
}

/// Metrics that a text names in backquotes and that do not exist.
#[must_use]
pub fn unknown_in(text: &str) -> BTreeSet<String> {
    let known: BTreeSet<&str> = table::all().map(|metric| metric.name).collect();
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("tessera_"));
    let names =
        quoted.map(|quoted| quoted.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap_or(""));
    let unsuffixed = names.map(|name| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.into_iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
    });
    unsuffixed.filter(|name| !known.contains(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metrics_that_do_not_exist_are_found() {
        let text =
            "`tessera_jobs{state=\"pending\"}`, `tessera_job_wait_seconds_bucket`, `tessera job why`, `tessera_jbos`";
        assert_eq!(unknown_in(text), BTreeSet::from(["tessera_jbos".to_owned()]));
    }
}
