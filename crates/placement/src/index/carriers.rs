//! Which nodes carry a label or have data on their disks, so that they are found without looking at all nodes.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{NODE_KEY, Node, NodeId};

/// Nodes by the value of something.
type Values = BTreeMap<String, BTreeSet<NodeId>>;

/// Nodes by what they carry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    labels: BTreeMap<String, Values>,
    names: Values,
    data: Values,
}

static NONE: BTreeSet<NodeId> = BTreeSet::new();

impl Carriers {
    /// The nodes that carry a label.
    pub(crate) fn of_label(&self, key: &str, value: &str) -> &BTreeSet<NodeId> {
        self.labels.get(key).and_then(|values| values.get(value)).unwrap_or(&NONE)
    }

    /// The same as wishes mean it: each node carries its name as the label [`NODE_KEY`].
    pub(crate) fn of_wish(&self, key: &str, value: &str) -> &BTreeSet<NodeId> {
        if key == NODE_KEY { self.names.get(value).unwrap_or(&NONE) } else { self.of_label(key, value) }
    }

    /// The nodes that have something on their disks.
    pub(crate) fn of_data(&self, name: &str) -> &BTreeSet<NodeId> {
        self.data.get(name).unwrap_or(&NONE)
    }

    /// The nodes among which all are that carry these labels: those that carry the rarest of them. `None`: no label is
    /// asked for.
    pub(crate) fn of_rarest(&self, labels: &BTreeMap<String, String>) -> Option<&BTreeSet<NodeId>> {
        labels.iter().map(|(key, value)| self.of_label(key, value)).min_by_key(|nodes| nodes.len())
    }

    /// Takes over what a node carries now; costs as much as is different.
    pub(super) fn update(&mut self, id: NodeId, before: Option<&Node>, now: Option<&Node>) {
        let [before, now] = [before, now].map(|node| node.map(|node| &node.description));
        let name = |of: Option<&tessera_ledger::NodeDescription>| of.map(|of| of.name.clone());
        let (old, new) = (name(before), name(now));
        if old != new {
            old.iter().for_each(|name| remove(&mut self.names, name, id));
            new.into_iter().for_each(|name| insert(&mut self.names, &name, id));
        }
        let (none, nothing) = (BTreeMap::new(), BTreeSet::new());
        let [old, new] = [before, now].map(|of| of.map_or(&none, |of| &of.labels));
        for (key, value) in old.iter().filter(|(key, value)| new.get(*key) != Some(value)) {
            if let Some(values) = self.labels.get_mut(key) {
                remove(values, value, id);
                if values.is_empty() {
                    self.labels.remove(key);
                }
            }
        }
        for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(value)) {
            insert(self.labels.entry(key.clone()).or_default(), value, id);
        }
        let [old, new] = [before, now].map(|of| of.map_or(&nothing, |of| &of.cached));
        old.difference(new).for_each(|name| remove(&mut self.data, name, id));
        new.difference(old).for_each(|name| insert(&mut self.data, name, id));
    }
}

fn insert(values: &mut Values, value: &str, id: NodeId) {
    values.entry(value.to_owned()).or_default().insert(id);
}

fn remove(values: &mut Values, value: &str, id: NodeId) {
    if let Some(nodes) = values.get_mut(value) {
        nodes.remove(&id);
        if nodes.is_empty() {
            values.remove(value);
        }
    }
}
