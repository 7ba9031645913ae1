//! What is short when a job does not fit: compute, memory or room in one place, and the smallest change that would
//! start it.

use tessera_ledger::{BlockCount, MilliTflops, Span};

use crate::demand::{Demand, Offer};
use crate::fit::fits;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::pool::Pool;
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
            let labels: Vec<String> = demand.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
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
        let unlabelled = demand.changed(|demand| demand.labels.clear());
        if !demand.labels.is_empty() && fits(&mut self.index, &unlabelled) {
            return Some("ask for no node labels".to_owned());
        }
        if let Some(compute) = largest_that_fits(&mut self.index, demand) {
            return Some(format!("ask for at most {} per virtual card", MilliTflops(compute)));
        }
        largest_gang(&mut self.index, demand).map(|gang| format!("ask for at most {gang} virtual cards at once"))
    }
}

/// What is left for a demand.
fn supply(index: &Index, demand: &Demand) -> Supply {
    let mut supply = Supply::default();
    for (_, node) in index.nodes() {
        if !node.node.as_ref().is_some_and(|node| node.grantable() && demand.accepts(node)) {
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
    let step = demand.offers.iter().map(|offer| offer.compute_of(BlockCount(1).0)).filter(|step| *step > 0).min()?;
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
fn largest(index: &mut Index, mut failing: u64, with: impl Fn(u64) -> Demand) -> Option<u64> {
    let mut fitting = 0;
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(index, &with(middle)) { fitting = middle } else { failing = middle }
    }
    (fitting > 0).then_some(fitting)
}
