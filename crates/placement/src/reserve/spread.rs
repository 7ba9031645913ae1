//! Room to keep for virtual cards that spread over nodes: whole nodes, those that are free soonest first.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::NodeId;

use super::outlook::{Outlook, Part};
use super::remembered::Parts;
use super::{Choice, Kept, NONE, Sought};
use crate::fit::seats;
use crate::least_with;

/// As many of the first nodes as hold a gang together; beside jobs without a time limit if that is enough, else with
/// what those hold.
pub(super) fn over_nodes(sought: Sought<'_>, parts: &[Parts; 2]) -> Option<Choice> {
    [false, true].into_iter().zip(parts).find_map(|(with_endless, parts)| {
        let least = parts.enough_for(sought.demand)?;
        let mut rest = parts.nodes().filter_map(|id| {
            let outlook = sought.outlook(id)?;
            let part = outlook.part(with_endless)?;
            Some((outlook, part))
        });
        // The first nodes, as far as they were looked at, and how the gang is divided over as few as hold it.
        let (mut read, mut found): (Vec<(Outlook<'_>, Part)>, _) = (Vec::new(), None);
        let divided = |count: usize| {
            read.extend(rest.by_ref().take(count.saturating_sub(read.len())));
            let tried = count.min(read.len());
            let workers = divide(sought, &read[..tried]);
            let holds = workers.is_some();
            found = workers.or(found.take());
            holds
        };
        least_with(least, parts.nodes().count(), divided)?;
        let workers = found?;
        let mut choice = Choice { wait: NONE, kept: Kept::default() };
        for (outlook, part) in &read {
            let Some(workers) = workers.get(&outlook.id).copied() else { continue };
            choice.wait = choice.wait.max(part.wait).max(outlook.surroundings(workers)?);
            outlook.keep(&mut choice.kept, workers, None);
        }
        Some(choice)
    })
}

/// Divides the gang over nodes: the number of workers of each; `None` if they do not hold it.
fn divide(sought: Sought<'_>, nodes: &[(Outlook<'_>, Part)]) -> Option<BTreeMap<NodeId, u32>> {
    let sites = nodes.iter().map(|(_, part)| part.site.clone());
    let seats = seats::divide_gang(sought.index, sought.demand, sites).ok()?;
    let mut workers = BTreeMap::new();
    for seat in seats {
        let nodes: BTreeSet<NodeId> = seat.iter().map(|share| share.card.node).collect();
        nodes.into_iter().for_each(|node| *workers.entry(node).or_default() += 1);
    }
    Some(workers)
}
