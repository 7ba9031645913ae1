//! Which members hold a line for heartbeats open to this one: a process that has ended holds none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::MemberId;

/// The newest line of each member. An older one may have died without a word, and tells nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLines(Arc<Mutex<Newest>>);

#[derive(Debug, Default)]
struct Newest {
    opened: u64,
    by_member: BTreeMap<MemberId, u64>,
}

/// A line that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenLine {
    lines: OpenLines,
    member: MemberId,
    number: u64,
}

impl OpenLines {
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, member: MemberId) -> OpenLine {
        let mut newest = self.newest();
        newest.opened += 1;
        let number = newest.opened;
        newest.by_member.insert(member, number);
        OpenLine { lines: self.clone(), member, number }
    }

    /// Returns whether the newest line of a member is open.
    pub(crate) fn is_open(&self, member: MemberId) -> bool {
        self.newest().by_member.contains_key(&member)
    }
}

impl Drop for OpenLine {
    fn drop(&mut self) {
        let mut newest = self.lines.newest();
        if newest.by_member.get(&self.member) == Some(&self.number) {
            newest.by_member.remove(&self.member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_line_of_a_member_counts() {
        let (lines, member) = (OpenLines::default(), MemberId(1));
        let forgotten = lines.open(member);
        let newest = lines.open(member);
        drop(newest);
        assert!(!lines.is_open(member), "the older one died without a word");
        let next = lines.open(member);
        drop(forgotten);
        assert!(lines.is_open(member) && !lines.is_open(MemberId(2)));
        drop(next);
        assert!(!lines.is_open(member));
    }
}
