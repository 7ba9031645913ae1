//! Total capacity of the pool's cards, by class: the few sums that tell at once that a demand can never be met (P5b).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::card::{Card, CardKind, Isolation, Precision};
use crate::host::{HostCapacity, HostRequest};
use crate::node::{Node, NodeState};
use crate::queue::QueueAmount;
use crate::rejection::Rejection;
use crate::spec::JobSpec;
use crate::state::State;
use crate::units::{Mebibytes, MilliTflops, Percent};
use crate::virtual_card::{DEVICE_LABEL, Span, VirtualCardRequest};

/// Cards that a request cannot tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardClass {
    pub kind: CardKind,
    pub vendor: String,
    pub model: String,
    /// Strongest isolation that it can promise.
    pub isolation: Isolation,
    /// Rates that the blocks of one card stand for together, by precision.
    pub rates: Vec<(Precision, MilliTflops)>,
    /// Memory of one card.
    pub memory: Mebibytes,
}

impl CardClass {
    /// The class of a card as it is now.
    #[must_use]
    pub fn of(card: &Card) -> Self {
        Self { isolation: card.isolation(), ..Self::lasting(card) }
    }

    /// The class of a card when whatever it holds has been given back: what decides whether a job can ever run.
    fn lasting(card: &Card) -> Self {
        let description = &card.description;
        let oversubscribed = card.oversubscription > Percent::WHOLE;
        Self {
            kind: description.kind,
            vendor: description.vendor.clone(),
            model: description.model.clone(),
            isolation: if oversubscribed { Isolation::Shared } else { description.isolation },
            rates: Precision::ALL
                .into_iter()
                .filter_map(|precision| Some((precision, card.rate(precision)?)))
                .collect(),
            memory: description.memory,
        }
    }

    /// Returns whether a job accepts such a card.
    #[must_use]
    pub fn is_accepted_by(&self, spec: &JobSpec) -> bool {
        spec.virtual_card.accepts(self.kind, &self.vendor, &self.model, self.isolation)
    }

    /// The rate of one card; zero when it cannot compute in that precision.
    #[must_use]
    pub fn rate(&self, precision: Precision) -> MilliTflops {
        self.rates.iter().find(|(known, _)| *known == precision).map_or(MilliTflops::ZERO, |(_, rate)| *rate)
    }
}

/// The cards of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stock {
    cards: u64,
    /// Number of these cards by the capacity of their host; `None`: hosts that declared none, and are not limited.
    hosts: BTreeMap<Option<HostCapacity>, u64>,
}

/// Number of cards by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    classes: BTreeMap<CardClass, Stock>,
}

impl Capacity {
    /// The classes and how many cards each has.
    pub fn classes(&self) -> impl Iterator<Item = (&CardClass, u64)> {
        self.classes.iter().map(|(class, stock)| (class, stock.cards))
    }

    /// Compute and memory of all cards.
    #[must_use]
    pub fn amount(&self, precision: Precision) -> QueueAmount {
        self.classes().fold(QueueAmount::default(), |sum, (class, cards)| {
            let all = |one: u64| one.saturating_mul(cards);
            let compute = MilliTflops(all(class.rate(precision).0));
            sum.plus(QueueAmount { compute, memory: Mebibytes(all(class.memory.0)) })
        })
    }

    /// Counts a card in that is on a host which offers so much.
    pub(crate) fn add(&mut self, card: &Card, host: Option<HostCapacity>) {
        let stock = self.classes.entry(CardClass::lasting(card)).or_default();
        stock.cards += 1;
        *stock.hosts.entry(host).or_insert(0) += 1;
    }

    /// The counterpart of [`Self::add`].
    pub(crate) fn remove(&mut self, card: &Card, host: Option<HostCapacity>) {
        let class = CardClass::lasting(card);
        let Some(stock) = self.classes.get_mut(&class) else { return };
        stock.cards -= 1;
        if let Some(cards) = stock.hosts.get_mut(&host) {
            *cards -= 1;
            if *cards == 0 {
                stock.hosts.remove(&host);
            }
        }
        if stock.cards == 0 {
            self.classes.remove(&class);
        }
    }

    /// Refuses a job that the whole pool could not run even if it were empty (P5b), naming the total.
    ///
    /// # Errors
    /// [`Rejection::ExceedsPool`], [`Rejection::ExceedsMemory`], [`Rejection::ExceedsCard`],
    /// [`Rejection::ExceedsCardMemory`], [`Rejection::ExceedsGang`] or [`Rejection::ExceedsHost`].
    pub fn admit(&self, spec: &JobSpec, reference: Precision) -> Result<(), Rejection> {
        let request = &spec.virtual_card;
        let precision = request.precision.unwrap_or(reference);
        let (mut total, mut total_memory, mut largest) = (0u128, 0u128, MilliTflops::ZERO);
        let (mut largest_memory, mut most) = (Mebibytes(0), 0u64);
        for (class, cards) in self.classes().filter(|(class, _)| class.is_accepted_by(spec)) {
            let rate = class.rate(precision);
            if rate == MilliTflops::ZERO {
                continue;
            }
            total += u128::from(rate.0) * u128::from(cards);
            total_memory += u128::from(class.memory.0) * u128::from(cards);
            largest = largest.max(rate);
            if rate >= request.compute || request.span != Span::Card {
                largest_memory = largest_memory.max(class.memory);
            }
            most = most.saturating_add(rooms(request, rate, class.memory).saturating_mul(cards));
        }
        let saturate = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        let least = *spec.gang_sizes().start();
        let demand = request.compute.saturating_mul(least);
        if u128::from(demand.0) > total {
            return Err(Rejection::ExceedsPool { demand, total: MilliTflops(saturate(total)) });
        }
        let memory = request.memory.saturating_mul(least);
        if u128::from(memory.0) > total_memory {
            return Err(Rejection::ExceedsMemory { demand_mib: memory.0, total_mib: saturate(total_memory) });
        }
        if request.span == Span::Card && request.compute > largest {
            return Err(Rejection::ExceedsCard { demand: request.compute, largest });
        }
        let on_one_card = if request.span == Span::Card { request.memory_on_one_card() } else { request.slice_memory };
        if on_one_card > largest_memory {
            let (demand_mib, largest_mib) = (on_one_card.0, largest_memory.0);
            return Err(Rejection::ExceedsCardMemory { demand_mib, largest_mib });
        }
        if request.span == Span::Card && most < u64::from(least) {
            return Err(Rejection::ExceedsGang { gang: least, most });
        }
        self.admit_to_hosts(spec, precision)
    }

    /// Refuses a job of whose hosts none is large enough for one worker, of those that have a card for it. A program
    /// that need not be with its card is not looked at: [`State::admit`] knows hosts without cards.
    fn admit_to_hosts(&self, spec: &JobSpec, precision: Precision) -> Result<(), Rejection> {
        let request = &spec.virtual_card;
        let least = if request.span == Span::Card { request.compute } else { MilliTflops(1) };
        let accepted = self.classes.iter().filter(|(class, _)| class.is_accepted_by(spec));
        let hosts = || {
            accepted
                .clone()
                .filter(|(class, _)| class.rate(precision) >= least)
                .flat_map(|(_, stock)| stock.hosts.keys())
        };
        let is_enough = |host: &Option<HostCapacity>| host.is_none_or(|host| spec.host.fits_in(host.whole()));
        if spec.host.is_zero() || spec.program_may_be_beside() || hosts().any(is_enough) {
            return Ok(());
        }
        Err(exceeds_host(spec, hosts().copied().flatten()))
    }
}

impl State {
    /// Refuses a job that the whole pool could not run even if it were empty: the cards of the pool, or the hosts for
    /// its programs.
    ///
    /// # Errors
    /// Those of [`Capacity::admit`].
    pub fn admit(&self, spec: &JobSpec) -> Result<(), Rejection> {
        self.capacity().admit(spec, self.config().reference_precision)?;
        // That a node serves devices is found out a while after it has joined, and counts as possible until then.
        let is_found_out = |key: &str| key == DEVICE_LABEL.0;
        let may = |node: &&Arc<Node>| {
            let asked = spec.node_labels.iter().filter(|(key, _)| !is_found_out(key));
            node.state != NodeState::Forgotten && node.description.carries(asked)
        };
        let hosts = || self.nodes().filter(may).map(|node| node.description.host);
        let is_enough = |host: Option<HostCapacity>| host.is_none_or(|host| spec.host.fits_in(host.whole()));
        let anywhere = spec.program_may_be_beside() && !spec.host.is_zero();
        if anywhere && !hosts().any(is_enough) { Err(exceeds_host(spec, hosts().flatten())) } else { Ok(()) }
    }
}

fn exceeds_host(spec: &JobSpec, hosts: impl Iterator<Item = HostCapacity>) -> Rejection {
    let most = hosts.fold(HostRequest::ZERO, |most, host| HostRequest {
        cpu: most.cpu.max(host.cpu),
        memory: most.memory.max(host.memory),
    });
    Rejection::ExceedsHost { demand: spec.host, most }
}

/// The most virtual cards that an empty card of such a rate and memory holds.
fn rooms(request: &VirtualCardRequest, rate: MilliTflops, memory: Mebibytes) -> u64 {
    let by_compute = rate.0.checked_div(request.compute.0).unwrap_or(u64::MAX);
    let by_memory = memory.0.checked_div(request.memory_on_one_card().0).unwrap_or(u64::MAX);
    by_compute.min(by_memory).min(if request.whole_cards { 1 } else { u64::MAX })
}
