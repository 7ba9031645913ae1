//! Policies from the literature, to stand beside Tessera's own: random, dot product, packing, best fit and FGD, as they
//! are compared in Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
//! Descent" (USENIX ATC 2023). Each places one worker at a time on the plain model.

mod best_fit;
mod dot_product;
mod fgd;
mod packing;
mod random;
mod select;

use crate::plain::{Place, PlainCluster, Request};

pub use best_fit::BestFit;
pub use dot_product::DotProduct;
pub use fgd::{Fgd, fragmented_milli};
pub use packing::Packing;
pub use random::Random;

/// Chooses where one worker goes.
pub trait Policy {
    /// A place with room for the worker; `None` only when no node has room.
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place>;

    /// A shape of work that was seen in the past, and how often; the policy may use it or not.
    fn expect(&mut self, shape: Request, weight: u64) {
        let _ = (shape, weight);
    }
}

/// The policies that can be chosen beside Tessera's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// Any node with room, any card with room.
    Random,
    /// The node whose free resources are least in line with the request.
    DotProduct,
    /// Cards in use first, then nodes in use.
    Packing,
    /// The node with the least left.
    BestFit,
    /// The node whose fragmentation grows least.
    Fgd,
}

impl Named {
    /// All, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Random, Self::DotProduct, Self::Packing, Self::BestFit, Self::Fgd];

    /// Its name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::DotProduct => "dot-product",
            Self::Packing => "packing",
            Self::BestFit => "best-fit",
            Self::Fgd => "fgd",
        }
    }

    /// A fresh policy. The seed decides random choices, and which of equally good nodes is taken where the policy
    /// leaves it open.
    #[must_use]
    pub fn make(self, seed: u64) -> Box<dyn Policy> {
        match self {
            Self::Random => Box::new(Random::new(seed)),
            Self::DotProduct => Box::new(DotProduct::new(seed)),
            Self::Packing => Box::new(Packing::new(seed)),
            Self::BestFit => Box::new(BestFit::new(seed)),
            Self::Fgd => Box::new(Fgd::new(seed)),
        }
    }
}
