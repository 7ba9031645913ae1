//! Placement preferences and constraints of a job's workers.

use std::collections::{BTreeMap, BTreeSet};

use crate::checks::{LABEL_LIMIT, WEIGHT_LIMIT, check_data_name, check_name};
use crate::rejection::Rejection;

/// Distribution of virtual cards over the cards and nodes of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// Beside what runs already, so that whole cards and nodes stay free.
    #[default]
    Stack,
    /// Over cards and nodes that have the most room, so that jobs disturb each other least.
    Spread,
}

/// A node label that is better to have than not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredLabel {
    pub key: String,
    pub value: String,
    /// Weight of the label relative to the others, 1 to 100.
    pub weight: u32,
}

/// Placement preferences and constraints of a job's workers. The ledger stores them for placement and does not check
/// allocations against them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    /// Node labels that are better to have than not.
    pub preferred: Vec<PreferredLabel>,
    /// Key of a node label of which all workers must have the same value; `node`: one node; empty: none.
    pub together: String,
    /// Key of a node label over whose values workers are spread as far as they can be; empty: none.
    pub spread: String,
    /// Labels of jobs: no worker on a node that runs another job that carries all of them; empty: none.
    pub avoid: BTreeMap<String, String>,
    /// Names of data sets, model weights and images that it will read.
    pub data: BTreeSet<String>,
}

impl Affinity {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { preferred, together, spread, avoid, data } = self;
        preferred.is_empty() && together.is_empty() && spread.is_empty() && avoid.is_empty() && data.is_empty()
    }

    /// Refuses what no ledger may hold.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        let Self { preferred, together, spread, avoid, data } = self;
        let counts = [
            ("spec.affinity.preferred", preferred.len()),
            ("spec.affinity.avoid", avoid.len()),
            ("spec.affinity.data", data.len()),
        ];
        for (field, count) in counts {
            if count > LABEL_LIMIT {
                return Err(Rejection::invalid(field, format!("must be at most {LABEL_LIMIT}")));
            }
        }
        for (place, label) in preferred.iter().enumerate() {
            check_name(&format!("spec.affinity.preferred[{place}].key"), &label.key)?;
            if label.weight == 0 || label.weight > WEIGHT_LIMIT {
                let field = format!("spec.affinity.preferred[{place}].weight");
                return Err(Rejection::invalid(field, format!("must be 1 to {WEIGHT_LIMIT}")));
            }
        }
        for (field, key) in [("spec.affinity.together", together), ("spec.affinity.spread", spread)] {
            if !key.is_empty() {
                check_name(field, key)?;
            }
        }
        if !together.is_empty() && together == spread {
            return Err(Rejection::invalid("spec.affinity.spread", "must be another key than spec.affinity.together"));
        }
        avoid.keys().try_for_each(|key| check_name("spec.affinity.avoid", key))?;
        data.iter().try_for_each(|name| check_data_name("spec.affinity.data", name))
    }
}
