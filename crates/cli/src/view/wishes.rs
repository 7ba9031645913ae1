//! What a job wants beside its virtual cards: a share of its hosts, and places.

use serde::Serialize;
use tessera_api::v1;

/// A share of a host, or a whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HostView {
    /// Processors.
    pub cpus: f64,
    /// Memory.
    pub memory_mib: u64,
}

impl From<v1::HostRequest> for HostView {
    fn from(host: v1::HostRequest) -> Self {
        Self { cpus: cpus(host.milli_cpus), memory_mib: host.memory_mib }
    }
}

impl From<v1::HostCapacity> for HostView {
    fn from(host: v1::HostCapacity) -> Self {
        Self { cpus: cpus(host.milli_cpus), memory_mib: host.memory_mib }
    }
}

impl HostView {
    /// `1.5 CPUs, 2048 MiB`; nothing when nothing is asked for.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.cpus > 0.0 {
            parts.push(format!("{} CPUs", self.cpus));
        }
        if self.memory_mib > 0 {
            parts.push(format!("{} MiB", self.memory_mib));
        }
        parts.join(", ")
    }
}

/// Thousandths of a processor as processors.
fn cpus(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

/// Where a job's workers would rather be, and must not be: one clause per wish.
#[must_use]
pub fn affinity_text(affinity: &v1::Affinity) -> String {
    let v1::Affinity { preferred, together, spread, avoid, data } = affinity;
    let mut clauses: Vec<String> = Vec::new();
    let labels = preferred.iter().map(|label| format!("{}={} ({})", label.key, label.value, label.weight));
    let preferred: Vec<String> = labels.collect();
    if !preferred.is_empty() {
        clauses.push(format!("preferred {}", preferred.join(" ")));
    }
    if !together.is_empty() {
        clauses.push(format!("together by {together}"));
    }
    if !spread.is_empty() {
        clauses.push(format!("spread over {spread}"));
    }
    if !avoid.is_empty() {
        let pairs: Vec<String> = avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
        clauses.push(format!("not beside {}", pairs.join(" ")));
    }
    if !data.is_empty() {
        clauses.push(format!("reads {}", data.join(" ")));
    }
    clauses.join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn wishes_are_said_in_a_line_and_nothing_is_said_of_none() {
        assert_eq!(affinity_text(&v1::Affinity::default()), "");
        assert_eq!(HostView::default().text(), "");
        assert_eq!(HostView { cpus: 1.5, memory_mib: 2048 }.text(), "1.5 CPUs, 2048 MiB");
        let label = v1::PreferredLabel { key: "rack".to_owned(), value: "r1".to_owned(), weight: 40 };
        let affinity = v1::Affinity {
            preferred: vec![label],
            together: "zone".to_owned(),
            spread: "node".to_owned(),
            avoid: BTreeMap::from([("service".to_owned(), "web".to_owned())]),
            data: vec!["imagenet".to_owned()],
        };
        assert_eq!(
            affinity_text(&affinity),
            "preferred rack=r1 (40); together by zone; spread over node; not beside service=web; reads imagenet"
        );
    }
}
