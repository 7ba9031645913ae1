//! The shortage when a job does not fit: compute, memory or room in one place, a wish that must be met, or its hosts;
//! and the smallest change that would start it.

use std::fmt::Display;
use std::sync::Arc;

use tessera_ledger::{Affinity, HostRequest, JobSpec, LogTime, MilliTflops, Rejection, Span, State};
use tessera_placement::{Inquiry, Pool, Supply, bisect};

use crate::words::{Explanation, WaitCode};

/// The same job with as few virtual cards as it starts with, no more and no fewer.
pub(crate) fn least(spec: &JobSpec) -> JobSpec {
    JobSpec { gang: *spec.gang_sizes().start(), gang_min: None, ..spec.clone() }
}

/// The same with something else about it.
fn changed(spec: &JobSpec, change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut changed = least(spec);
    change(&mut changed);
    changed
}

/// Names the shortest of compute, memory and room together.
pub(crate) fn capacity_shortage(asked: &mut Inquiry<'_>) -> Explanation {
    let Supply { all, best, nodes } = asked.supply();
    let spec = least(asked.spec());
    if nodes == 0 {
        let labels: Vec<String> = spec.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let text = format!("no node that takes new work has a card for it and the labels {}", labels.join(", "));
        return Explanation::new(WaitCode::NoNodeWithLabels, text)
            .changed_by("ask for other labels, or uncordon nodes");
    }
    let card = &spec.virtual_card;
    let each = [card.compute.0, card.memory_on_one_card().0];
    let needed = each.map(|each| each.saturating_mul(u64::from(spec.gang)));
    let change = smallest_change(asked, &spec);
    let place = match card.span {
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
            spec.gang,
            MilliTflops(each[0]),
            each[1],
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
fn smallest_change(asked: &mut Inquiry<'_>, spec: &JobSpec) -> Option<String> {
    type Change = fn(&mut JobSpec);
    let mixed = "allow several kinds of cards in one virtual card: mixed: true";
    let changes: [(&str, Change); 4] = [
        ("allow the virtual card to spread: span: node", |one| {
            one.virtual_card.span = one.virtual_card.span.max(Span::Node);
        }),
        ("allow the virtual card to spread: span: pool", |one| one.virtual_card.span = Span::Pool),
        (mixed, |one| {
            one.virtual_card.mixed = true;
            one.virtual_card.span = one.virtual_card.span.max(Span::Node);
        }),
        ("ask for no node labels", |one| one.node_labels.clear()),
    ];
    // As it would be if it were submitted so: what its access and its mode need comes with it.
    let mut helps = |changed: JobSpec| {
        let changed = changed.with_needs_of_its_access().with_needs_of_its_mode();
        changed != *spec && changed.check().is_ok() && asked.fits(changed)
    };
    if let Some((told, _)) = changes.iter().find(|(_, change)| helps(changed(spec, change))) {
        return Some((*told).to_owned());
    }
    if let Some(compute) = largest_that_fits(asked, spec) {
        return Some(format!("ask for at most {} per virtual card", MilliTflops(compute)));
    }
    let with = |gang: u64| changed(spec, |one| one.gang = u32::try_from(gang).unwrap_or(u32::MAX));
    largest(asked, spec.gang.into(), with).map(|gang| format!("ask for at most {gang} virtual cards at once"))
}

/// The most compute per virtual card with which the gang would fit, in whole blocks of the class that gives the
/// finest steps.
fn largest_that_fits(asked: &mut Inquiry<'_>, spec: &JobSpec) -> Option<u64> {
    let step = asked.finest_step()?;
    let with = |steps: u64| changed(spec, |one| one.virtual_card.compute = MilliTflops(steps * step));
    Some(largest(asked, spec.virtual_card.compute.0 / step, with)? * step)
}

/// The largest size below one that does not fit with which a request does.
fn largest(asked: &mut Inquiry<'_>, failing: u64, with: impl Fn(u64) -> JobSpec) -> Option<u64> {
    let failing = usize::try_from(failing).unwrap_or(usize::MAX);
    let fitting = bisect(0, failing, |size| asked.fits(with(size as u64)));
    (fitting > 0).then_some(fitting as u64)
}

/// Lets go of a wish.
type Without = fn(&mut Affinity);

const AVOID: Without = |affinity| affinity.avoid.clear();
const TOGETHER: Without = |affinity| affinity.together.clear();

/// The wish that alone keeps a job from starting; `None` when the pool has too little for it anyway.
pub(crate) fn unmet_wish(asked: &mut Inquiry<'_>) -> Option<Explanation> {
    let spec = Arc::clone(asked.spec());
    let Affinity { avoid, together, .. } = &spec.affinity;
    let labels: Vec<String> = avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = labels.join(", ");
    let mut unmet = |has: bool, gone: &[Without], text: String, change: &str| {
        let softened = || changed(&spec, |one| gone.iter().for_each(|gone| gone(&mut one.affinity)));
        let text = format!("there is room for it, but {text}");
        (has && asked.fits(softened())).then(|| Explanation::new(WaitCode::Affinity, text).changed_by(change))
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

/// Returns whether the pool could hold a job if its workers did not have to be together, and cannot as it is.
pub(crate) fn never_fits_together(asked: &Inquiry<'_>) -> bool {
    let spec = asked.spec();
    !spec.affinity.together.is_empty()
        && !asked.could_hold(least(spec))
        && asked.could_hold(changed(spec, |one| TOGETHER(&mut one.affinity)))
}

/// Returns whether a job can never start in this pool because its workers must be together: no value of the label has
/// room for all of them even if all other work ended, but the pool has.
#[must_use]
pub fn is_never_together(pool: &mut Pool, state: &State, spec: &Arc<JobSpec>) -> bool {
    never_fits_together(&pool.inquire(state, spec, LogTime(0)))
}

pub(crate) fn never_together(spec: &JobSpec) -> Explanation {
    let key = spec.affinity.together.as_str();
    let text = format!(
        "the nodes with any one value of the label {key:?} would not hold all its workers if all other work on them \
         ended; waiting does not help"
    );
    Explanation::new(WaitCode::Affinity, text)
        .changed_by("leave out affinity.together, ask for fewer or smaller virtual cards, or add or uncordon nodes")
}

/// The shortage of hosts where the cards would suffice; `None` when the cards have too little anyway.
pub(crate) fn host_shortage(asked: &mut Inquiry<'_>) -> Option<Explanation> {
    let spec = Arc::clone(asked.spec());
    if spec.host.is_zero() || !asked.fits(changed(&spec, |one| one.host = HostRequest::ZERO)) {
        return None;
    }
    let best = asked.best_host();
    let (who, hosts) = match spec.program_may_be_beside() {
        true => ("the program of each virtual card needs", "of a host, and those that may have one"),
        false => ("each worker needs", "of its host, and the hosts with a card for it"),
    };
    let text = format!(
        "there is room for it on cards, but {who} {} and {} {hosts} have at most {} and {} left",
        spec.host.cpu, spec.host.memory, best.cpu, best.memory
    );
    let change = "ask for less of the host, or wait until other jobs there end";
    let told = Explanation::new(WaitCode::HostShort, text);
    Some(with_hosts(told, spec.host, ["best_milli_cpus", "best_host_memory"], best).changed_by(change))
}

/// Adds the numbers of the need for host resources and of their supply.
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
