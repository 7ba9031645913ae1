//! Zones: nodes that have the same value of a label, such as a rack, and what their cards have left, by class. They
//! are kept for the keys that somebody asks for. Nodes that have changed are looked at again, each once, before zones
//! are used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::NodeId;

use super::Index;
use super::changes::NOTHING;
use super::class::ClassId;
use super::node::{NodeEntry, id_at};

/// Most keys for which zones are kept; those that were not used for longest are dropped, and made anew when they are
/// asked for, which looks at every node. By its fields a key takes some 100 bytes a node, 1 MB with 10,000 nodes, and
/// a node that changes is noted for each key: so there is a bound, but above the number of labels that users ask for
/// in turn.
const MOST_KEYS: usize = 64;

/// The value of a label; `None`: nodes without it.
pub(crate) type Value = Option<Arc<str>>;

/// The nodes of one zone that have something left of a class.
#[derive(Clone, Debug, Default)]
struct Zone {
    free: u64,
    /// Nodes by free blocks, those with the most first.
    nodes: BTreeSet<(Reverse<u32>, NodeId)>,
}

/// The zones that have something left of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassZones {
    zones: BTreeMap<Value, Zone>,
    /// Zones by free blocks.
    by_free: BTreeSet<(u64, Value)>,
}

impl ClassZones {
    /// Zones with so many free blocks at least, those with the least first.
    pub(crate) fn with(&self, free: u64) -> impl DoubleEndedIterator<Item = (u64, &Value)> {
        self.by_free.range((free, None)..).map(|(free, value)| (*free, value))
    }

    /// Free blocks of a zone.
    pub(crate) fn free(&self, value: &Value) -> u64 {
        self.zones.get(value).map_or(0, |zone| zone.free)
    }

    /// The nodes of a zone that have so many free blocks at least, and how many; those with the most first.
    pub(crate) fn nodes_with(
        &self,
        value: &Value,
        free: u32,
    ) -> impl DoubleEndedIterator<Item = (u32, NodeId)> + Clone {
        let enough = ..=(Reverse(free), NodeId(u32::MAX));
        let nodes = self.zones.get(value).into_iter().flat_map(move |zone| zone.nodes.range(enough));
        nodes.map(|(Reverse(free), id)| (*free, *id))
    }

    /// Changes what a zone has left.
    fn change(&mut self, value: &Value, change: impl FnOnce(&mut Zone)) {
        let zone = self.zones.entry(value.clone()).or_default();
        let before = zone.free;
        change(zone);
        let now = zone.free;
        if zone.nodes.is_empty() {
            self.zones.remove(value);
        }
        if now != before {
            self.by_free.remove(&(before, value.clone()));
            if now > 0 {
                self.by_free.insert((now, value.clone()));
            }
        }
    }
}

/// The zone of a node, and the free blocks of the node.
#[derive(Clone, Debug, Default)]
struct NodeZone {
    value: Value,
    /// Free blocks by class.
    free: Vec<(ClassId, u32)>,
}

/// The zones of one key.
#[derive(Clone, Debug, Default)]
struct OfKey {
    /// By node.
    standing: Vec<NodeZone>,
    /// Changes of nodes that were taken over.
    seen: usize,
    /// By class.
    classes: Vec<ClassZones>,
    /// Value of `Zones::uses` at their last use.
    used: u64,
}

impl OfKey {
    fn look_at(&mut self, key: &str, id: NodeId, node: &NodeEntry) {
        let standing = &mut self.standing[id.0 as usize];
        let free = node.free_by_class();
        let value = node.node.as_ref().and_then(|node| node.description.label(key));
        if standing.value.as_deref() == value && standing.free == free {
            return;
        }
        for (class, blocks) in std::mem::replace(&mut standing.free, free) {
            self.classes[class.0].change(&standing.value, |zone| {
                zone.free -= u64::from(blocks);
                zone.nodes.remove(&(Reverse(blocks), id));
            });
        }
        if standing.value.as_deref() != value {
            standing.value = value.map(Arc::from);
        }
        for (class, blocks) in &standing.free {
            if self.classes.len() <= class.0 {
                self.classes.resize_with(class.0 + 1, ClassZones::default);
            }
            self.classes[class.0].change(&standing.value, |zone| {
                zone.free += u64::from(*blocks);
                zone.nodes.insert((Reverse(*blocks), id));
            });
        }
    }
}

/// The zones of all keys that are followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones {
    keys: BTreeMap<String, OfKey>,
    uses: u64,
}

static NONE: ClassZones = ClassZones { zones: BTreeMap::new(), by_free: BTreeSet::new() };

impl Zones {
    /// The zones of a key that have something left of a class, as of when they were settled.
    pub(crate) fn of(&self, key: &str, class: ClassId) -> &ClassZones {
        self.keys.get(key).and_then(|of_key| of_key.classes.get(class.0)).unwrap_or(&NONE)
    }
}

impl Index {
    /// Makes the zones of a key current; the first time all nodes are looked at, later those that have changed.
    pub(crate) fn settle_zones(&mut self, key: &str) {
        let Zones { keys, uses } = &mut self.zones;
        *uses += 1;
        let of_key = keys.entry(key.to_owned()).or_insert_with(|| OfKey { seen: NOTHING, ..OfKey::default() });
        of_key.used = *uses;
        of_key.standing.resize_with(self.nodes.len(), NodeZone::default);
        for position in self.changes.take(&mut of_key.seen, self.nodes.len()) {
            of_key.look_at(key, id_at(position), &self.nodes[position]);
        }
        if keys.len() > MOST_KEYS {
            let oldest = keys.iter().min_by_key(|(_, of_key)| of_key.used).map(|(key, _)| key.clone());
            oldest.map(|key| keys.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users who ask for nine labels in turn do not have all nodes looked at for each job.
    #[test]
    fn zones_of_many_keys_are_kept_but_not_of_any_number() {
        let mut index = Index::default();
        let keys: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        keys[..9].iter().for_each(|key| index.settle_zones(key));
        assert!(keys[..9].iter().all(|key| index.zones.keys.contains_key(key)));
        keys.iter().for_each(|key| index.settle_zones(key));
        let kept: BTreeSet<&String> = index.zones.keys.keys().collect();
        assert_eq!(kept, keys[200 - MOST_KEYS..].iter().collect(), "those that were asked for last");
    }
}
