//! What is short when a job does not fit: compute, memory or room in one place, a wish that must be met, or its hosts;
//! and the smallest change that would start it.

use std::fmt::Display;

use tessera_ledger::{
    Affinity, HostRequest, JobSpec, Mebibytes, MilliCpus, MilliTflops, NodeId, Rejection, Span, State,
};

use crate::bisect;
use crate::demand::Demand;
use crate::fit::fits;
use crate::index::Index;
use crate::index::node::NodeEntry;
use crate::pool::Pool;
use crate::reserve;
use crate::why::{Explanation, WaitCode};

/// What the cards that a job accepts have left, together and at best in one place: compute and memory.
#[derive(Clone, Copy, Debug, Default)]
struct Supply {
    all: [u64; 2],
    best: [u64; 2],
    /// Nodes with such a card.
    nodes: u64,
}

impl Pool {
    /// Names the shortest of compute, memory and room together.
    pub(crate) fn capacity_shortage(&mut self, demand: &Demand) -> Explanation {
        let Supply { all, best, nodes } = supply(&self.index, demand);
        if nodes == 0 {
            let labels: Vec<String> = demand.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let text = format!("no node that takes new work has a card for it and the labels {}", labels.join(", "));
            return Explanation::new(WaitCode::NoNodeWithLabels, text)
                .changed_by("ask for other labels, or uncordon nodes");
        }
        let needed = [demand.compute, demand.memory].map(|each| each.saturating_mul(u64::from(demand.gang)));
        let change = self.smallest_change(demand);
        let place = match demand.span {
            Span::Card => "card",
            Span::Node => "node",
            Span::Pool => "kind of card",
        };
        let too_little = |asked: &dyn Display, free: &dyn Display, missing: &dyn Display| {
            format!("it needs {asked} and {free} is free on the cards that it accepts: {missing} too little")
        };
        let (code, sentence) = if all[0] < needed[0] {
            let [asked, free, missing] = [needed[0], all[0], needed[0] - all[0]].map(MilliTflops);
            (WaitCode::ComputeShort, too_little(&asked, &free, &missing))
        } else if all[1] < needed[1] {
            let [asked, free, missing] = [needed[1], all[1], needed[1] - all[1]].map(|mib| format!("{mib} MiB"));
            (WaitCode::MemoryShort, too_little(&asked, &free, &missing))
        } else {
            let text = format!(
                "enough is free in all, but not together: each of its {} virtual cards needs {} and {} MiB on one {place}, \
                 and the {place} with the most has {} and {} MiB",
                demand.gang,
                MilliTflops(demand.compute),
                demand.memory,
                MilliTflops(best[0]),
                best[1],
            );
            (WaitCode::Fragmented, text)
        };
        let numbers = [
            (["needed_compute", "needed_memory"], needed),
            (["free_compute", "free_memory"], all),
            (["best_compute", "best_memory"], best),
        ];
        Explanation { change, ..Explanation::new(code, sentence).with_both(numbers) }
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
    let plus = |sum: [u64; 2], more: &[u64; 2]| [sum[0].saturating_add(more[0]), sum[1].saturating_add(more[1])];
    let mut supply = Supply::default();
    for node in accepted(index, demand) {
        let offered = node.cards.iter().filter(|card| card.offered() > 0);
        let left = offered
            .filter_map(|card| Some([demand.offer_of(card.class)?.compute_of(card.offered()), card.memory_free]));
        let cards: Vec<[u64; 2]> = left.collect();
        let together = cards.iter().fold([0, 0], plus);
        let places = if demand.span == Span::Card { &cards[..] } else { &[together] };
        let best = places.iter().fold(supply.best, |best, place| if place[0] >= best[0] { *place } else { best });
        supply = Supply { all: plus(supply.all, &together), best, nodes: supply.nodes + 1 };
    }
    supply
}

/// The nodes that take new work, carry the labels asked for and have a card for a job.
fn accepted<'a>(index: &'a Index, demand: &'a Demand) -> impl Iterator<Item = &'a NodeEntry> {
    let nodes = index.nodes().map(|(_, node)| node).filter(|node| node.is_grantable() && demand.accepts(node));
    nodes.filter(|node| node.cards.iter().any(|card| demand.offer_of(card.class).is_some()))
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
    let without = |demand: &mut Demand| {
        (demand.host, demand.program) = (HostRequest::ZERO, demand.program.map(|_| HostRequest::ZERO));
    };
    if !demand.asks_of_hosts() || !fits(index, &demand.changed(without)) {
        return None;
    }
    let needed = demand.program.unwrap_or(demand.host);
    let for_program = |(id, node): &(NodeId, &NodeEntry)| demand.may_have_program(index, *id, node);
    let nodes: Vec<&NodeEntry> = match demand.program {
        Some(_) => index.nodes().filter(for_program).map(|(_, node)| node).collect(),
        None => accepted(index, demand).collect(),
    };
    let left = nodes.into_iter().filter_map(|node| node.host).map(|host| host.left);
    let (cpu, memory) =
        left.fold((MilliCpus(0), Mebibytes(0)), |most, left| (left.cpu.max(most.0), left.memory.max(most.1)));
    let HostRequest { cpu: needed_cpu, memory: needed_memory } = needed;
    let (who, hosts) = match demand.program {
        Some(_) => ("the program of each virtual card needs", "of a host, and those that may have one"),
        None => ("each worker needs", "of its host, and the hosts with a card for it"),
    };
    let text = format!(
        "there is room for it on cards, but {who} {needed_cpu} and {needed_memory} {hosts} have at most {cpu} and \
         {memory} left"
    );
    let best = HostRequest { cpu, memory };
    let change = "ask for less of the host, or wait until other jobs there end";
    let told = Explanation::new(WaitCode::HostShort, text);
    Some(with_hosts(told, needed, ["best_milli_cpus", "best_host_memory"], best).changed_by(change))
}

/// What is needed of a host beside what there is of it.
fn with_hosts(told: Explanation, needed: HostRequest, names: [&'static str; 2], there: HostRequest) -> Explanation {
    let [needed, there] = [needed, there].map(|host| [host.cpu.0, host.memory.0]);
    told.with_both([(["needed_milli_cpus", "needed_host_memory"], needed), (names, there)])
}

/// That a request is too large for the whole pool, with the numbers of the refusal that it would get now.
pub(crate) fn refused_for_size(state: &State, spec: &JobSpec) -> Option<Explanation> {
    let refused = state.admit(spec).err()?;
    let told = |code| Explanation::new(code, refused.to_string());
    let compute = |needed: MilliTflops, name, most: MilliTflops| {
        told(WaitCode::ExceedsPool).with("needed_compute", needed.0).with(name, most.0)
    };
    let memory = |needed, name, most| told(WaitCode::ExceedsPool).with("needed_memory", needed).with(name, most);
    let (less, wider) = ("ask for less, or add cards", "ask for less, or let the virtual card spread: span: node");
    let (explanation, change) = match refused {
        Rejection::ExceedsHost { demand, most } => (
            with_hosts(told(WaitCode::ExceedsHost), demand, ["most_milli_cpus", "most_host_memory"], most),
            "ask for less of the host, or add nodes",
        ),
        Rejection::ExceedsPool { demand, total } => (compute(demand, "total_compute", total), less),
        Rejection::ExceedsCard { demand, largest } => (compute(demand, "largest_compute", largest), wider),
        Rejection::ExceedsCardMemory { demand_mib, largest_mib } => {
            (memory(demand_mib, "largest_memory", largest_mib), wider)
        }
        Rejection::ExceedsMemory { demand_mib, total_mib } => (memory(demand_mib, "total_memory", total_mib), less),
        Rejection::ExceedsGang { gang, most } => (
            told(WaitCode::ExceedsPool).with("gang", u64::from(gang)).with("most_virtual_cards", most),
            "ask for fewer or smaller virtual cards, or add cards",
        ),
        _ => (told(WaitCode::ExceedsPool), less),
    };
    Some(explanation.changed_by(change))
}
