//! Nodes by the labels they carry and the data on their disks, to be found without looking at all nodes.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{NODE_KEY, Node, NodeId};

/// Something of which nodes carry a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Label(String),
    Name,
    Data,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    /// Nodes by the attribute, and the value of it, that they carry.
    nodes: BTreeMap<(What, String), BTreeSet<NodeId>>,
}

static NONE: BTreeSet<NodeId> = BTreeSet::new();

/// A label as requests mean it: each node carries its name as the label [`NODE_KEY`].
fn asked(key: &str, value: &str) -> (What, String) {
    let what = if key == NODE_KEY { What::Name } else { What::Label(key.to_owned()) };
    (what, value.to_owned())
}

impl Carriers {
    fn of(&self, what: &(What, String)) -> &BTreeSet<NodeId> {
        self.nodes.get(what).unwrap_or(&NONE)
    }

    /// The nodes that carry a label.
    pub(crate) fn of_label(&self, key: &str, value: &str) -> &BTreeSet<NodeId> {
        self.of(&asked(key, value))
    }

    /// The nodes that have something on their disks.
    pub(crate) fn of_data(&self, name: &str) -> &BTreeSet<NodeId> {
        self.of(&(What::Data, name.to_owned()))
    }

    /// The nodes among which all are that carry these labels: those that carry the rarest of them. `None`: no label is
    /// asked for.
    pub(crate) fn of_rarest(&self, labels: &BTreeMap<String, String>) -> Option<&BTreeSet<NodeId>> {
        labels.iter().map(|(key, value)| self.of_label(key, value)).min_by_key(|nodes| nodes.len())
    }

    /// Takes over what a node carries now.
    pub(super) fn update(&mut self, id: NodeId, before: Option<&Node>, now: Option<&Node>) {
        let [before, now] = [before, now].map(|node| {
            let of = node.into_iter().map(|node| &node.description);
            let data = of.clone().flat_map(|of| of.cached.iter().map(|name| (What::Data, name.clone())));
            let label = |(key, value): (&String, &String)| (What::Label(key.clone()), value.clone());
            let all = of.flat_map(|of| of.labels.iter().map(label).chain([(What::Name, of.name.clone())])).chain(data);
            all.collect::<BTreeSet<_>>()
        });
        for what in before.difference(&now) {
            if let Some(nodes) = self.nodes.get_mut(what) {
                nodes.remove(&id);
                if nodes.is_empty() {
                    self.nodes.remove(what);
                }
            }
        }
        for what in now.difference(&before) {
            self.nodes.entry(what.clone()).or_default().insert(id);
        }
    }
}
