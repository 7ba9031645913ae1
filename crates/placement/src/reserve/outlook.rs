//! What the cards of one node could hold for a request, and how soon.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{HostRequest, LogTime, NodeId, Span};

use super::{Kept, NONE, Sought, Wait, millionths, until_host};
use crate::demand::{Demand, Offer};
use crate::fit::seats::{Site, Sums};
use crate::fit::share::Candidate;
use crate::index::Index;
use crate::index::card::CardEntry;
use crate::index::node::NodeEntry;
use crate::index::schedule::{Held, NEVER, Schedule, end_of};
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
    /// What its host could give if nothing else ran there, beside what is kept for others; `None` when that does
    /// not matter.
    host: Option<HostRequest>,
    /// Until jobs are over that are to be avoided.
    company: Wait,
}

/// Room for one more virtual card on a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) wait: Wait,
    /// Where, if it must be on one card.
    pub(super) card: Option<usize>,
}

/// What is held on a node as time goes by.
struct Future<'a> {
    schedule: &'a Schedule,
    held: Vec<Held>,
    next: usize,
    at: LogTime,
}

impl<'a> Future<'a> {
    fn new(schedule: &'a Schedule, cards: usize) -> Self {
        let mut held = vec![Held::default(); cards];
        for release in &schedule.releases {
            let card = &mut held[release.card];
            card.blocks += u64::from(release.blocks);
            card.memory = card.memory.saturating_add(release.memory);
            card.slices += 1;
        }
        Self { schedule, held, next: 0, at: NONE.at }
    }

    /// Goes on to the next time that something comes back; answers of which card.
    fn advance(&mut self) -> Option<usize> {
        let release = self.schedule.releases.get(self.next).filter(|release| release.at != NEVER)?;
        self.next += 1;
        self.at = release.at;
        let card = &mut self.held[release.card];
        card.blocks -= u64::from(release.blocks);
        card.memory = card.memory.saturating_sub(release.memory);
        card.slices -= 1;
        Some(release.card)
    }

    /// Goes on to the end of everything that ends by then.
    fn advance_to(&mut self, at: LogTime) {
        while self.schedule.releases.get(self.next).is_some_and(|release| release.at <= at) && self.advance().is_some()
        {
        }
    }
}

impl<'a> Outlook<'a> {
    /// What a node is for a request; `None` when it has nothing for it. The index must know the node's schedule.
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
        Some(Self { index, demand, id, node, schedule, cards, host, company })
    }

    /// How long until the host has room for so many workers, and nobody to be avoided is there.
    pub(super) fn surroundings(&self, workers: u32) -> Option<Wait> {
        let Some(host) = self.host else { return Some(self.company) };
        let needed = self.demand.host.times(workers);
        Some(until_host(host, &self.schedule, needed)?.max(self.company))
    }

    /// What a card could offer when nobody holds anything of it.
    fn whole(&self, place: usize) -> Held {
        let (card, lost) = (&self.node.cards[place], self.schedule.lost[place]);
        let slices = if card.max_slices == 0 { u32::MAX } else { card.max_slices.saturating_sub(lost.slices) };
        Held { blocks: card.recoverable.into(), memory: card.memory.saturating_sub(lost.memory), slices }
    }

    /// Whether all of a card could be granted if nobody held anything of it.
    fn can_be_empty(&self, place: usize) -> bool {
        self.node.cards[place].recoverable == self.node.cards[place].blocks && self.schedule.lost[place].slices == 0
    }

    /// The soonest room for one more virtual card beside so many on each card.
    pub(super) fn next_opening(&self, taken: &BTreeMap<usize, u32>, virtual_cards: u32) -> Option<Opening> {
        let around = self.surroundings(virtual_cards + 1)?;
        let opening = match self.demand.span {
            Span::Card => self.on_one_card(taken)?,
            Span::Node | Span::Pool => Opening { wait: self.on_node(virtual_cards + 1)?, card: None },
        };
        Some(Opening { wait: opening.wait.max(around), ..opening })
    }

    /// No more than how long the first opening of a virtual card takes; cheap.
    pub(super) fn first_bound(&self) -> Option<Wait> {
        let on_cards = match self.demand.span {
            Span::Card => self.bound_on_one_card(),
            Span::Node | Span::Pool => self.bound(1)?,
        };
        Some(on_cards.max(self.surroundings(1)?))
    }

    /// No more than how long it takes until one card has room for one virtual card.
    fn bound_on_one_card(&self) -> Wait {
        let memory = self.demand.memory;
        let short = |(place, offer): &(usize, Offer)| {
            let card = &self.node.cards[*place];
            millionths(offer.need.saturating_sub(card.free.total()).into(), offer.need.into())
                .saturating_add(millionths(memory.saturating_sub(card.memory_free), memory))
        };
        let endless = self.cards.iter().map(short).min().unwrap_or(0);
        // Whatever ends at a known time could be what is missing.
        match self.schedule.first().filter(|_| endless > 0) {
            Some(at) => Wait { endless: 0, at },
            None => Wait { endless, at: NONE.at },
        }
    }

    fn on_one_card(&self, taken: &BTreeMap<usize, u32>) -> Option<Opening> {
        let mut future = self.future();
        let needed = |place: usize, offer: &Offer| {
            let count = taken.get(&place).copied().unwrap_or(0).saturating_add(1);
            let memory = if self.demand.whole_cards { self.node.cards[place].memory } else { self.demand.memory };
            Held {
                blocks: u64::from(offer.need).saturating_mul(count.into()),
                memory: memory.saturating_mul(count.into()),
                slices: count,
            }
        };
        let possible = self.cards.iter().filter_map(|(place, offer)| {
            let (needed, whole) = (needed(*place, offer), self.whole(*place));
            (fits(Held::default(), needed, whole) && (!self.demand.whole_cards || self.can_be_empty(*place)))
                .then_some((*place, needed, whole))
        });
        let possible: Vec<(usize, Held, Held)> = possible.collect();
        let opening = |wait, place| Some(Opening { wait, card: Some(place) });
        if let Some((place, ..)) =
            possible.iter().find(|(place, needed, whole)| fits(future.held[*place], *needed, *whole))
        {
            return opening(NONE, *place);
        }
        while let Some(place) = future.advance() {
            let known = possible.iter().find(|(card, ..)| *card == place);
            if known.is_some_and(|(_, needed, whole)| fits(future.held[place], *needed, *whole)) {
                return opening(Wait { endless: 0, at: future.at }, place);
            }
        }
        let missing =
            |(place, needed, whole): &(usize, Held, Held)| (missing(future.held[*place], *needed, *whole), *place);
        let (endless, place) = possible.iter().map(missing).min()?;
        opening(Wait { endless, at: future.at }, place)
    }

    /// What a card has left beside what is held of it, if the request can use that.
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

    /// How long until the node holds so many virtual cards.
    fn on_node(&self, virtual_cards: u32) -> Option<Wait> {
        let bound = self.bound(virtual_cards)?;
        let enough = |held: &[Held]| {
            let mut site = Site { cards: self.left(held).collect(), workers: virtual_cards };
            site.fill(self.index, self.demand, virtual_cards).len() == virtual_cards as usize
        };
        let times: BTreeSet<LogTime> = self.times().filter(|at| *at > bound.at).collect();
        let times: Vec<LogTime> = std::iter::once(bound.at).chain(times).collect();
        let held_at = |at: LogTime| {
            let mut future = self.future();
            future.advance_to(at);
            future.held
        };
        let last = times.last().copied().unwrap_or(NONE.at);
        if !enough(&held_at(last)) {
            return enough(&self.nothing_held()).then(|| Wait { endless: self.endless(&held_at(last)), at: last });
        }
        let first = times.partition_point(|time| !enough(&held_at(*time)));
        Some(Wait { endless: 0, at: times[first] })
    }

    /// When something comes back of the cards that it can use.
    fn times(&self) -> impl Iterator<Item = LogTime> {
        let usable = |card: usize| self.cards.iter().any(|(place, _)| *place == card);
        let ending = self.schedule.releases.iter().filter(|release| release.at != NEVER);
        ending.filter(move |release| usable(release.card)).map(|release| release.at)
    }

    /// How much of the cards that it can use is held, in millionths; not zero.
    fn endless(&self, held: &[Held]) -> u64 {
        let blocks: u64 = self.cards.iter().map(|(place, _)| held[*place].blocks).sum();
        let all: u64 = self.cards.iter().map(|(place, _)| u64::from(self.node.cards[*place].blocks)).sum();
        millionths(blocks, all).max(1)
    }

    /// No more than how long it takes until the node holds so many virtual cards, by sums; `None` when it is too small
    /// for them.
    fn bound(&self, virtual_cards: u32) -> Option<Wait> {
        let all = Sums::of(self.demand, self.left(&self.nothing_held()));
        if all.virtual_cards(self.demand) < virtual_cards {
            return None;
        }
        let mut future = self.future();
        let mut sums = Sums::of(self.demand, self.left(&future.held));
        while sums.virtual_cards(self.demand) < virtual_cards {
            let next = self.schedule.releases.get(future.next).map(|release| release.card);
            let before = next.map(|place| future.held[place]);
            let Some((place, before)) = future.advance().zip(before) else {
                return Some(Wait { endless: self.endless(&future.held), at: future.at });
            };
            let Some((_, offer)) = self.cards.iter().find(|(card, _)| *card == place) else { continue };
            sums.minus(&Sums::of(self.demand, self.candidate(place, *offer, before)));
            sums.plus(&Sums::of(self.demand, self.candidate(place, *offer, future.held[place])));
        }
        Some(Wait { endless: 0, at: future.at })
    }

    /// What the node gives to virtual cards that spread over nodes: how long until all is free that can be, without
    /// what jobs without a time limit hold, or with it.
    pub(super) fn part(&self, with_endless: bool) -> Option<Part> {
        let mut future = self.future();
        let at = self.times().max().unwrap_or(NONE.at);
        future.advance_to(at);
        let endless = self.cards.iter().any(|(place, _)| future.held[*place] != Held::default());
        let own = Wait { endless: if endless && with_endless { self.endless(&future.held) } else { 0 }, at };
        let wait = own.max(self.surroundings(1)?);
        // Beside jobs without a time limit, or as if nothing else ran there.
        let (held, on_host) = match with_endless {
            true => (self.nothing_held(), HostRequest::ZERO),
            false => {
                let endless = self.schedule.host.iter().filter(|(at, _)| *at == NEVER);
                (future.held, endless.fold(HostRequest::ZERO, |sum, (_, request)| sum.plus(*request)))
            }
        };
        (with_endless || wait.endless == 0).then(|| Part { wait, site: self.site(&held, on_host) })
    }

    /// The node with nothing held on it.
    pub(super) fn whole_site(&self) -> Site {
        self.site(&self.nothing_held(), HostRequest::ZERO)
    }

    /// The node beside what is held of its cards and of its host.
    fn site(&self, held: &[Held], on_host: HostRequest) -> Site {
        let workers = self.host.map_or(u32::MAX, |host| self.demand.workers_in(host.minus(on_host)));
        Site { cards: self.left(held).collect(), workers }
    }

    /// What its cards have left beside what is held.
    fn left(&self, held: &[Held]) -> impl Iterator<Item = Candidate> {
        self.cards.iter().filter_map(|(place, offer)| self.candidate(*place, *offer, held[*place]))
    }

    fn nothing_held(&self) -> Vec<Held> {
        vec![Held::default(); self.node.cards.len()]
    }

    fn future(&self) -> Future<'_> {
        Future::new(&self.schedule, self.node.cards.len())
    }

    /// The cards to keep there for so many workers: those that are given, else all that the request can use. Where jobs
    /// are to be avoided, all that are not kept for others, so that nobody comes by way of them; and what of the host.
    pub(super) fn keep(&self, kept: &mut Kept, workers: u32, given: Option<&BTreeMap<usize, u32>>) {
        let card = |place: &usize| self.node.cards[*place].id;
        match given {
            _ if !self.demand.affinity.avoid.is_empty() => {
                kept.cards.extend(self.node.cards.iter().filter(|card| !card.hidden).map(|card| card.id));
            }
            Some(given) => kept.cards.extend(given.keys().map(card)),
            None => kept.cards.extend(self.cards.iter().map(|(place, _)| card(place))),
        }
        let host = self.demand.host.times(workers);
        if self.node.host.is_some() && !host.is_zero() {
            kept.hosts.insert(self.id, host);
        }
    }
}

/// What a node gives to virtual cards that spread over nodes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) wait: Wait,
    pub(super) site: Site,
}

fn fits(held: Held, needed: Held, whole: Held) -> bool {
    held.blocks.saturating_add(needed.blocks) <= whole.blocks
        && held.memory.saturating_add(needed.memory) <= whole.memory
        && held.slices.saturating_add(needed.slices) <= whole.slices
}

fn missing(held: Held, needed: Held, whole: Held) -> u64 {
    let short =
        |held: u64, needed: u64, whole: u64| millionths(held.saturating_add(needed).saturating_sub(whole), needed);
    let slices = short(held.slices.into(), needed.slices.into(), whole.slices.into());
    short(held.blocks, needed.blocks, whole.blocks)
        .saturating_add(short(held.memory, needed.memory, whole.memory))
        .saturating_add(slices)
}
