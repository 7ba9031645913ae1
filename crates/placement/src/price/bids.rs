//! Bids: what requests give for room. Requests of one size are rivals for the same room.

use std::collections::BTreeMap;

use super::lanes::{self, LANES, Lanes};

/// Rivals that bid up to this part less than the best get room too, the more the closer they are to it and the more
/// often they are seen. If the best got it all, each step would serve one of many that are nearly alike, and a rare
/// request that few cards can serve would go without as often as all others: its price would not tell that its cards
/// are scarce.
const CLOSE: i64 = 10;

/// Bits behind the point of what items get; rounded only once everything is divided, or a rare one would get
/// nothing anywhere.
const POINT: u32 = 18;

#[derive(Clone, Debug, Default)]
pub(crate) struct Bids {
    /// In every lane.
    pub(crate) worth: Vec<Lanes>,
    /// The frequency of each item, in parts of [`super::solve::WHOLE_MIX`].
    pub(crate) weight: Vec<i64>,
}

/// Items of one size.
#[derive(Clone, Debug)]
pub(crate) struct Rivals {
    /// Their size, in whatever is divided.
    pub(crate) size: usize,
    /// The best bid in every lane as of the last time that bids were made; not less than nothing.
    pub(crate) worth: Lanes,
    items: Vec<u16>,
}

impl Rivals {
    /// Puts items together by their size; in the order of sizes.
    pub(crate) fn by_size(items: impl Iterator<Item = (u16, usize)>) -> Vec<Self> {
        let mut sizes: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        items.for_each(|(item, size)| sizes.entry(size).or_default().push(item));
        sizes.into_iter().map(|(size, items)| Self { size, worth: [0; LANES], items }).collect()
    }

    /// Takes over what they bid.
    pub(crate) fn bid(&mut self, bids: &Bids) {
        self.worth = [0; LANES];
        for item in &self.items {
            lanes::raise(&mut self.worth, &bids.worth[usize::from(*item)]);
        }
    }

    /// Divides what they get in every lane among them, and adds it to the supply of each item; see [`rounded`].
    pub(crate) fn divide(&self, amounts: &[i64; LANES], bids: &Bids, supply: &mut [i64]) {
        for (lane, amount) in amounts.iter().enumerate().filter(|(_, amount)| **amount != 0) {
            let bid = |item: u16| i64::from(bids.worth[usize::from(item)][lane]);
            let best = self.items.iter().map(|item| bid(*item)).max().unwrap_or(0);
            let least = best - (best / CLOSE).max(1);
            let part = |item: u16| bids.weight[usize::from(item)] * (bid(item) - least).max(0);
            let all = self.items.iter().map(|item| part(*item)).sum::<i64>().max(1);
            for item in &self.items {
                supply[usize::from(*item)] += amount * ((part(*item) << POINT) / all);
            }
        }
    }
}

/// The supply of items without the bits behind the point, once everything is divided.
pub(crate) fn rounded(supply: Vec<i64>) -> Vec<i64> {
    supply.into_iter().map(|supply| supply >> POINT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of three rivals in 1,000 in the first lane, by their bids and weights.
    fn shares(bids: [i32; 3], weight: [i64; 3]) -> Vec<i64> {
        let bids = Bids { worth: bids.map(|bid| [bid; LANES]).to_vec(), weight: weight.to_vec() };
        let rivals = Rivals::by_size([(0, 5), (1, 5), (2, 5)].into_iter());
        let mut amounts = [0; LANES];
        amounts[0] = 1_000;
        let mut supply = vec![0; 3];
        rivals[0].divide(&amounts, &bids, &mut supply);
        rounded(supply)
    }

    #[test]
    fn rivals_share_by_what_they_bid_and_how_often_they_are_seen() {
        assert_eq!(shares([1_000, 1_000, 500], [1, 3, 9]), [250, 750, 0], "who bids alike, by how often");
        assert_eq!(shares([1_000, 950, 900], [1, 1, 1]), [666, 333, 0], "who bids a tenth less gets nothing");
        assert_eq!(shares([1_000, -5, 1_000], [1, 9, 1]), [500, 0, 500], "nor does who would pay less than the host");
    }

    #[test]
    fn what_is_rare_gets_its_part_of_many_small_amounts() {
        let bids = Bids { worth: vec![[1_000; LANES]; 2], weight: vec![1, 9_999] };
        let rivals = Rivals::by_size([(0, 5), (1, 5)].into_iter());
        let mut supply = vec![0; 2];
        for _ in 0..100 {
            rivals[0].divide(&[1_000; LANES], &bids, &mut supply);
        }
        let supply = rounded(supply);
        assert!((155..=160).contains(&supply[0]), "{supply:?}");
    }
}
