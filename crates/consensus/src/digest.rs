//! The newest digests of the machine's state, and what a comparison with other members says (law L8).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::ids::MemberId;
use crate::machine::LogIndex;

/// The number of digests that a member remembers: members that are this many intervals apart have none in common and
/// wait.
const KEPT: usize = 32;

/// A member's newest digests, in ascending order.
pub(crate) struct Digests(Mutex<VecDeque<(LogIndex, u128)>>);

impl Digests {
    pub(crate) fn new() -> Self {
        Digests(Mutex::new(VecDeque::with_capacity(KEPT)))
    }

    pub(crate) fn note(&self, at: LogIndex, digest: u128) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((at, digest));
    }

    pub(crate) fn newest(&self) -> Vec<(LogIndex, u128)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// The result of comparing this member's digests with those of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No two members differ at an index both have.
    Agreed,
    /// Members differ, and it is not known that this one is wrong.
    Differs { at: LogIndex, from: Vec<MemberId> },
    /// A majority of the voters agrees on another digest than this member's.
    Wrong { at: LogIndex, against: Vec<MemberId> },
}

/// Compares `own` with what the others said; `quorum` is how many members are a majority.
pub(crate) fn compare(
    own: &[(LogIndex, u128)],
    others: &BTreeMap<MemberId, Vec<(LogIndex, u128)>>,
    quorum: usize,
) -> Verdict {
    let mut differs = None;
    for (at, digest) in own.iter().rev() {
        let mut camps: BTreeMap<u128, Vec<MemberId>> = BTreeMap::new();
        for (member, digests) in others {
            if let Some((_, theirs)) = digests.iter().find(|(index, _)| index == at) {
                camps.entry(*theirs).or_default().push(*member);
            }
        }
        camps.remove(digest);
        if let Some(against) = camps.values().find(|camp| camp.len() >= quorum) {
            return Verdict::Wrong { at: *at, against: against.clone() };
        }
        if !camps.is_empty() {
            differs = Some(Verdict::Differs { at: *at, from: camps.into_values().flatten().collect() });
        }
    }
    differs.unwrap_or(Verdict::Agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64, digest: u128) -> (LogIndex, u128) {
        (LogIndex(index), digest)
    }

    fn others(digests: &[(u64, &[(LogIndex, u128)])]) -> BTreeMap<MemberId, Vec<(LogIndex, u128)>> {
        digests.iter().map(|(id, digests)| (MemberId(*id), digests.to_vec())).collect()
    }

    #[test]
    fn equal_digests_and_no_common_index_agree() {
        let own = [at(10, 1), at(20, 2)];
        let same = others(&[(2, &[at(10, 1)]), (3, &[at(20, 2), at(30, 3)])]);
        assert_eq!(compare(&own, &same, 2), Verdict::Agreed);
        assert_eq!(compare(&own, &others(&[(2, &[at(50, 9)])]), 2), Verdict::Agreed);
    }

    #[test]
    fn a_majority_that_agrees_against_us_is_right() {
        let own = [at(10, 1), at(20, 7)];
        let verdict = compare(&own, &others(&[(2, &[at(20, 2)]), (3, &[at(20, 2)])]), 2);
        assert_eq!(verdict, Verdict::Wrong { at: LogIndex(20), against: vec![MemberId(2), MemberId(3)] });
    }

    #[test]
    fn one_that_differs_is_not_a_majority() {
        let own = [at(20, 2)];
        let verdict = compare(&own, &others(&[(2, &[at(20, 2)]), (3, &[at(20, 9)])]), 2);
        assert_eq!(verdict, Verdict::Differs { at: LogIndex(20), from: vec![MemberId(3)] });
    }

    #[test]
    fn an_older_common_index_still_convicts() {
        let own = [at(10, 1), at(20, 2)];
        let verdict = compare(&own, &others(&[(2, &[at(10, 5)]), (3, &[at(10, 5)])]), 2);
        assert_eq!(verdict, Verdict::Wrong { at: LogIndex(10), against: vec![MemberId(2), MemberId(3)] });
    }

    #[test]
    fn only_the_newest_are_kept() {
        let digests = Digests::new();
        for index in 0..100 {
            digests.note(LogIndex(index), u128::from(index));
        }
        let kept = digests.newest();
        assert_eq!((kept.len(), kept[0].0), (KEPT, LogIndex(100 - KEPT as u64)));
    }
}
