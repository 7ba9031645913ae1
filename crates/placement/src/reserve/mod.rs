//! Reservations: the first job of a queue that does not fit, once it has waited long enough, keeps those behind it away
//! from the cards that will be free for it soonest, and from as much of their hosts as it needs. So small jobs fill
//! gaps without starving a big one.
//!
//! How soon something is free, time limits say ([`Wait`]); what jobs without one hold comes after everything else.
//! Nothing is counted on that was promised to another allocation or is lost. Where jobs are to be avoided, all cards of
//! the nodes are kept: those that are there end, and no new ones come.
//!
//! The choice depends on the present state alone, not on earlier choices. It comes to an end all the same, because what
//! is chosen never gets worse:
//!
//! * If all of it is free at a known time, those behind the holder may only use it if they are over by then. So the
//!   same cards are still free by that time in the next round, and others are chosen only when they are free no later:
//!   *the estimated start never moves back*, but by what jobs take to start and to stop, and by those that come before
//!   the holder.
//! * If jobs without a time limit hold some of it, nobody behind the holder may use it. What they hold only shrinks,
//!   and so does the time at which all else is free. Others are chosen only when they lack less, or as little and are
//!   free earlier; that happens a finite number of times, and in between what is kept becomes free as those jobs end.
//!
//! Only a job without a time limit that never ends, on cards that the holder cannot do without, keeps it waiting for
//! ever; meanwhile those behind it are kept away from the rest of these cards.

mod outlook;
mod program;
mod remembered;
mod spread;

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{CardId, HostRequest, LogTime, NodeId, Span, State};

use crate::demand::Demand;
use crate::fit::affinity::{considered, demands_by_region};
use crate::fit::seats;
use crate::index::Index;
use crate::index::schedule::{NEVER, Schedule};
use outlook::Outlook;
use remembered::{Nodes, Ranking};

pub(crate) use remembered::Remembered;

/// The room that is kept for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) cards: Vec<CardId>,
    /// Room on hosts, whatever cards it is used by.
    pub(crate) hosts: BTreeMap<NodeId, HostRequest>,
    /// By when all of it is free, if that is known: the holder of the reservation starts no later.
    pub(crate) free_by: Option<LogTime>,
    /// The time at which the last job without a time limit came to the cards; zero if there is none. Nobody else comes
    /// to them any more.
    pub(crate) endless_since: LogTime,
    /// True if it is kept from the jobs that are considered now.
    hidden: bool,
}

impl Kept {
    /// Keeps it from the jobs that are considered next, or lets them use it.
    pub(crate) fn set_hidden(&mut self, index: &mut Index, hidden: bool) {
        if std::mem::replace(&mut self.hidden, hidden) != hidden {
            index.set_hidden(&self.cards, hidden);
            self.hosts.iter().for_each(|(node, request)| index.set_host_hidden(*node, *request, hidden));
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
        cards.chain(hosts).collect()
    }
}

/// A measure of how soon something is free: the less, the sooner. What jobs without a time limit hold counts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wait {
    /// The part that jobs without a time limit must give back, in millionths: of the room needed on a host, or of each
    /// whole card, summed over the cards of a node.
    endless: u64,
    /// The time at which everything but that part is free; nobody knows when that part is.
    at: LogTime,
}

const NONE: Wait = Wait { endless: 0, at: LogTime(0) };

impl Wait {
    /// Until `at`; [`NEVER`] counts as something that a job without a time limit holds.
    fn until(at: LogTime) -> Self {
        if at == NEVER { Self { endless: 1_000_000, at: NONE.at } } else { Self { endless: 0, at } }
    }

    /// By when everything is free, if that is known.
    fn over(self) -> Option<LogTime> {
        (self.endless == 0).then_some(self.at)
    }
}

/// In millionths, rounded up, so that only nothing is zero.
fn millionths(part: u64, whole: u64) -> u64 {
    let share = (u128::from(part) * 1_000_000).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns the wait until a host has room for `workers`, the sum of the requests of all workers to be placed there;
/// `None` when they exceed `whole`, all that the host could ever give.
fn until_host(whole: HostRequest, schedule: &Schedule, workers: HostRequest) -> Option<Wait> {
    if !workers.fits_in(whole) {
        return None;
    }
    let mut held = schedule.host.iter().fold(HostRequest::ZERO, |sum, (_, request)| sum.plus(*request));
    let mut wait = NONE;
    for (at, request) in schedule.host.iter().filter(|(at, _)| *at != NEVER) {
        if held.plus(workers).fits_in(whole) {
            return Some(wait);
        }
        held = held.minus(*request);
        wait.at = *at;
    }
    let missing = held.plus(workers).minus(whole);
    wait.endless =
        millionths(missing.cpu.0, workers.cpu.0).saturating_add(millionths(missing.memory.0, workers.memory.0));
    Some(wait)
}

/// The room that would be kept, and the wait until all of it is free.
#[derive(Debug)]
struct Choice {
    wait: Wait,
    kept: Kept,
}

/// Finds the room to keep for a gang; `None` when the pool could not hold it even if everything ended.
pub(crate) fn find(index: &mut Index, remembered: &mut Remembered, state: &State, demand: &Demand) -> Option<Kept> {
    let choice = match demand.affinity.together.is_empty() {
        true => {
            let nodes = remembered.current(index, state, demand);
            among(Sought { index, state, demand }, nodes)
        }
        false => {
            let nodes: Vec<NodeId> = index.nodes().map(|(id, _)| id).collect();
            nodes.into_iter().for_each(|id| index.read_schedule(state, id));
            anywhere(Sought { index, state, demand })
        }
    }?;
    let choice = program::with_hosts(index, state, demand, choice)?;
    let endless_since = choice.kept.cards.iter().filter_map(|card| index.endless_since(*card)).max();
    Some(Kept { free_by: choice.wait.over(), endless_since: endless_since.unwrap_or(LogTime(0)), ..choice.kept })
}

/// Returns whether the pool could hold a gang once everything had ended that runs on nodes that take new work. The gang
/// is divided as if everything there were free.
pub(crate) fn could_hold(index: &Index, state: &State, demand: &Demand) -> bool {
    demands_by_region(index, demand).iter().any(|demand| {
        let sought = Sought { index, state, demand };
        let sites = considered(index, demand).into_iter().filter_map(|id| Outlook::idle(sought, id)?.whole_site());
        seats::divide_gang(index, demand, sites).is_ok()
    })
}

/// Room being sought for a request.
#[derive(Clone, Copy, Debug)]
struct Sought<'a> {
    index: &'a Index,
    state: &'a State,
    demand: &'a Demand,
}

impl<'a> Sought<'a> {
    fn outlook(self, id: NodeId) -> Option<Outlook<'a>> {
        Outlook::of(self, id)
    }
}

fn anywhere(sought: Sought<'_>) -> Option<Choice> {
    let choices = demands_by_region(sought.index, sought.demand).into_iter().filter_map(|demand| {
        let sought = Sought { demand: &demand, ..sought };
        among(sought, &Nodes::of(sought, &considered(sought.index, &demand)))
    });
    choices.min_by_key(|choice| choice.wait)
}

fn among(sought: Sought<'_>, nodes: &Nodes) -> Option<Choice> {
    let alone = on_nodes(sought, &nodes.seats);
    let spread = (sought.demand.span == Span::Pool).then(|| spread::over_nodes(sought, &nodes.parts)).flatten();
    alone.into_iter().chain(spread).min_by_key(|choice| choice.wait)
}

/// The soonest room for each virtual card, each on one card or one node.
fn on_nodes(sought: Sought<'_>, soonest: &Ranking<()>) -> Option<Choice> {
    let mut taken: BTreeMap<NodeId, (Outlook<'_>, u32)> = BTreeMap::new();
    // Nodes that were looked at, by how long their next seats take.
    let mut open: BTreeSet<(Wait, NodeId)> = BTreeSet::new();
    let mut others = soonest.order().peekable();
    let mut choice = Choice { wait: NONE, kept: Kept::default() };
    for _ in 0..sought.demand.gang {
        open.extend(others.next_if(|other| open.first().is_none_or(|first| *other < first)));
        let (wait, id) = open.pop_first()?;
        let (outlook, seats) = taken.remove(&id).or_else(|| Some((sought.outlook(id)?, 0)))?;
        open.extend(outlook.seats(seats + 2).map(|(wait, _)| (wait, id)));
        choice.wait = choice.wait.max(wait);
        taken.insert(id, (outlook, seats + 1));
    }
    for (outlook, count) in taken.values() {
        let (_, seats) = outlook.seats(*count)?;
        outlook.keep(&mut choice.kept, *count, (sought.demand.span == Span::Card).then_some(&seats));
    }
    Some(choice)
}
