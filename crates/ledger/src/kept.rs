//! A persistent map that notes which of its values have changed since the digest of the state was brought up to date,
//! so that no change can be forgotten there: there is no other way to change the map.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Deref;

use crate::state::PersistentMap;

/// Something of the state that snapshots keep.
pub(crate) trait Recorded<K> {
    /// The hash of the records that snapshots keep of it.
    fn hash_of_records(&self, key: &K) -> u128;
}

#[derive(Clone, Debug)]
pub(crate) struct Kept<K: Ord + Clone, V: Clone> {
    map: PersistentMap<K, V>,
    /// The changed keys, each with the hash of its records before; zero: it was not there.
    changed: BTreeMap<K, u128>,
    /// True if changes are noted.
    watched: bool,
}

impl<K: Ord + Clone, V: Clone> Default for Kept<K, V> {
    fn default() -> Self {
        Self { map: PersistentMap::new(), changed: BTreeMap::new(), watched: false }
    }
}

impl<K: Ord + Clone, V: Clone> From<PersistentMap<K, V>> for Kept<K, V> {
    fn from(map: PersistentMap<K, V>) -> Self {
        Self { map, ..Self::default() }
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for Kept<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(things: I) -> Self {
        PersistentMap::from_iter(things).into()
    }
}

impl<K: Ord + Clone, V: Clone> Deref for Kept<K, V> {
    type Target = PersistentMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<K: Ord + Clone, V: Clone + Recorded<K>> Kept<K, V> {
    fn note(&mut self, key: &K) {
        if self.watched && !self.changed.contains_key(key) {
            let before = self.hash_at(key);
            self.changed.insert(key.clone(), before);
        }
    }

    fn hash_at(&self, key: &K) -> u128 {
        self.map.get(key).map_or(0, |value| value.hash_of_records(key))
    }

    pub(crate) fn insert_cow(&mut self, key: K, value: V) -> Option<V> {
        self.note(&key);
        self.map.insert_cow(key, value)
    }

    pub(crate) fn remove_cow(&mut self, key: &K) -> Option<V> {
        self.note(key);
        self.map.remove_cow(key)
    }

    pub(crate) fn get_mut_cow<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ToOwned<Owned = K> + ?Sized,
    {
        if self.watched {
            self.note(&key.to_owned());
        }
        self.map.get_mut_cow(key)
    }

    /// The number of values that have changed since the digest was brought up to date.
    pub(crate) fn changes(&self) -> usize {
        self.changed.len()
    }

    /// The difference that the changes make to the sum of the hashes.
    pub(crate) fn added(&self) -> u128 {
        self.changed.iter().fold(0, |sum, (key, before)| sum.wrapping_add(self.hash_at(key)).wrapping_sub(*before))
    }

    /// The same, which is counted from now on.
    pub(crate) fn settle(&mut self) -> u128 {
        let added = self.added();
        self.changed.clear();
        added
    }

    /// The sum of the hashes of everything; changes are noted from now on.
    pub(crate) fn watch(&mut self) -> u128 {
        self.watched = true;
        self.changed.clear();
        self.map.into_iter().fold(0, |sum, (key, value)| sum.wrapping_add(value.hash_of_records(key)))
    }
}
