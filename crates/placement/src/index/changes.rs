//! Changes in their order, so that each of several readers can take over what it has not seen.

/// Changes that are remembered for every thing; who has missed more must look at all of them.
const REMEMBERED: usize = 4;

/// What a reader has seen that has looked at nothing so far.
pub(crate) const NOTHING: usize = usize::MAX;

/// Changes that are remembered in any case.
const LEAST_REMEMBERED: usize = 64;

/// Things, by their positions, in the order of their changes. Changes of one thing that no reader has seen are
/// one change.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    changed: Vec<usize>,
    /// Number of the first of `changed`.
    first: usize,
    /// By position, one more than the number of the latest change.
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

    /// Takes over for a reader what changed since it was here last, each thing once; all `count` things when not all
    /// changes are remembered.
    pub(super) fn take<'a>(&'a mut self, seen: &mut usize, count: usize) -> impl Iterator<Item = usize> + use<'a> {
        let before = std::mem::replace(seen, self.read());
        let changed = self.since(before);
        let all = if changed.is_some() { 0..0 } else { 0..count };
        changed.into_iter().flatten().chain(all)
    }

    /// What changed since a reader took over `seen` changes, each thing once; `None` when not all changes
    /// are remembered.
    pub(super) fn since(&self, seen: usize) -> Option<impl Iterator<Item = usize>> {
        let missed = self.changed.get(seen.checked_sub(self.first)?..)?;
        let numbered = (seen + 1..).zip(missed.iter().copied());
        Some(numbered.filter(|(number, position)| self.latest[*position] == *number).map(|(_, position)| position))
    }
}
