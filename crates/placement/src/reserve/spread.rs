//! What to keep for virtual cards that spread over nodes: whole nodes, those that are free soonest first.

use std::collections::BTreeMap;

use tessera_ledger::NodeId;

use super::outlook::{Outlook, Part};
use super::{Choice, Kept, wait};
use crate::demand::Demand;
use crate::fit::seats;
use crate::fit::sums::Sums;
use crate::index::Index;

/// A node that is chosen, and what it gives.
struct Chosen<'a> {
    outlook: &'a Outlook<'a>,
    part: Part,
}

/// How many workers each node gets.
type Workers = BTreeMap<NodeId, u32>;

/// As many nodes as hold a gang together; beside jobs without a time limit if that is enough, else with what those hold.
pub(super) fn over_nodes<'a>(
    index: &Index,
    demand: &Demand,
    outlooks: impl Iterator<Item = &'a Outlook<'a>> + Clone,
) -> Option<Choice> {
    [false, true].into_iter().find_map(|with_endless| {
        let parts = outlooks.clone().filter_map(|outlook| Some(Chosen { outlook, part: outlook.part(with_endless)? }));
        let mut nodes: Vec<Chosen<'_>> = parts.collect();
        nodes.sort_by_key(|chosen| (chosen.part.wait, chosen.outlook.id));
        let workers = fewest(index, demand, &nodes, by_sums(demand, &nodes)?)?;
        keep(demand, &nodes, &workers)
    })
}

/// How many of the first nodes have enough for a gang together, as far as sums say.
fn by_sums(demand: &Demand, nodes: &[Chosen<'_>]) -> Option<usize> {
    let mut sums = Sums::default();
    let enough = |chosen: &Chosen<'_>| {
        sums.add(demand, &chosen.part.site.cards);
        sums.members(demand) >= demand.gang
    };
    nodes.iter().position(enough).map(|last| last + 1)
}

/// How a gang is divided over as few of the first nodes as hold it, at least `least`.
fn fewest(index: &Index, demand: &Demand, nodes: &[Chosen<'_>], least: usize) -> Option<Workers> {
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
    Some(found.1)
}

/// How many workers each of these nodes gets, if they hold the gang.
fn divide(index: &Index, demand: &Demand, nodes: &[Chosen<'_>]) -> Option<Workers> {
    let sites = nodes.iter().map(|chosen| chosen.part.site.clone());
    let mut workers = Workers::new();
    for seat in seats::divide_gang(index, demand, sites).ok()? {
        let mut nodes: Vec<NodeId> = seat.iter().map(|share| share.card.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().for_each(|node| *workers.entry(node).or_default() += 1);
    }
    Some(workers)
}

fn keep(demand: &Demand, nodes: &[Chosen<'_>], workers: &Workers) -> Option<Choice> {
    let mut choice = Choice { wait: wait::NONE, kept: Kept::default() };
    for Chosen { outlook, part } in nodes {
        let Some(workers) = workers.get(&outlook.id).copied() else { continue };
        choice.wait = choice.wait.max(part.wait).max(outlook.surroundings(workers)?);
        match demand.wishes.avoid().is_empty() {
            true => choice.kept.cards.extend(outlook.usable()),
            false => choice.kept.cards.extend(outlook.all()),
        }
        choice.kept.hosts.extend(outlook.host_for(workers));
    }
    Some(choice)
}
