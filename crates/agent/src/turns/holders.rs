//! The workers on a card, and whether they can take turns there.

use std::collections::{BTreeMap, BTreeSet};

use super::rounds::Tenant;
use crate::cgroup::GroupRecord;
use crate::worker::WorkerId;

/// The workers of a node that compute.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    /// Blocks of each card, by its index.
    pub blocks: BTreeMap<u32, u32>,
    pub workers: Vec<Holder>,
}

/// A worker that computes.
#[derive(Clone, Debug)]
pub struct Holder {
    pub worker: WorkerId,
    pub job: u64,
    pub group: GroupRecord,
    /// Its runs of blocks on this node: card, first block, blocks.
    pub blocks: Vec<(u32, u32, u32)>,
    /// True if the worker takes time that others do not use.
    pub elastic: bool,
}

/// The workers of one card.
#[derive(Clone, Debug, Default)]
pub struct OnCard {
    /// Blocks of the card.
    pub blocks: u32,
    /// The workers that take turns there, with their control groups.
    pub tenants: Vec<(Tenant, GroupRecord)>,
}

impl Holders {
    /// Selects the workers on a card; `sliced` are the cards on which turns are taken.
    ///
    /// # Errors
    /// The sentence that says why they cannot take turns and compete: one would have to stand still for several cards
    /// at once, or cannot be made to.
    pub fn on_card(&self, card: u32, sliced: &BTreeSet<u32>) -> Result<OnCard, String> {
        let mut on_card = OnCard { blocks: self.blocks.get(&card).copied().unwrap_or(0), tenants: Vec::new() };
        for holder in &self.workers {
            let run = |(on, start, count): &(u32, u32, u32)| (*on == card).then_some((*start, *count));
            let blocks: Vec<(u32, u32)> = holder.blocks.iter().filter_map(run).collect();
            if blocks.is_empty() {
                continue;
            }
            if holder.blocks.iter().any(|(on, ..)| *on != card && sliced.contains(on)) {
                return Err(format!("job {} holds slices of several cards on which turns are taken", holder.job));
            }
            if holder.group.tracking.is_none() {
                return Err(format!("the worker of job {} has no control group that can be frozen", holder.job));
            }
            let tenant = Tenant { worker: holder.worker, blocks, elastic: holder.elastic };
            on_card.tenants.push((tenant, holder.group.clone()));
        }
        Ok(on_card)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tessera_ledger::{AllocationId, Epoch, Rank};

    use super::*;
    use crate::cgroup::Version;

    fn holder(number: u64, blocks: &[(u32, u32, u32)]) -> Holder {
        let tracking = Some((PathBuf::from("/group"), Version::V2));
        Holder {
            worker: WorkerId { allocation: AllocationId(number), epoch: Epoch(1), rank: Rank(0) },
            job: number,
            group: GroupRecord { tracking, ..GroupRecord::default() },
            blocks: blocks.to_vec(),
            elastic: false,
        }
    }

    fn holders(workers: Vec<Holder>) -> Holders {
        Holders { blocks: [(0, 16), (1, 16), (2, 8)].into(), workers }
    }

    #[test]
    fn a_card_has_the_turns_of_those_that_hold_something_of_it() {
        let here = holders(vec![holder(1, &[(0, 0, 4), (0, 8, 4)]), holder(2, &[(1, 0, 16)]), holder(3, &[(2, 0, 1)])]);
        let sliced = BTreeSet::from([0, 1]);
        let first = here.on_card(0, &sliced).expect("they take turns");
        assert_eq!((first.blocks, first.tenants.len()), (16, 1));
        assert_eq!(first.tenants[0].0.blocks, [(0, 4), (8, 4)]);
    }

    #[test]
    fn who_cannot_stand_still_for_one_card_only_makes_all_of_them_compete() {
        let sliced = BTreeSet::from([0, 1]);
        let wide = holders(vec![holder(1, &[(0, 0, 4)]), holder(7, &[(0, 4, 4), (1, 0, 4)])]);
        let why = wide.on_card(0, &sliced).expect_err("they compete");
        assert!(why.contains("job 7"), "{why}");
        assert!(wide.on_card(0, &BTreeSet::from([0])).is_ok(), "on the other card nobody has to stand still");
        let mut loose = holder(5, &[(0, 0, 4)]);
        loose.group = GroupRecord::default();
        assert!(holders(vec![loose]).on_card(0, &sliced).is_err_and(|why| why.contains("job 5")));
    }
}
