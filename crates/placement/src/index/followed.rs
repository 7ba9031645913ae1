//! The labels that tell nodes apart: those that a request has asked for. Every node may carry a label that no other one
//! has, such as its name; as long as nobody asks for it, that makes no difference to anybody.

use std::collections::BTreeMap;

use super::Index;
use super::node::NodeEntry;

/// Most labels that are followed at a time. When there are more, all are forgotten, and followed again as they are
/// asked for.
const MOST_FOLLOWED: usize = 1024;

/// A label that is followed, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelId(u64);

/// The labels that are followed, by key and value.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    known: BTreeMap<String, BTreeMap<String, LabelId>>,
    count: usize,
    next: u64,
}

impl Followed {
    fn get(&self, key: &str, value: &str) -> Option<LabelId> {
        self.known.get(key)?.get(value).copied()
    }

    /// Those of some labels that are followed.
    pub(super) fn of(&self, labels: &BTreeMap<String, String>) -> Vec<LabelId> {
        let mut followed: Vec<LabelId> = labels.iter().filter_map(|(key, value)| self.get(key, value)).collect();
        followed.sort_unstable();
        followed
    }

    fn add(&mut self, key: &str, value: &str) -> LabelId {
        let id = LabelId(self.next);
        (self.next, self.count) = (self.next + 1, self.count + 1);
        self.known.entry(key.to_owned()).or_default().insert(value.to_owned(), id);
        id
    }
}

impl Index {
    /// From now on nodes that carry one of these labels look different from those that do not. Costs as much as there
    /// are nodes that carry those that were not followed.
    pub(crate) fn follow(&mut self, labels: &BTreeMap<String, String>) {
        let new = labels.iter().filter(|(key, value)| self.followed.get(key, value).is_none()).count();
        if new > 0 && self.followed.count + new > MOST_FOLLOWED {
            self.follow_none();
        }
        for (key, value) in labels {
            if self.followed.get(key, value).is_some() {
                continue;
            }
            let id = self.followed.add(key, value);
            for node in self.carriers.of_label(key, value) {
                self.nodes[node.0 as usize].followed.push(id);
                self.changes.push(node.0 as usize);
            }
        }
    }

    fn follow_none(&mut self) {
        for (key, values) in std::mem::take(&mut self.followed.known) {
            for node in values.keys().flat_map(|value| self.carriers.of_label(&key, value)) {
                self.nodes[node.0 as usize].followed.clear();
                self.changes.push(node.0 as usize);
            }
        }
        self.followed.count = 0;
    }

    /// Takes over which of the followed labels a node carries now.
    pub(super) fn read_followed(&mut self, position: usize) {
        let NodeEntry { node, followed, .. } = &mut self.nodes[position];
        *followed = node.as_ref().map_or_else(Vec::new, |node| self.followed.of(&node.description.labels));
    }
}
