//! What a job wants beside its virtual cards: a share of its hosts, and places.

use std::collections::BTreeMap;

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

/// Where a job's workers would rather be, and must not be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AffinityView {
    /// Node labels that are better to have.
    pub preferred: Vec<PreferredLabelView>,
    /// Label of which all workers have the same value; empty: none.
    pub together: String,
    /// Label over whose values workers are spread; empty: none.
    pub spread: String,
    /// Labels of jobs that must not be beside it.
    pub avoid: BTreeMap<String, String>,
    /// Data that it will read.
    pub data: Vec<String>,
}

/// A node label that is better to have than not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreferredLabelView {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// How much it counts.
    pub weight: u32,
}

impl From<v1::Affinity> for AffinityView {
    fn from(affinity: v1::Affinity) -> Self {
        let preferred = affinity.preferred.into_iter().map(|label| PreferredLabelView {
            key: label.key,
            value: label.value,
            weight: label.weight,
        });
        Self {
            preferred: preferred.collect(),
            together: affinity.together,
            spread: affinity.spread,
            avoid: affinity.avoid,
            data: affinity.data,
        }
    }
}

impl AffinityView {
    /// One clause per wish.
    #[must_use]
    pub fn text(&self) -> String {
        let mut clauses: Vec<String> = Vec::new();
        let labels = self.preferred.iter().map(|label| format!("{}={} ({})", label.key, label.value, label.weight));
        let preferred: Vec<String> = labels.collect();
        if !preferred.is_empty() {
            clauses.push(format!("preferred {}", preferred.join(" ")));
        }
        if !self.together.is_empty() {
            clauses.push(format!("together by {}", self.together));
        }
        if !self.spread.is_empty() {
            clauses.push(format!("spread over {}", self.spread));
        }
        if !self.avoid.is_empty() {
            let pairs: Vec<String> = self.avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
            clauses.push(format!("not beside {}", pairs.join(" ")));
        }
        if !self.data.is_empty() {
            clauses.push(format!("reads {}", self.data.join(" ")));
        }
        clauses.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_said_in_a_line_and_nothing_is_said_of_none() {
        assert_eq!(AffinityView::default().text(), "");
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
            AffinityView::from(affinity).text(),
            "preferred rack=r1 (40); together by zone; spread over node; not beside service=web; reads imagenet"
        );
    }
}
