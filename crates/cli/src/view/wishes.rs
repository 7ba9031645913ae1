//! The requests of a job beside its virtual cards: a share of its hosts, and places.

use tessera_api::v1;

use super::shown::Shown;

/// A share of a host, or a whole one.
pub type HostView = Shown<v1::HostRequest>;

impl From<v1::HostCapacity> for HostView {
    fn from(host: v1::HostCapacity) -> Self {
        v1::HostRequest { milli_cpus: host.milli_cpus, memory_mib: host.memory_mib }.into()
    }
}

impl HostView {
    pub(super) fn cpus(&self) -> f64 {
        self.milli_cpus as f64 / 1000.0
    }

    /// `1.5 CPUs, 2048 MiB`; nothing when nothing is asked for.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.milli_cpus > 0 {
            parts.push(format!("{} CPUs", self.cpus()));
        }
        if self.memory_mib > 0 {
            parts.push(format!("{} MiB", self.memory_mib));
        }
        parts.join(", ")
    }
}

/// The places that a job's workers prefer, and those they must not be in: one clause per wish.
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
        assert_eq!(
            HostView::from(v1::HostRequest { milli_cpus: 1_500, memory_mib: 2048 }).text(),
            "1.5 CPUs, 2048 MiB"
        );
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
