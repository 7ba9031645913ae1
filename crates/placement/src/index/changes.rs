//! Changes in their order, so that each of several readers can take over what it has not seen.

use super::outlines::OutlineId;

/// Changes that are remembered for every outline; who has missed more must look at all of them.
const REMEMBERED: usize = 4;

/// Changes that are remembered in any case.
const LEAST_REMEMBERED: usize = 64;

/// Outlines in the order of their changes. Changes of one outline that no reader has seen are one change.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    changed: Vec<OutlineId>,
    /// Number of the first of `changed`.
    first: usize,
    /// By outline, one more than the number of its latest change.
    latest: Vec<usize>,
    /// How many changes the reader has taken over that came last: no reader has seen a later one.
    seen: usize,
}

impl Changes {
    /// The number of changes so far.
    pub(super) fn end(&self) -> usize {
        self.first + self.changed.len()
    }

    /// Notes that a reader takes over all changes so far; answers their number.
    pub(super) fn read(&mut self) -> usize {
        self.seen = self.end();
        self.seen
    }

    /// Notes a change, unless the outline has one that no reader has seen.
    pub(super) fn push(&mut self, id: OutlineId) {
        if self.latest.len() <= id.0 {
            self.latest.resize(id.0 + 1, 0);
        }
        if self.latest[id.0] > self.seen {
            return;
        }
        if self.changed.len() >= REMEMBERED * self.latest.len() + LEAST_REMEMBERED {
            self.forget();
        }
        self.changed.push(id);
        self.latest[id.0] = self.end();
    }

    /// Notes that everything has changed: whoever reads next must look at all outlines.
    pub(super) fn all(&mut self) {
        self.forget();
        self.first += 1;
    }

    /// Forgets all changes: readers that have not seen them must look at all outlines.
    fn forget(&mut self) {
        self.first = self.end();
        self.changed.clear();
    }

    /// The outlines that changed since a reader took over `seen` changes, each once; `None` when not all are remembered.
    pub(super) fn since(&self, seen: usize) -> Option<impl Iterator<Item = OutlineId>> {
        let missed = self.changed.get(seen.checked_sub(self.first)?..)?;
        let numbered = (seen + 1..).zip(missed.iter().copied());
        Some(numbered.filter(|(number, id)| self.latest[id.0] == *number).map(|(_, id)| id))
    }
}
