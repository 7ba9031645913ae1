//! What to keep for virtual cards that spread over nodes: whole nodes, those that are free soonest first.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::NodeId;

use super::outlook::{Outlook, Part};
use super::ranking::Parts;
use super::{Choice, Kept, Sought, wait};
use crate::demand::Demand;
use crate::fit::seats;

/// A node that is chosen, and what it gives.
struct Chosen<'a> {
    outlook: Outlook<'a>,
    part: Part,
}

/// How many workers each node gets.
type Workers = BTreeMap<NodeId, u32>;

/// As many nodes as hold a gang together; beside jobs without a time limit if that is enough, else with what
/// those hold.
pub(super) fn over_nodes(sought: Sought<'_>, parts: &[Parts; 2]) -> Option<Choice> {
    [false, true].into_iter().zip(parts).find_map(|(with_endless, parts)| {
        let least = parts.enough_for(sought.demand)?;
        let look = move |id| {
            let outlook = sought.outlook(id)?;
            let part = outlook.part(with_endless)?;
            Some(Chosen { outlook, part })
        };
        let mut nodes = First { rest: parts.nodes().filter_map(look), read: Vec::new() };
        let workers = fewest(sought, &mut nodes, least)?;
        keep(sought.demand, &nodes.read, &workers)
    })
}

/// The first nodes, as far as they were looked at.
struct First<'a, I> {
    rest: I,
    read: Vec<Chosen<'a>>,
}

impl<'a, I: Iterator<Item = Chosen<'a>>> First<'a, I> {
    /// So many of them, if there are as many.
    fn nodes(&mut self, count: usize) -> &[Chosen<'a>] {
        let missing = count.saturating_sub(self.read.len());
        self.read.extend(self.rest.by_ref().take(missing));
        &self.read[..count.min(self.read.len())]
    }
}

/// How a gang is divided over as few of the first nodes as hold it, at least `least`.
fn fewest<'a>(
    sought: Sought<'_>,
    nodes: &mut First<'a, impl Iterator<Item = Chosen<'a>>>,
    least: usize,
) -> Option<Workers> {
    let mut divided = |count: usize| divide(sought, nodes.nodes(count));
    let (mut too_few, mut count, mut more) = (least - 1, least, 1);
    let mut found = loop {
        match divided(count) {
            (tried, Some(workers)) => break (tried, workers),
            (tried, None) if tried < count => return None,
            (_, None) => (too_few, count, more) = (count, count + more, more * 2),
        }
    };
    while found.0 - too_few > 1 {
        let middle = usize::midpoint(too_few, found.0);
        match divided(middle).1 {
            Some(workers) => found = (middle, workers),
            None => too_few = middle,
        }
    }
    Some(found.1)
}

/// The number of some nodes, and how many workers each gets, if they hold the gang.
fn divide(sought: Sought<'_>, nodes: &[Chosen<'_>]) -> (usize, Option<Workers>) {
    let sites = nodes.iter().map(|chosen| chosen.part.site.clone());
    let seats = seats::divide_gang(sought.index, sought.demand, sites).ok();
    let workers = seats.map(|seats| {
        let mut workers = Workers::new();
        for seat in seats {
            let nodes: BTreeSet<NodeId> = seat.iter().map(|share| share.card.node).collect();
            nodes.into_iter().for_each(|node| *workers.entry(node).or_default() += 1);
        }
        workers
    });
    (nodes.len(), workers)
}

fn keep(demand: &Demand, nodes: &[Chosen<'_>], workers: &Workers) -> Option<Choice> {
    let mut choice = Choice { wait: wait::NONE, kept: Kept::default() };
    for Chosen { outlook, part } in nodes {
        let Some(workers) = workers.get(&outlook.id).copied() else { continue };
        choice.wait = choice.wait.max(part.wait).max(outlook.surroundings(workers)?);
        match demand.affinity.avoid.is_empty() {
            true => choice.kept.cards.extend(outlook.usable()),
            false => choice.kept.cards.extend(outlook.all()),
        }
        choice.kept.hosts.extend(outlook.host_for(workers));
    }
    Some(choice)
}
