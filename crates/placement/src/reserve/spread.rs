//! What to keep for virtual cards that spread over nodes: whole nodes, those that are free soonest first.

use tessera_ledger::NodeId;

use super::outlook::{Outlook, Part, seat_on};
use super::{Choice, Kept, wait};
use crate::demand::Demand;
use crate::fit::share::Candidate;
use crate::fit::sums::Sums;
use crate::index::Index;

/// A node that is chosen, and what it gives.
struct Chosen<'a> {
    outlook: &'a Outlook<'a>,
    part: Part,
}

impl Chosen<'_> {
    /// No fewer workers than a gang can put there.
    fn most(&self, demand: &Demand) -> u32 {
        let mut sums = Sums::default();
        sums.add(demand, &self.outlook.left(&self.part.held));
        // One more may get what is left over.
        sums.members(demand).saturating_add(1).min(demand.gang).min(self.part.workers)
    }
}

/// As many nodes as hold a gang together; beside jobs without a time limit if that is enough, else with what those hold.
pub(super) fn over_nodes<'a>(
    index: &Index,
    demand: &Demand,
    outlooks: impl Iterator<Item = &'a Outlook<'a>> + Clone,
    loose: bool,
) -> Option<Choice> {
    [false, true].into_iter().find_map(|with_endless| {
        let parts = outlooks.clone().filter_map(|outlook| Some(Chosen { outlook, part: outlook.part(with_endless)? }));
        let mut nodes: Vec<Chosen<'_>> = parts.collect();
        nodes.sort_by_key(|chosen| (chosen.part.wait, chosen.outlook.id));
        first_enough(index, demand, nodes, loose)
    })
}

/// The first nodes that hold the gang.
fn first_enough(index: &Index, demand: &Demand, mut nodes: Vec<Chosen<'_>>, loose: bool) -> Option<Choice> {
    let enough = by_sums(demand, &nodes)?;
    let (count, workers) = match loose {
        true => (enough, nodes[..enough].iter().map(|chosen| chosen.most(demand)).collect()),
        false => fewest(index, demand, &nodes, enough)?,
    };
    nodes.truncate(count);
    keep(demand, &nodes, &workers)
}

/// How many of the first nodes have enough for a gang together, as far as sums say.
fn by_sums(demand: &Demand, nodes: &[Chosen<'_>]) -> Option<usize> {
    let mut sums = Sums::default();
    let enough = |chosen: &Chosen<'_>| {
        sums.add(demand, &chosen.outlook.left(&chosen.part.held));
        sums.members(demand) >= demand.gang
    };
    nodes.iter().position(enough).map(|last| last + 1)
}

/// How many of the first nodes it takes to hold a gang, at least `least`, and how it is divided over them.
fn fewest(index: &Index, demand: &Demand, nodes: &[Chosen<'_>], least: usize) -> Option<(usize, Vec<u32>)> {
    let divided = |count: usize| divide(index, demand, &nodes[..count]);
    let (mut too_few, mut count, mut more) = (least - 1, least, 1);
    let mut found = loop {
        match divided(count) {
            Some(workers) => break (count, workers),
            None if count == nodes.len() => return None,
            None => (too_few, count, more) = (count, nodes.len().min(count + more), more * 2),
        }
    };
    while found.0 - too_few > 1 {
        let middle = usize::midpoint(too_few, found.0);
        match divided(middle) {
            Some(workers) => found = (middle, workers),
            None => too_few = middle,
        }
    }
    Some(found)
}

/// Divides a gang over nodes as placement would: what fits on one of them first. Answers how many workers each gets.
fn divide(index: &Index, demand: &Demand, nodes: &[Chosen<'_>]) -> Option<Vec<u32>> {
    let mut held: Vec<_> = nodes.iter().map(|chosen| chosen.part.held.clone()).collect();
    let mut workers = vec![0u32; nodes.len()];
    let mut missing = demand.gang;
    for (number, chosen) in nodes.iter().enumerate() {
        workers[number] = chosen.outlook.fill(&mut held[number], missing.min(chosen.part.workers));
        missing -= workers[number];
    }
    while missing > 0 {
        let mut left: Vec<Candidate> = Vec::new();
        let mut found = None;
        for (number, chosen) in nodes.iter().enumerate() {
            if workers[number] < chosen.part.workers {
                let more = chosen.outlook.left(&held[number]);
                if !more.is_empty() {
                    left.extend(more);
                    found = seat_on(index, demand, left.clone());
                }
            }
            if found.is_some() {
                break;
            }
        }
        let shares = found?;
        let mut used: Vec<NodeId> = shares.iter().map(|share| share.card.node).collect();
        used.dedup();
        for (number, chosen) in nodes.iter().enumerate().filter(|(_, chosen)| used.contains(&chosen.outlook.id)) {
            chosen.outlook.take(&mut held[number], &shares);
            workers[number] += 1;
        }
        missing -= 1;
    }
    Some(workers)
}

fn keep(demand: &Demand, nodes: &[Chosen<'_>], workers: &[u32]) -> Option<Choice> {
    let mut choice = Choice { wait: wait::NONE, kept: Kept::default() };
    for (chosen, workers) in nodes.iter().zip(workers).filter(|(_, workers)| **workers > 0) {
        let outlook = chosen.outlook;
        choice.wait = choice.wait.max(chosen.part.wait).max(outlook.surroundings(*workers)?);
        match demand.wishes.avoid().is_empty() {
            true => choice.kept.cards.extend(outlook.usable()),
            false => choice.kept.cards.extend(outlook.all()),
        }
        choice.kept.hosts.extend(outlook.host_for(*workers));
    }
    Some(choice)
}
