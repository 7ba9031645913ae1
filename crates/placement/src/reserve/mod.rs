//! Reservations: the first job of a queue that does not fit, once it has waited long enough, keeps those behind it away from the
//! cards that will be free for it soonest, and from as much of their hosts as it needs. So small jobs fill gaps without starving a big one.
//!
//! How soon something is free, time limits say ([`Wait`]); what jobs without one hold comes after everything else. Nothing is counted
//! on that was promised to another grant or is lost. Where jobs are to be avoided, all cards of the nodes are kept: those that are there end, and no
//! new ones come.
//!
//! The choice depends on the present state alone, not on earlier choices. It comes to an end all the same, because what is chosen never gets worse:
//!
//! * If all of it is free at a known time, those behind the holder may only use it if they are over by then. So the same cards are still
//!   free by that time in the next round, and others are chosen only when they are free no later: *the estimated start never moves back*,
//!   but by what jobs take to start and to stop, and by those that come before the holder.
//! * If jobs without a time limit hold some of it, nobody behind the holder may use it. What they hold only shrinks, and so does the time at
//!   which all else is free. Others are chosen only when they lack less, or as little and are free earlier; that happens a finite
//!   number of times, and in between what is kept becomes free as those jobs end.
//!
//! Only a job without a time limit that never ends, on cards that the holder cannot do without, keeps it waiting for ever; meanwhile those behind
//! it are kept away from the rest of these cards.

mod outlook;
mod spread;
mod sums;
mod wait;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tessera_ledger::{CardId, HostRequest, LogTime, NodeId, Span, State};

use crate::demand::Demand;
use crate::fit::affinity::demands_by_region;
use crate::index::Index;
use outlook::{Ends, Outlook};
use wait::Wait;

/// What is kept for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Cards.
    pub(crate) cards: Vec<CardId>,
    /// Room on hosts, whatever cards it is used by.
    pub(crate) hosts: BTreeMap<NodeId, HostRequest>,
    /// By when all of it is free, if that is known: the holder of the reservation starts no later.
    pub(crate) free_by: Option<LogTime>,
}

impl Kept {
    /// Keeps it from the jobs that are considered next, or lets them use it.
    pub(crate) fn set_hidden(&self, index: &mut Index, hidden: bool) {
        index.set_hidden(&self.cards, hidden);
        for (node, request) in &self.hosts {
            index.set_host_hidden(*node, *request, hidden);
        }
    }

    /// The same where it is known whether it is kept from them now.
    pub(crate) fn change(&self, index: &mut Index, hidden: &mut bool, hide: bool) {
        if *hidden != hide {
            self.set_hidden(index, hide);
            *hidden = hide;
        }
    }

    /// The cards of which more can be used without it: those where `other` does not keep as much.
    pub(crate) fn beyond(&self, index: &Index, other: &Self) -> Vec<CardId> {
        let kept: BTreeSet<CardId> = other.cards.iter().copied().collect();
        let cards = self.cards.iter().copied().filter(|card| !kept.contains(card));
        let less = |(node, request): &(&NodeId, &HostRequest)| {
            other.hosts.get(node).is_none_or(|kept| !request.fits_in(*kept))
        };
        let hosts = self.hosts.iter().filter(less).flat_map(|(node, _)| index.usable_cards(*node));
        cards.chain(hosts.map(|freed| freed.0)).collect()
    }
}

/// What would be kept, and how long it takes until all of it is free.
#[derive(Debug)]
struct Choice {
    wait: Wait,
    kept: Kept,
}

/// What to keep for a gang; `None` when the pool could not hold it even if everything ended.
pub(crate) fn find(index: &mut Index, state: &State, demand: &Demand) -> Option<Kept> {
    index.read_schedules(state);
    let choice = choose(index, state, demand, Ends::InTime)?;
    Some(Kept { free_by: choice.wait.over(), ..choice.kept })
}

/// Whether the pool could hold a gang if everything ended that runs on nodes which take new work. Gangs whose virtual cards spread could be
/// divided in many ways: in doubt, that it could.
pub(crate) fn could_hold(index: &Index, state: &State, demand: &Demand) -> bool {
    choose(index, state, demand, Ends::AtOnce).is_some()
}

/// The best choice of all, by exact division if there is one, else by sums.
fn choose(index: &Index, state: &State, demand: &Demand, ends: Ends) -> Option<Choice> {
    let demands = demands_by_region(index, demand);
    let best = |loose| {
        let choices = demands.iter().filter_map(|demand| in_region(index, state, demand, ends, loose));
        choices.min_by_key(|choice| choice.wait)
    };
    best(false).or_else(|| best(true))
}

/// The best choice among the nodes that a demand accepts. With `loose`, virtual cards that spread are counted by sums.
fn in_region(index: &Index, state: &State, demand: &Demand, ends: Ends, loose: bool) -> Option<Choice> {
    let ids: Vec<NodeId> = match &demand.within {
        Some(nodes) => nodes.iter().copied().collect(),
        None => index.nodes().map(|(id, _)| id).collect(),
    };
    let outlook = |id| Some((id, Outlook::of(index, state, demand, id, ends)?));
    if demand.span == Span::Card {
        let bound = |id: NodeId| Some(Reverse((outlook::cheap_bound(index, demand, id, ends)?, id, Looked::NotYet)));
        return on_nodes(demand, BTreeMap::new(), ids.into_iter().filter_map(bound).collect(), outlook, loose);
    }
    let outlooks: BTreeMap<NodeId, Outlook<'_>> = ids.into_iter().filter_map(outlook).collect();
    let spread =
        (demand.span == Span::Pool).then(|| spread::over_nodes(index, demand, outlooks.values(), loose)).flatten();
    let bounds =
        outlooks.iter().filter_map(|(id, outlook)| Some(Reverse((outlook.first_bound()?, *id, Looked::AtBound))));
    let heap = bounds.collect();
    on_nodes(demand, outlooks, heap, outlook, loose).into_iter().chain(spread).min_by_key(|choice| choice.wait)
}

/// How closely a node was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Looked {
    /// Only at what its cards have free.
    NotYet,
    /// At what its first seat takes at least.
    AtBound,
    /// At its next seat.
    Closely,
}

/// Nodes by how long their next seats take at least.
type Bounds = BinaryHeap<Reverse<(Wait, NodeId, Looked)>>;

/// Virtual cards taken on a node.
#[derive(Debug, Default)]
struct Taken {
    members: u32,
    /// How many on each card, where each needs one.
    cards: BTreeMap<usize, u32>,
}

/// The soonest room for each virtual card, each on one card or one node.
fn on_nodes<'a>(
    demand: &Demand,
    mut outlooks: BTreeMap<NodeId, Outlook<'a>>,
    mut heap: Bounds,
    look: impl Fn(NodeId) -> Option<(NodeId, Outlook<'a>)>,
    loose: bool,
) -> Option<Choice> {
    let mut taken: BTreeMap<NodeId, Taken> = BTreeMap::new();
    let (mut count, mut wait) = (0, wait::NONE);
    while count < demand.gang {
        // A node is looked at closely only when its turn comes.
        let Reverse((bound, id, looked)) = heap.pop()?;
        if looked == Looked::NotYet {
            outlooks.extend(look(id));
        }
        let Some(outlook) = outlooks.get(&id) else { continue };
        let there = taken.entry(id).or_default();
        let Some(seat) = outlook.next_seat(&there.cards, there.members, loose) else { continue };
        if looked != Looked::Closely && seat.wait > bound {
            heap.push(Reverse((seat.wait, id, Looked::Closely)));
            continue;
        }
        there.members += 1;
        if let Some(card) = seat.card {
            *there.cards.entry(card).or_default() += 1;
        }
        (count, wait) = (count + 1, wait.max(seat.wait));
        heap.push(Reverse((seat.wait, id, Looked::AtBound)));
    }
    let mut kept = Kept::default();
    for (id, there) in taken.iter().filter(|(_, there)| there.members > 0) {
        let outlook = &outlooks[id];
        match demand.span {
            _ if !demand.wishes.avoid().is_empty() => kept.cards.extend(outlook.all()),
            Span::Card => kept.cards.extend(there.cards.keys().map(|place| outlook.card(*place))),
            Span::Node | Span::Pool => kept.cards.extend(outlook.usable()),
        }
        kept.hosts.extend(outlook.host_for(there.members));
    }
    Some(Choice { wait, kept })
}
