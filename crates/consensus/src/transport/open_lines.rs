//! The lines for heartbeats that other members hold open to this one: a process that has ended holds none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::MemberId;

/// Members whose closed lines are remembered: anybody can open one in the name of a member that is none.
const REMEMBERED: usize = 128;

/// The newest line of each member. An older one may have died without a word, and tells nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLines(Arc<Mutex<Newest>>);

#[derive(Debug, Default)]
struct Newest {
    opened: u64,
    by_member: BTreeMap<MemberId, Line>,
}

#[derive(Debug)]
struct Line {
    number: u64,
    is_open: bool,
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
        if newest.by_member.len() >= REMEMBERED {
            newest.by_member.retain(|_, line| line.is_open);
        }
        newest.by_member.insert(member, Line { number, is_open: true });
        OpenLine { lines: self.clone(), member, number }
    }

    /// Returns whether the newest line of a member was closed; false when it never opened one.
    pub(crate) fn is_closed(&self, member: MemberId) -> bool {
        self.newest().by_member.get(&member).is_some_and(|line| !line.is_open)
    }
}

impl Drop for OpenLine {
    fn drop(&mut self) {
        let mut newest = self.lines.newest();
        if let Some(line) = newest.by_member.get_mut(&self.member).filter(|line| line.number == self.number) {
            line.is_open = false;
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
        assert!(!lines.is_closed(member));
        drop(newest);
        assert!(lines.is_closed(member), "the older one died without a word");
        let next = lines.open(member);
        drop(forgotten);
        assert!(!lines.is_closed(member));
        drop(next);
        assert!(lines.is_closed(member) && !lines.is_closed(MemberId(2)), "the other one never had any");
    }
}
