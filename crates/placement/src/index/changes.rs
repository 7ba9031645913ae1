//! Changes in their order, so that each of several readers can take over what it has not seen.

/// Changes that are remembered for every thing; who has missed more must look at all of them.
const REMEMBERED: usize = 4;

/// Changes that are remembered in any case.
const LEAST_REMEMBERED: usize = 64;

/// The count of changes seen by a reader that has looked at nothing so far.
pub(crate) const NOTHING: usize = usize::MAX;

/// Things, by their positions, in the order of their changes. Changes of one thing that no reader has seen are
/// one change.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    changed: Vec<usize>,
    /// Number of the first of `changed`.
    first: usize,
    /// By position, one more than the number of the latest change.
    latest: Vec<usize>,
    /// Number of changes taken over by the reader that came last: no reader has seen a later one.
    seen: usize,
}

impl Changes {
    fn end(&self) -> usize {
        self.first + self.changed.len()
    }

    /// Notes a change, unless there is one of the same thing that no reader has seen.
    pub(super) fn push(&mut self, position: usize) {
        if self.latest.len() <= position {
            self.latest.resize(position + 1, 0);
        }
        if self.latest[position] > self.seen {
            return;
        }
        if self.changed.len() >= REMEMBERED * self.latest.len() + LEAST_REMEMBERED {
            self.forget();
        }
        self.changed.push(position);
        self.latest[position] = self.end();
    }

    /// Notes that everything has changed: whoever reads next must look at all things.
    pub(super) fn all(&mut self) {
        self.forget();
        self.first += 1;
    }

    /// Forgets all changes: readers that have not seen them must look at all things.
    fn forget(&mut self) {
        self.first = self.end();
        self.changed.clear();
    }

    /// Returns whether all changes that a reader has not seen are remembered.
    pub(super) fn are_known_since(&self, seen: usize) -> bool {
        (self.first..=self.end()).contains(&seen)
    }

    /// Takes over for a reader what changed since it was here last, each thing once; all `count` things when not all
    /// changes are remembered.
    pub(super) fn take<'a>(&'a mut self, seen: &mut usize, count: usize) -> impl Iterator<Item = usize> + use<'a> {
        self.seen = self.end();
        let before = std::mem::replace(seen, self.seen);
        let known = self.are_known_since(before);
        let missed = if known { &self.changed[before - self.first..] } else { &[] };
        let numbered = (before.wrapping_add(1)..).zip(missed.iter().copied());
        let latest = numbered.filter(|(number, position)| self.latest[*position] == *number);
        latest.map(|(_, position)| position).chain(if known { 0..0 } else { 0..count })
    }
}
