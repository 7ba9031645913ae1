//! Why a job waits that has wishes which must be met: whether it would fit without them.

use std::sync::Arc;

use crate::demand::Demand;
use crate::index::Index;
use crate::why::{Explanation, WaitCode, fits};

/// The wish that alone keeps a job from starting; `None` when the pool has too little for it anyway.
pub(crate) fn explain(index: &mut Index, demand: &Demand) -> Option<Explanation> {
    if !demand.wishes.are_hard() {
        return None;
    }
    let mut without = |wishes| fits(index, &Demand { wishes: Arc::new(wishes), ..demand.clone() });
    let avoid: Vec<String> = demand.wishes.avoid().iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !avoid.is_empty() && without(demand.wishes.without_avoid()) {
        let text = format!(
            "there is room for it, but only on nodes that run a job with the labels {}, which it avoids",
            avoid.join(", ")
        );
        return Some(
            Explanation::new(WaitCode::Affinity, text)
                .changed_by("leave out affinity.avoid, or wait until those jobs end"),
        );
    }
    let key = demand.wishes.together().to_owned();
    if !key.is_empty() && without(demand.wishes.without_together()) {
        let text =
            format!("there is room for it, but not for all its workers on nodes with one value of the label {key:?}");
        let change = "leave out affinity.together, or ask for fewer or smaller virtual cards";
        return Some(Explanation::new(WaitCode::Affinity, text).changed_by(change));
    }
    let text = format!(
        "there is room for it, but not together by the label {key:?} and away from jobs with the labels {}",
        avoid.join(", ")
    );
    let both = without(demand.wishes.softened());
    both.then(|| Explanation::new(WaitCode::Affinity, text).changed_by("leave out affinity.together or affinity.avoid"))
}
