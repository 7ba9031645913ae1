//! What is short when a job does not fit: compute, memory or room in one place, a wish that must be met, or its hosts;
//! and the smallest change that would start it.

use std::fmt::Display;

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
        let too_little = |asked: &dyn Display, free: &dyn Display, missing: &dyn Display| {
            format!("it needs {asked} and {free} is free on the cards that it accepts: {missing} too little")
        };
        let (code, sentence) = if supply.compute < compute {
            let [asked, free, missing] = [compute, supply.compute, compute - supply.compute].map(MilliTflops);
            (WaitCode::ComputeShort, too_little(&asked, &free, &missing))
        } else if supply.memory < memory {
            let [asked, free, missing] =
                [memory, supply.memory, memory - supply.memory].map(|mib| format!("{mib} MiB"));
            (WaitCode::MemoryShort, too_little(&asked, &free, &missing))
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
            (WaitCode::Fragmented, text)
        };
        let numbers = vec![
            ("needed_compute", compute),
            ("free_compute", supply.compute),
            ("best_compute", supply.best_compute),
            ("needed_memory", memory),
            ("free_memory", supply.memory),
            ("best_memory", supply.best_memory),
        ];
        Explanation { code, sentence, numbers, change }
    }

    /// The first of the changes that ask least of the user, or of the pool.
    fn smallest_change(&mut self, demand: &Demand) -> Option<String> {
        let mixed = "allow several kinds of cards in one virtual card: mixed: true";
        type Change = fn(&mut Demand);
        let changes: [(&str, Change); 4] = [
            ("allow the virtual card to spread: span: node", |one| one.span = one.span.max(Span::Node)),
            ("allow the virtual card to spread: span: pool", |one| one.span = Span::Pool),
            (mixed, |one| (one.mixed, one.span) = (true, one.span.max(Span::Node))),
            ("ask for no node labels", |one| one.node_labels.clear()),
        ];
        let mut helps = |changed: Demand| changed != *demand && fits(&mut self.index, &changed);
        if let Some((told, _)) = changes.iter().find(|(_, change)| helps(demand.changed(change))) {
            return Some((*told).to_owned());
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

/// Lets go of a wish.
type Without = fn(&mut Affinity);

const AVOID: Without = |affinity| affinity.avoid.clear();
const TOGETHER: Without = |affinity| affinity.together.clear();

/// The wish that alone keeps a job from starting; `None` when the pool has too little for it anyway.
pub(crate) fn unmet_wish(index: &mut Index, demand: &Demand) -> Option<Explanation> {
    let Affinity { avoid, together, .. } = &demand.affinity;
    let labels: Vec<String> = avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = labels.join(", ");
    let mut unmet = |has: bool, gone: &[Without], text: String, change: &str| {
        let softened = || demand.changed(|demand| gone.iter().for_each(|gone| gone(&mut demand.affinity)));
        let text = format!("there is room for it, but {text}");
        (has && fits(index, &softened())).then(|| Explanation::new(WaitCode::Affinity, text).changed_by(change))
    };
    let (is_avoiding, is_together) = (!avoid.is_empty(), !together.is_empty());
    let avoided = format!("only on nodes that run a job with the labels {labels}, which it avoids");
    let apart = format!("not for all its workers on nodes with one value of the label {together:?}");
    let both = format!("not together by the label {together:?} and away from jobs with the labels {labels}");
    let fewer = "leave out affinity.together, or ask for fewer or smaller virtual cards";
    unmet(is_avoiding, &[AVOID], avoided, "leave out affinity.avoid, or wait until those jobs end")
        .or_else(|| unmet(is_together, &[TOGETHER], apart, fewer))
        .or_else(|| {
            let change = "leave out affinity.together or affinity.avoid";
            unmet(is_avoiding || is_together, &[AVOID, TOGETHER], both, change)
        })
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
    let best = HostRequest { cpu, memory };
    let numbers = host_numbers(demand.host, "best_milli_cpus", "best_host_memory", best);
    let change = "ask for less of the host, or wait until other jobs there end";
    Some(Explanation { numbers, ..Explanation::new(WaitCode::HostShort, text) }.changed_by(change))
}

/// What is needed of a host beside what there is of it.
fn host_numbers(
    needed: HostRequest,
    cpu: &'static str,
    memory: &'static str,
    there: HostRequest,
) -> Vec<(&'static str, u64)> {
    let cpus = [("needed_milli_cpus", needed.cpu.0), (cpu, there.cpu.0)];
    let memories = [("needed_host_memory", needed.memory.0), (memory, there.memory.0)];
    cpus.into_iter().chain(memories).collect()
}

/// That a request is too large for the whole pool, with the numbers of the refusal that it would get now.
pub(crate) fn refused_for_size(state: &State, spec: &JobSpec) -> Option<Explanation> {
    let refused = state.capacity().admit(spec, state.config().reference_precision).err()?;
    let code =
        if matches!(refused, Rejection::ExceedsHost { .. }) { WaitCode::ExceedsHost } else { WaitCode::ExceedsPool };
    let compute = |demand: MilliTflops, other, most: MilliTflops| vec![("needed_compute", demand.0), (other, most.0)];
    let memory = |demand: u64, other, most: u64| vec![("needed_memory", demand), (other, most)];
    let (less, wider) = ("ask for less, or add cards", "ask for less, or let the virtual card spread: span: node");
    let (numbers, change) = match refused {
        Rejection::ExceedsHost { demand, most } => (
            host_numbers(demand, "most_milli_cpus", "most_host_memory", most),
            "ask for less of the host, or add nodes",
        ),
        Rejection::ExceedsPool { demand, total } => (compute(demand, "total_compute", total), less),
        Rejection::ExceedsCard { demand, largest } => (compute(demand, "largest_compute", largest), wider),
        Rejection::ExceedsCardMemory { demand_mib, largest_mib } => {
            (memory(demand_mib, "largest_memory", largest_mib), wider)
        }
        Rejection::ExceedsMemory { demand_mib, total_mib } => (memory(demand_mib, "total_memory", total_mib), less),
        Rejection::ExceedsGang { gang, most } => (
            vec![("gang", u64::from(gang)), ("most_virtual_cards", most)],
            "ask for fewer or smaller virtual cards, or add cards",
        ),
        _ => (Vec::new(), less),
    };
    Some(Explanation { numbers, ..Explanation::new(code, refused.to_string()) }.changed_by(change))
}
