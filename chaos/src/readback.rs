//! The check that nothing acknowledged is lost and nothing is doubled: what the system holds at the end against what it
//! had acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// A write as the client knows it and as the system gave it back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Name that the client gave the write: a request id, a key.
    pub name: String,
    /// Identity that the system gave the write: a job id, a revision.
    pub id: u64,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Acknowledged writes that are not there, or are there under another id.
    pub lost: usize,
    /// Writes that are there more than once, or ids that were acknowledged for more than one write.
    pub duplicated: usize,
    /// Writes that are there without having been acknowledged: their clients were told that the outcome is unknown.
    pub unacknowledged: usize,
}

/// Compares what was acknowledged with what is there.
#[must_use]
pub fn compare(acknowledged: &[Written], there: &[Written]) -> Findings {
    let held: BTreeSet<&Written> = there.iter().collect();
    let names: BTreeSet<&str> = acknowledged.iter().map(|one| one.name.as_str()).collect();
    Findings {
        lost: acknowledged.iter().filter(|one| !held.contains(one)).count(),
        duplicated: repeated(there.iter().map(|one| one.name.as_str()))
            + repeated(acknowledged.iter().map(|one| one.id)),
        unacknowledged: there.iter().filter(|one| !names.contains(one.name.as_str())).count(),
    }
}

/// Counts the `keys` that are repetitions of another one.
fn repeated<K: Ord>(keys: impl Iterator<Item = K>) -> usize {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts.into_values().map(|count| count - 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pairs: &[(&str, u64)]) -> Vec<Written> {
        pairs.iter().map(|(name, id)| Written { name: (*name).to_owned(), id: *id }).collect()
    }

    #[test]
    fn what_is_there_as_acknowledged_is_fine() {
        let acknowledged = written(&[("a", 1), ("b", 2)]);
        assert_eq!(compare(&acknowledged, &acknowledged), Findings::default());
    }

    #[test]
    fn each_kind_of_damage_is_found() {
        let acknowledged = written(&[("a", 1), ("b", 2), ("c", 3)]);
        let lost = compare(&acknowledged, &written(&[("a", 1), ("b", 2)]));
        assert_eq!(lost, Findings { lost: 1, ..Findings::default() });
        let doubled = compare(&acknowledged, &written(&[("a", 1), ("b", 2), ("c", 3), ("c", 4)]));
        assert_eq!(doubled, Findings { duplicated: 1, ..Findings::default() });
        let unknown = compare(&acknowledged, &written(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]));
        assert_eq!(unknown, Findings { unacknowledged: 1, ..Findings::default() });
    }

    #[test]
    fn an_id_given_twice_is_a_loss_and_a_doubling() {
        let acknowledged = written(&[("a", 1), ("b", 1)]);
        let findings = compare(&acknowledged, &written(&[("a", 1)]));
        assert_eq!(findings, Findings { lost: 1, duplicated: 1, unacknowledged: 0 });
    }
}
