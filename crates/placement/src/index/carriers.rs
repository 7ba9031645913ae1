//! Which nodes carry a label or have data on their disks, so that they are found without looking at all nodes.
//!
//! Labels that a request has asked for are *followed*: they tell nodes apart. Every node may carry a label that no
//! other one has, such as its name; as long as nobody asks for it, that makes no difference to anybody.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{NODE_KEY, Node, NodeId};

use super::Index;

/// Most labels that are followed at a time. When there are more, all are forgotten, and followed again as they are
/// asked for.
const MOST_FOLLOWED: usize = 1024;

/// A label that is followed, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelId(u64);

/// Something of which nodes carry a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Label(String),
    Name,
    Data,
}

/// Those who carry a value of something.
#[derive(Clone, Debug, Default)]
struct Carried {
    nodes: BTreeSet<NodeId>,
    followed: Option<LabelId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    values: BTreeMap<(What, String), Carried>,
    next: u64,
}

static NONE: BTreeSet<NodeId> = BTreeSet::new();

fn label((key, value): (&String, &String)) -> (What, String) {
    (What::Label(key.clone()), value.clone())
}

impl Carriers {
    fn of(&self, what: &(What, String)) -> &BTreeSet<NodeId> {
        self.values.get(what).map_or(&NONE, |carried| &carried.nodes)
    }

    /// The nodes that carry a label as wishes mean it: each node carries its name as the label [`NODE_KEY`].
    pub(crate) fn of_wish(&self, key: &str, value: &str) -> &BTreeSet<NodeId> {
        let what = if key == NODE_KEY { What::Name } else { What::Label(key.to_owned()) };
        self.of(&(what, value.to_owned()))
    }

    /// The nodes that have something on their disks.
    pub(crate) fn of_data(&self, name: &str) -> &BTreeSet<NodeId> {
        self.of(&(What::Data, name.to_owned()))
    }

    /// The nodes among which all are that carry these labels: those that carry the rarest of them. `None`: no label is
    /// asked for.
    pub(crate) fn of_rarest(&self, labels: &BTreeMap<String, String>) -> Option<&BTreeSet<NodeId>> {
        labels.iter().map(|of| self.of(&label(of))).min_by_key(|nodes| nodes.len())
    }

    /// Takes over what a node carries now; answers what of it is followed.
    pub(super) fn update(&mut self, id: NodeId, before: Option<&Node>, now: Option<&Node>) -> Vec<LabelId> {
        let [before, now] = [before, now].map(|node| {
            let of = node.into_iter().map(|node| &node.description);
            let data = of.clone().flat_map(|of| of.cached.iter().map(|name| (What::Data, name.clone())));
            let all = of.flat_map(|of| of.labels.iter().map(label).chain([(What::Name, of.name.clone())])).chain(data);
            all.collect::<BTreeSet<_>>()
        });
        for what in before.difference(&now) {
            if let Some(carried) = self.values.get_mut(what) {
                carried.nodes.remove(&id);
                if carried.nodes.is_empty() {
                    self.values.remove(what);
                }
            }
        }
        for what in now.difference(&before) {
            self.values.entry(what.clone()).or_default().nodes.insert(id);
        }
        let mut followed: Vec<LabelId> = now.iter().filter_map(|what| self.values.get(what)?.followed).collect();
        followed.sort_unstable();
        followed
    }
}

impl Index {
    /// From now on nodes that carry one of these labels look different from those that do not. Costs as much as there
    /// are nodes that carry those that were not followed.
    pub(crate) fn follow(&mut self, labels: &BTreeMap<String, String>) {
        let Carriers { values, next } = &mut self.carriers;
        let is_new = |what: &(What, String)| values.get(what).is_some_and(|carried| carried.followed.is_none());
        let new: Vec<(What, String)> = labels.iter().map(label).filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let followed = values.values().filter(|carried| carried.followed.is_some()).count();
        if followed > 0 && followed + new.len() > MOST_FOLLOWED {
            values.values_mut().for_each(|carried| carried.followed = None);
            for (position, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.followed.is_empty()) {
                node.followed.clear();
                self.changes.push(position);
            }
            return self.follow(labels);
        }
        for what in &new {
            let Some(carried) = values.get_mut(what) else { continue };
            carried.followed = Some(LabelId(*next));
            for node in &carried.nodes {
                self.nodes[node.0 as usize].followed.push(LabelId(*next));
                self.changes.push(node.0 as usize);
            }
            *next += 1;
        }
    }
}
