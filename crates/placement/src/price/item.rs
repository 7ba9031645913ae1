//! Items: the requests of the observed mix, compiled against the classes of cards.

use super::grid::Grid;
use super::lanes::Lanes;
use super::table::Use;
use crate::demand::{Demand, Offer};
use crate::index::class::ClassKey;

/// Bits behind the point of an item's price.
pub(crate) const POINT: u32 = 12;

/// Most different requests that take part; rarer ones are left out.
pub(crate) const MOST_ITEMS: usize = 512;

/// A request of the mix.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// What one more of it is worth, with [`POINT`] bits behind the point.
    pub(crate) price: i64,
    /// Its price at the start: the compute it asks for, and a little for its part of the host.
    pub(crate) nominal: i64,
    /// What its part of the host costs in every lane.
    pub(crate) host: Lanes,
}

/// The weights of all items together, nearly.
pub(crate) const WHOLE_MIX: u64 = 1 << 20;

/// The grids of a class, fine enough for the demands.
pub(crate) fn grids(key: &ClassKey, offers: &[Option<&Offer>], demands: &[&Demand]) -> (Grid, Grid) {
    let blocks = offers.iter().flatten().map(|offer| u64::from(offer.need));
    let asking = demands.iter().zip(offers).filter(|(demand, offer)| offer.is_some() && demand.memory > 0);
    (Grid::new(u64::from(key.blocks), blocks), Grid::new(key.class.memory.0, asking.map(|(demand, _)| demand.memory)))
}

/// What a demand takes of a class, in its steps.
pub(crate) fn use_of(
    demand: &Demand,
    offer: Option<&Offer>,
    (compute, memory): (Grid, Grid),
    most_cards: usize,
) -> Use {
    let Some(offer) = offer else { return Use::None };
    let by_memory = demand.memory.div_ceil(offer.memory.max(1)).max(1);
    let cards = u64::from(offer.need.div_ceil(offer.blocks.max(1))).max(by_memory);
    let cards = usize::try_from(cards).unwrap_or(usize::MAX);
    match cards > 1 || demand.whole {
        true if cards <= most_cards => Use::Whole(cards),
        true => Use::None,
        false => {
            let (compute, memory) = (compute.taken(u64::from(offer.need)), memory.taken(demand.memory));
            Use::Part { compute, memory }
        }
    }
}
