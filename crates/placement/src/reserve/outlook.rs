//! The room that the cards of one node could offer a request, and how soon.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tessera_ledger::{CardId, HostRequest, NodeId, Span};

use super::{Kept, NONE, Sought, Wait, millionths, until_host};
use crate::demand::{Demand, Offer};
use crate::fit::seats::{Seat, Site, Sums};
use crate::fit::share::Candidate;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;
use crate::index::schedule::{Held, NEVER, Release, Schedule, end_of};
use crate::index::surroundings::carries;

/// One node, as far as a request can use it.
#[derive(Debug)]
pub(super) struct Outlook<'a> {
    index: &'a Index,
    demand: &'a Demand,
    pub(super) id: NodeId,
    node: &'a NodeEntry,
    schedule: Cow<'a, Schedule>,
    /// The cards that it can use, and what their classes do for it.
    cards: Vec<(usize, Offer)>,
    /// The capacity of its host if nothing else ran there, less what is kept for others; `None` when that does not
    /// matter.
    host: Option<HostRequest>,
    /// Until jobs are over that are to be avoided.
    company: Wait,
    /// Waits in ascending order, the first of them none: after each, less is held of the cards than after the one
    /// before. First come the ends of time limits, then cards that jobs without one hold.
    steps: Vec<Step>,
    /// The amounts held of each card, step by step.
    held: Vec<Held>,
}

/// A wait, and the amounts that are still held of a node after it.
#[derive(Debug)]
struct Step {
    wait: Wait,
    /// The position in [`Outlook::held`] at which the amounts held of its cards begin.
    first: usize,
}

impl<'a> Outlook<'a> {
    /// The outlook of a node for a request; `None` when it has nothing for it. The index must know the node's schedule.
    pub(super) fn of(sought: Sought<'a>, id: NodeId) -> Option<Self> {
        Self::with(sought, id, Cow::Borrowed(sought.index.node(id)?.schedule.as_deref()?))
    }

    /// The same when everything has ended that can: only what is lost stays.
    pub(super) fn idle(sought: Sought<'a>, id: NodeId) -> Option<Self> {
        Self::with(sought, id, Cow::Owned(Schedule::idle(sought.state, id, sought.index.node(id)?)))
    }

    fn with(Sought { index, state, demand }: Sought<'a>, id: NodeId, schedule: Cow<'a, Schedule>) -> Option<Self> {
        let node = index.node(id)?;
        let host = node.returning_host().filter(|_| !demand.host.is_zero());
        if !demand.accepts(node) || host.is_some_and(|whole| !demand.host.fits_in(whole)) {
            return None;
        }
        let single = demand.span == Span::Card;
        let offer = |card: &CardEntry| {
            let offer = *demand.offer_of(card.class)?;
            let possible = card.is_open() && (!single || demand.fits_one_card(&offer));
            possible.then_some(offer)
        };
        let cards: Vec<_> = (0..).zip(&node.cards).filter_map(|(place, card)| Some((place, offer(card)?))).collect();
        if cards.is_empty() {
            return None;
        }
        let avoid = &demand.affinity.avoid;
        let ends = (!avoid.is_empty()).then(|| {
            let carriers = index.surroundings.carriers(id, avoid);
            let there = carriers.filter_map(|id| state.allocation(id)).map(|there| end_of(state, there));
            let planned = index.surroundings.planned(id).iter().filter(|planned| carries(&planned.spec, avoid));
            there.chain(planned.map(|planned| planned.hold.end)).max()
        });
        let company = ends.flatten().map_or(NONE, Wait::until);
        let (steps, held) = steps(node, &schedule, &cards);
        Some(Self { index, demand, id, node, schedule, cards, host, company, steps, held })
    }

    /// Returns the wait until the host has room for `workers` workers, and no job to be avoided is there; `None`:
    /// never.
    pub(super) fn surroundings(&self, workers: u32) -> Option<Wait> {
        let Some(host) = self.host else { return Some(self.company) };
        let needed = self.demand.host.times(workers);
        Some(until_host(host, &self.schedule, needed)?.max(self.company))
    }

    /// The amounts that a card could offer if nobody held anything of it.
    fn whole(&self, place: usize) -> Held {
        let (card, lost) = (&self.node.cards[place], self.schedule.lost[place]);
        let slices = if card.max_slices == 0 { u32::MAX } else { card.max_slices.saturating_sub(lost.slices) };
        Held { blocks: card.recoverable.into(), memory: card.memory.saturating_sub(lost.memory), slices }
    }

    /// Returns whether all of a card could be granted if nobody held anything of it.
    fn can_be_empty(&self, place: usize) -> bool {
        self.node.cards[place].recoverable == self.node.cards[place].blocks && self.schedule.lost[place].slices == 0
    }

    /// Returns the wait until the node holds `virtual_cards` virtual cards, and their seats then; `None`: never.
    pub(super) fn seats(&self, virtual_cards: u32) -> Option<(Wait, Vec<Seat>)> {
        let around = self.surroundings(virtual_cards)?;
        let fill = |step: &Step| {
            let mut site = Site { cards: self.left(step).collect(), workers: virtual_cards };
            site.fill(self.index, self.demand, virtual_cards)
        };
        // Mostly it is the first step at which the sums are enough: to add up costs little, to divide much.
        let sums = |step: &Step| Sums::of(self.demand, self.left(step)).virtual_cards(self.demand);
        let by_sums = self.steps.partition_point(|step| sums(step) < virtual_cards);
        let (next, later) = self.steps.get(by_sums..)?.split_first()?;
        let is_short = |seats: &Vec<Seat>| seats.len() < virtual_cards as usize;
        let (mut step, mut seats) = (next, fill(next));
        if is_short(&seats) {
            step = later.get(later.partition_point(|step| is_short(&fill(step))))?;
            seats = fill(step);
        }
        Some((step.wait.max(around), seats))
    }

    /// The room that a card has left beside `held`, if the request can use it.
    fn candidate(&self, place: usize, offer: Offer, held: Held) -> Option<Candidate> {
        let (card, whole) = (&self.node.cards[place], self.whole(place));
        let free = u32::try_from(whole.blocks.saturating_sub(held.blocks)).unwrap_or(u32::MAX);
        let memory = whole.memory.saturating_sub(held.memory);
        let usable = free > 0 && held.slices < whole.slices && memory >= self.demand.slice_memory;
        let empty = !self.demand.whole_cards || held == Held::default() && self.can_be_empty(place);
        (usable && empty).then_some(Candidate {
            card: card.id,
            offer,
            free,
            memory,
            shares: whole.slices.saturating_sub(held.slices),
        })
    }

    /// The room that the node gives to virtual cards that spread over nodes, and the wait until all is free that can
    /// be: without the room that jobs without a time limit hold, or with it.
    pub(super) fn part(&self, with_endless: bool) -> Option<Part> {
        let step = self.steps.iter().rfind(|step| with_endless || step.wait.endless == 0)?;
        let wait = step.wait.max(self.surroundings(1)?);
        let endless = self.schedule.host.iter().filter(|(at, _)| *at == NEVER && !with_endless);
        let on_host = endless.fold(HostRequest::ZERO, |sum, (_, request)| sum.plus(*request));
        (with_endless || wait.endless == 0).then(|| Part { wait, site: self.site(step, on_host) })
    }

    /// The node with nothing held on it.
    pub(super) fn whole_site(&self) -> Option<Site> {
        Some(self.site(self.steps.last()?, HostRequest::ZERO))
    }

    /// The node beside what is held of its cards and of its host.
    fn site(&self, step: &Step, on_host: HostRequest) -> Site {
        let workers = self.host.map_or(u32::MAX, |host| self.demand.workers_in(host.minus(on_host)));
        Site { cards: self.left(step).collect(), workers }
    }

    /// The room that its cards have left beside the amounts held at a step.
    fn left(&self, step: &Step) -> impl Iterator<Item = Candidate> {
        let held = &self.held[step.first..];
        self.cards.iter().filter_map(|(place, offer)| self.candidate(*place, *offer, held[*place]))
    }

    /// The cards to keep there for so many workers, and what of the host: those of their seats where each needs one,
    /// else all that the request can use. Where jobs are to be avoided, all that are not kept for others, so that
    /// nobody comes by way of them.
    pub(super) fn keep(&self, kept: &mut Kept, workers: u32, seats: Option<&[Seat]>) {
        match seats {
            _ if !self.demand.affinity.avoid.is_empty() => {
                kept.cards.extend(self.node.cards.iter().filter(|card| !card.hidden).map(|card| card.id));
            }
            Some(seats) => {
                let cards: BTreeSet<CardId> = seats.iter().flatten().map(|share| share.card).collect();
                kept.cards.extend(cards);
            }
            None => kept.cards.extend(self.cards.iter().map(|(place, _)| self.node.cards[*place].id)),
        }
        let host = self.demand.host.times(workers);
        if self.node.host.is_some() && !host.is_zero() {
            kept.hosts.insert(self.id, host);
        }
    }
}

/// The room that a node gives to virtual cards that spread over nodes, and the wait until it is free.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) wait: Wait,
    pub(super) site: Site,
}

/// Computes the amounts held of the cards of a node as time goes by: first time limits give theirs back; then, card by
/// card, the jobs without one do, those cards first of which they hold least. At the end nothing is held of the cards
/// that are used.
fn steps(node: &NodeEntry, schedule: &Schedule, cards: &[(usize, Offer)]) -> (Vec<Step>, Vec<Held>) {
    let mut held = vec![Held::default(); node.cards.len()];
    for release in &schedule.releases {
        let card = &mut held[release.card];
        card.blocks += u64::from(release.blocks);
        card.memory = card.memory.saturating_add(release.memory);
        card.slices += 1;
    }
    let (mut wait, mut steps, mut all) = (NONE, Vec::new(), Vec::new());
    let mut note = |wait, held: &[Held]| {
        steps.push(Step { wait, first: all.len() });
        all.extend_from_slice(held);
    };
    let is_used = |release: &&Release| cards.iter().any(|(place, _)| *place == release.card);
    for release in schedule.releases.iter().filter(|release| release.at != NEVER).filter(is_used) {
        if release.at > wait.at {
            note(wait, &held);
            wait.at = release.at;
        }
        let card = &mut held[release.card];
        card.blocks -= u64::from(release.blocks);
        card.memory = card.memory.saturating_sub(release.memory);
        card.slices -= 1;
    }
    let endless = |place: usize| {
        let (card, held) = (&node.cards[place], held[place]);
        let part = millionths(held.blocks, card.blocks.into()).max(millionths(held.memory, card.memory));
        (held != Held::default()).then_some((part.max(1), place))
    };
    let mut by_part: Vec<(u64, usize)> = cards.iter().filter_map(|(place, _)| endless(*place)).collect();
    by_part.sort_unstable();
    note(wait, &held);
    for (part, place) in by_part {
        (wait.endless, held[place]) = (wait.endless.saturating_add(part), Held::default());
        note(wait, &held);
    }
    (steps, all)
}
