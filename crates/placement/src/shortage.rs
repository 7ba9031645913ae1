//! What is short when a job does not fit: compute, memory or room in one place, a wish that must be met, or its hosts;
//! and the smallest change that would start it.

use tessera_ledger::{Affinity, HostRequest, JobSpec, Mebibytes, MilliCpus, MilliTflops, Rejection, Span, State};

use crate::bisect;
use crate::demand::{Demand, Offer};
use crate::fit::fits;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::pool::Pool;
use crate::reserve;
use crate::why::{Explanation, WaitCode};

/// What the cards that a job accepts have left, together and at best in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Supply {
    compute: u64,
    memory: u64,
    best_compute: u64,
    best_memory: u64,
    nodes: u64,
}

impl Pool {
    /// Names the shortest of compute, memory and room together.
    pub(crate) fn capacity_shortage(&mut self, demand: &Demand) -> Explanation {
        let supply = supply(&self.index, demand);
        if supply.nodes == 0 {
            let labels: Vec<String> = demand.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let text = format!("no node that takes new work has a card for it and the labels {}", labels.join(", "));
            return Explanation::new(WaitCode::NoNodeWithLabels, text)
                .changed_by("ask for other labels, or uncordon nodes");
        }
        let compute = demand.compute.saturating_mul(u64::from(demand.gang));
        let memory = demand.memory.saturating_mul(u64::from(demand.gang));
        let change = self.smallest_change(demand);
        let place = match demand.span {
            Span::Card => "card",
            Span::Node => "node",
            Span::Pool => "kind of card",
        };
        let explanation = if supply.compute < compute {
            let (asked, free) = (MilliTflops(compute), MilliTflops(supply.compute));
            let missing = MilliTflops(compute - supply.compute);
            let text =
                format!("it needs {asked} and {free} is free on the cards that it accepts: {missing} too little");
            Explanation::new(WaitCode::ComputeShort, text)
        } else if supply.memory < memory {
            let missing = memory - supply.memory;
            let text = format!(
                "it needs {memory} MiB and {} MiB is free on the cards that it accepts: {missing} MiB too little",
                supply.memory
            );
            Explanation::new(WaitCode::MemoryShort, text)
        } else {
            let text = format!(
                "enough is free in all, but not together: each of its {} virtual cards needs {} and {} MiB on one {place}, \
                 and the {place} with the most has {} and {} MiB",
                demand.gang,
                MilliTflops(demand.compute),
                demand.memory,
                MilliTflops(supply.best_compute),
                supply.best_memory,
            );
            Explanation::new(WaitCode::Fragmented, text)
        };
        let explanation = explanation
            .with("needed_compute", compute)
            .with("free_compute", supply.compute)
            .with("best_compute", supply.best_compute)
            .with("needed_memory", memory)
            .with("free_memory", supply.memory)
            .with("best_memory", supply.best_memory);
        match change {
            Some(change) => explanation.changed_by(change),
            None => explanation,
        }
    }

    /// The first of the changes that ask least of the user, or of the pool.
    fn smallest_change(&mut self, demand: &Demand) -> Option<String> {
        for (span, name) in [(Span::Node, "node"), (Span::Pool, "pool")] {
            let wider = demand.changed(|demand| demand.span = span);
            if span > demand.span && fits(&mut self.index, &wider) {
                return Some(format!("allow the virtual card to spread: span: {name}"));
            }
        }
        let mixed = demand.changed(|demand| (demand.mixed, demand.span) = (true, demand.span.max(Span::Node)));
        if !demand.mixed && fits(&mut self.index, &mixed) {
            return Some("allow several kinds of cards in one virtual card: mixed: true".to_owned());
        }
        let unlabelled = demand.changed(|demand| demand.node_labels.clear());
        if !demand.node_labels.is_empty() && fits(&mut self.index, &unlabelled) {
            return Some("ask for no node labels".to_owned());
        }
        if let Some(compute) = largest_that_fits(&mut self.index, demand) {
            return Some(format!("ask for at most {} per virtual card", MilliTflops(compute)));
        }
        largest_gang(&mut self.index, demand).map(|gang| format!("ask for at most {gang} virtual cards at once"))
    }
}

fn supply(index: &Index, demand: &Demand) -> Supply {
    let mut supply = Supply::default();
    for (_, node) in index.nodes() {
        if !node.node.as_ref().is_some_and(|node| node.grantable()) || !demand.accepts(node) {
            continue;
        }
        let offer_of = |card: &CardEntry| demand.offer_of(card.class).copied();
        let cards: Vec<(Offer, &CardEntry)> =
            node.cards.iter().filter_map(|card| Some((offer_of(card)?, card))).collect();
        supply.nodes += u64::from(!cards.is_empty());
        let (mut node_compute, mut node_memory) = (0u64, 0u64);
        for (offer, card) in cards.iter().filter(|(_, card)| card.offered() > 0) {
            let compute = offer.compute_of(card.offered());
            node_compute = node_compute.saturating_add(compute);
            node_memory = node_memory.saturating_add(card.memory_free);
            if demand.span == Span::Card && compute >= supply.best_compute {
                (supply.best_compute, supply.best_memory) = (compute, card.memory_free);
            }
        }
        if demand.span != Span::Card && node_compute >= supply.best_compute {
            (supply.best_compute, supply.best_memory) = (node_compute, node_memory);
        }
        supply.compute = supply.compute.saturating_add(node_compute);
        supply.memory = supply.memory.saturating_add(node_memory);
    }
    supply
}

/// The most compute per virtual card with which the gang would fit, in whole blocks of the class that gives the
/// finest steps.
fn largest_that_fits(index: &mut Index, demand: &Demand) -> Option<u64> {
    let step = demand.offers.iter().map(|offer| offer.compute_of(1)).filter(|step| *step > 0).min()?;
    let with = |steps: u64| {
        demand.changed(|demand| {
            demand.compute = steps * step;
            for offer in &mut demand.offers {
                offer.need = offer.blocks_for(steps * step).max(1);
            }
        })
    };
    Some(largest(index, demand.compute / step, with)? * step)
}

/// The largest gang of the same virtual cards that fits.
fn largest_gang(index: &mut Index, demand: &Demand) -> Option<u64> {
    let with = |gang: u64| demand.changed(|demand| demand.gang = u32::try_from(gang).unwrap_or(u32::MAX));
    largest(index, demand.gang.into(), with)
}

/// The largest size below one that does not fit with which a request does.
fn largest(index: &mut Index, failing: u64, with: impl Fn(u64) -> Demand) -> Option<u64> {
    let failing = usize::try_from(failing).unwrap_or(usize::MAX);
    let fitting = bisect(0, failing, |size| fits(index, &with(size as u64)));
    (fitting > 0).then_some(fitting as u64)
}

const AVOID: fn(&mut Affinity) = |affinity| affinity.avoid.clear();
const TOGETHER: fn(&mut Affinity) = |affinity| affinity.together.clear();

/// The wish that alone keeps a job from starting; `None` when the pool has too little for it anyway.
pub(crate) fn unmet_wish(index: &mut Index, demand: &Demand) -> Option<Explanation> {
    if !demand.has_hard_wishes() {
        return None;
    }
    let mut without = |gone: &[fn(&mut Affinity)]| {
        let softened = demand.changed(|demand| gone.iter().for_each(|gone| gone(&mut demand.affinity)));
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
    let anywhere = || demand.changed(|demand| TOGETHER(&mut demand.affinity));
    !demand.affinity.together.is_empty()
        && !reserve::could_hold(index, state, demand)
        && reserve::could_hold(index, state, &anywhere())
}

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
        has_card && node.node.as_ref().is_some_and(|node| node.grantable()) && demand.accepts(node)
    });
    let left = accepted.filter_map(|(_, node)| node.host).map(|host| host.left);
    let (cpu, memory) =
        left.fold((MilliCpus(0), Mebibytes(0)), |most, left| (left.cpu.max(most.0), left.memory.max(most.1)));
    let HostRequest { cpu: needed_cpu, memory: needed_memory } = demand.host;
    let text = format!(
        "there is room for it on cards, but each worker needs {needed_cpu} and {needed_memory} of its host, and the hosts with a card \
         for it have at most {cpu} and {memory} left"
    );
    Some(
        Explanation::new(WaitCode::HostShort, text)
            .with("needed_milli_cpus", needed_cpu.0)
            .with("best_milli_cpus", cpu.0)
            .with("needed_host_memory", needed_memory.0)
            .with("best_host_memory", memory.0)
            .changed_by("ask for less of the host, or wait until other jobs there end"),
    )
}

/// That a request is too large for the whole pool, with the numbers of the refusal that it would get now.
pub(crate) fn refused_for_size(state: &State, spec: &JobSpec) -> Option<Explanation> {
    let refused = state.capacity().admit(spec, state.config().reference_precision).err()?;
    let explanation = |code| Explanation::new(code, refused.to_string());
    Some(match &refused {
        Rejection::ExceedsHost { demand, most } => explanation(WaitCode::ExceedsHost)
            .with("needed_milli_cpus", demand.cpu.0)
            .with("most_milli_cpus", most.cpu.0)
            .with("needed_host_memory", demand.memory.0)
            .with("most_host_memory", most.memory.0)
            .changed_by("ask for less of the host, or add nodes"),
        Rejection::ExceedsPool { demand, total } => explanation(WaitCode::ExceedsPool)
            .with("needed_compute", demand.0)
            .with("total_compute", total.0)
            .changed_by("ask for less, or add cards"),
        Rejection::ExceedsCard { demand, largest } => explanation(WaitCode::ExceedsPool)
            .with("needed_compute", demand.0)
            .with("largest_compute", largest.0)
            .changed_by("ask for less, or let the virtual card spread: span: node"),
        Rejection::ExceedsCardMemory { demand_mib, largest_mib } => explanation(WaitCode::ExceedsPool)
            .with("needed_memory", *demand_mib)
            .with("largest_memory", *largest_mib)
            .changed_by("ask for less, or let the virtual card spread: span: node"),
        Rejection::ExceedsMemory { demand_mib, total_mib } => explanation(WaitCode::ExceedsPool)
            .with("needed_memory", *demand_mib)
            .with("total_memory", *total_mib)
            .changed_by("ask for less, or add cards"),
        Rejection::ExceedsGang { gang, most } => explanation(WaitCode::ExceedsPool)
            .with("gang", u64::from(*gang))
            .with("most_virtual_cards", *most)
            .changed_by("ask for fewer or smaller virtual cards, or add cards"),
        _ => explanation(WaitCode::ExceedsPool).changed_by("ask for less, or add cards"),
    })
}
