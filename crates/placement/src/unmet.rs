//! Why a job waits that has wishes which must be met, or needs much of its hosts: whether it would fit without that.

use std::sync::Arc;

use tessera_ledger::{Affinity, HostRequest, Mebibytes, MilliCpus, State};

use crate::demand::Demand;
use crate::fit::fits;
use crate::index::Index;
use crate::reserve;
use crate::why::{Explanation, WaitCode};

/// Lets go of the jobs that are avoided.
const AVOID: fn(&mut Affinity) = |affinity| affinity.avoid.clear();
/// Lets go of the label that all workers share.
const TOGETHER: fn(&mut Affinity) = |affinity| affinity.together.clear();

/// The wish that alone keeps a job from starting; `None` when the pool has too little for it anyway.
pub(crate) fn explain(index: &mut Index, demand: &Demand) -> Option<Explanation> {
    if !demand.has_hard_wishes() {
        return None;
    }
    let mut without = |gone: &[fn(&mut Affinity)]| {
        let softened = demand.changed(|demand| gone.iter().for_each(|gone| gone(Arc::make_mut(&mut demand.affinity))));
        fits(index, &softened)
    };
    let avoid: Vec<String> = demand.affinity.avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !avoid.is_empty() && without(&[AVOID]) {
        let text = format!(
            "there is room for it, but only on nodes that run a job with the labels {}, which it avoids",
            avoid.join(", ")
        );
        return Some(
            Explanation::new(WaitCode::Affinity, text)
                .changed_by("leave out affinity.avoid, or wait until those jobs end"),
        );
    }
    let key = demand.affinity.together.clone();
    if !key.is_empty() && without(&[TOGETHER]) {
        let text =
            format!("there is room for it, but not for all its workers on nodes with one value of the label {key:?}");
        let change = "leave out affinity.together, or ask for fewer or smaller virtual cards";
        return Some(Explanation::new(WaitCode::Affinity, text).changed_by(change));
    }
    let text = format!(
        "there is room for it, but not together by the label {key:?} and away from jobs with the labels {}",
        avoid.join(", ")
    );
    let both = without(&[AVOID, TOGETHER]);
    both.then(|| Explanation::new(WaitCode::Affinity, text).changed_by("leave out affinity.together or affinity.avoid"))
}

/// Whether a job can never start in this pool because its workers must be together: no value of the label has room for
/// all of them even if all other work ended, but the pool has.
pub(crate) fn is_never_together(index: &Index, state: &State, demand: &Demand) -> bool {
    let anywhere = || demand.changed(|demand| TOGETHER(Arc::make_mut(&mut demand.affinity)));
    !demand.affinity.together.is_empty()
        && !reserve::could_hold(index, state, demand)
        && reserve::could_hold(index, state, &anywhere())
}

/// That it can never start for that.
pub(crate) fn never_together(demand: &Demand) -> Explanation {
    let key = demand.affinity.together.as_str();
    let text = format!(
        "the nodes with any one value of the label {key:?} would not hold all its workers if all other work on them ended; waiting does \
         not help"
    );
    Explanation::new(WaitCode::Affinity, text)
        .changed_by("leave out affinity.together, ask for fewer or smaller virtual cards, or add or uncordon nodes")
}

/// What hosts lack, where cards would do; `None` when the cards have too little anyway.
pub(crate) fn host_shortage(index: &mut Index, demand: &Demand) -> Option<Explanation> {
    if demand.host.is_zero() || !fits(index, &demand.changed(|demand| demand.host = HostRequest::ZERO)) {
        return None;
    }
    let accepted = index.nodes().filter(|(_, node)| {
        let has_card = node.cards.iter().any(|card| demand.offer_of(card.class).is_some());
        has_card && node.node.as_ref().is_some_and(|node| node.grantable() && demand.accepts(node))
    });
    let (cpu, memory) = accepted
        .filter_map(|(_, node)| node.host)
        .fold((0, 0), |(cpu, memory), host| (host.cpu.max(cpu), host.memory.max(memory)));
    let HostRequest { cpu: needed_cpu, memory: needed_memory } = demand.host;
    let text = format!(
        "there is room for it on cards, but each worker needs {needed_cpu} and {needed_memory} of its host, and the hosts with a card \
         for it have at most {} and {} left",
        MilliCpus(cpu),
        Mebibytes(memory),
    );
    Some(
        Explanation::new(WaitCode::HostShort, text)
            .with("needed_milli_cpus", needed_cpu.0)
            .with("best_milli_cpus", cpu)
            .with("needed_host_memory", needed_memory.0)
            .with("best_host_memory", memory)
            .changed_by("ask for less of the host, or wait until other jobs there end"),
    )
}
