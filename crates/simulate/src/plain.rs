//! The plain model: nodes with processors, memory and cards, and nothing else.
//!
//! It is independent of the ledger and of placement on purpose. The policies from the literature decide on it, and the
//! judge of the experiments keeps one beside whatever it judges: every placement is checked here, and a reject is only
//! believed when nothing fits here either.

use std::collections::BTreeMap;

use crate::trace::{Ask, TraceNode, WHOLE_CARD};

/// Models as bits; more models than bits share the last one's meaning "some other model", which never occurs in
/// practice because a list with more is refused by `Models::mask`.
#[derive(Clone, Debug, Default)]
pub struct Models {
    numbers: BTreeMap<String, u32>,
}

/// Most models that the plain model tells apart.
pub const MODEL_LIMIT: u32 = 127;

impl Models {
    /// The number of a model; a new one when it was not known.
    fn number(&mut self, model: &str) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(MODEL_LIMIT).min(MODEL_LIMIT);
        *self.numbers.entry(model.to_owned()).or_insert(next)
    }

    /// The models of a list as bits; all bits for an empty list. Models that no node has are no bits.
    fn mask<'a>(&self, models: impl ExactSizeIterator<Item = &'a String>) -> u128 {
        if models.len() == 0 {
            return u128::MAX;
        }
        models.filter_map(|model| self.numbers.get(model)).fold(0, |mask, number| mask | 1 << number)
    }
}

/// The request of one worker, with its models as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// Thousandths of a processor.
    pub cpu: u64,
    /// MiB of the host.
    pub memory: u64,
    pub cards: u32,
    /// Thousandths of each.
    pub milli: u32,
    /// MiB of each card.
    pub card_memory: u64,
    pub(crate) models: u128,
}

impl Request {
    /// Thousandths of a card in all.
    #[must_use]
    pub const fn all_cards_milli(&self) -> u64 {
        self.cards as u64 * self.milli as u64
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainNode {
    /// Free thousandths of a processor.
    pub cpu: u64,
    /// Free MiB.
    pub memory: u64,
    /// Free thousandths of each card.
    pub cards: Vec<u32>,
    /// Free MiB of each card, where it is known.
    pub card_memory: Option<Vec<u64>>,
    /// Thousandths of a processor of the empty node.
    pub cpu_capacity: u64,
    /// MiB of the empty node.
    pub memory_capacity: u64,
    /// The bit of the cards' model; no bit without cards.
    model: u128,
}

impl PlainNode {
    /// Free MiB of a card; no bound where it is not known.
    fn free_card_memory(&self, card: usize) -> u64 {
        self.card_memory.as_ref().and_then(|all| all.get(card)).copied().unwrap_or(u64::MAX)
    }

    #[must_use]
    pub fn card_fits(&self, card: usize, request: &Request) -> bool {
        let memory = self.free_card_memory(card);
        self.cards.get(card).is_some_and(|free| *free >= request.milli) && memory >= request.card_memory
    }

    /// Returns whether the node's cards are of a model asked for, or no card is asked for.
    #[must_use]
    pub const fn is_accepted_by(&self, request: &Request) -> bool {
        request.cards == 0 || self.model & request.models != 0
    }

    #[must_use]
    pub fn fits(&self, request: &Request) -> bool {
        if self.cpu < request.cpu || self.memory < request.memory || !self.is_accepted_by(request) {
            return false;
        }
        let mut wanted = request.cards;
        for card in 0..self.cards.len() {
            if wanted == 0 {
                break;
            }
            wanted -= u32::from(self.card_fits(card, request));
        }
        wanted == 0
    }

    /// The cards with room, in order.
    pub fn fitting_cards(&self, request: &Request) -> impl Iterator<Item = usize> {
        (0..self.cards.len()).filter(|card| self.card_fits(*card, request))
    }

    /// The number of such workers that fit beside each other.
    fn room(&self, request: &Request) -> u64 {
        if !self.is_accepted_by(request) {
            return 0;
        }
        let times = |free: u64, each: u64| free.checked_div(each).unwrap_or(u64::MAX);
        let of_card = |card: usize| {
            let memory = self.free_card_memory(card);
            times(self.cards[card].into(), request.milli.into()).min(times(memory, request.card_memory))
        };
        let cards = match request.cards {
            0 => u64::MAX,
            1 => (0..self.cards.len()).map(of_card).sum(),
            several => self.fitting_cards(request).count() as u64 / u64::from(several),
        };
        cards.min(times(self.cpu, request.cpu)).min(times(self.memory, request.memory))
    }

    /// Free thousandths of all cards.
    #[must_use]
    pub fn free_cards_milli(&self) -> u64 {
        self.cards.iter().map(|free| u64::from(*free)).sum()
    }

    fn change(&mut self, request: &Request, cards: &[usize], give: bool) {
        let change = |amount: &mut u64, by: u64| *amount = if give { *amount + by } else { *amount - by };
        change(&mut self.cpu, request.cpu);
        change(&mut self.memory, request.memory);
        for card in cards {
            let free = &mut self.cards[*card];
            *free = if give { *free + request.milli } else { *free - request.milli };
            if let Some(memory) = &mut self.card_memory {
                change(&mut memory[*card], request.card_memory);
            }
        }
    }
}

/// The place of one worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the node, from 0.
    pub node: usize,
    /// Its cards.
    pub cards: Vec<usize>,
}

/// The reason why a placement is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// No such node, or it lacks processors, memory or the right model.
    #[error("node {0} does not fit")]
    Node(usize),
    /// Not the number of cards asked for, or one twice, or one without room.
    #[error("the cards {cards:?} of node {node} do not fit")]
    Cards { node: usize, cards: Vec<usize> },
}

#[derive(Clone, Debug, Default)]
pub struct PlainCluster {
    /// The nodes in the order of their list.
    pub nodes: Vec<PlainNode>,
    models: Models,
}

impl PlainCluster {
    #[must_use]
    pub fn new(list: &[TraceNode]) -> Self {
        let mut models = Models::default();
        let nodes = list.iter().map(|node| PlainNode {
            cpu: node.cpu_milli,
            memory: node.memory_mib,
            cards: vec![WHOLE_CARD; node.cards as usize],
            card_memory: node.card_memory_mib.map(|memory| vec![memory; node.cards as usize]),
            cpu_capacity: node.cpu_milli,
            memory_capacity: node.memory_mib,
            model: if node.cards == 0 { 0 } else { 1 << models.number(&node.model) },
        });
        Self { nodes: nodes.collect(), models }
    }

    /// An ask with its models as bits.
    #[must_use]
    pub fn request(&self, ask: &Ask) -> Request {
        Request {
            cpu: ask.cpu_milli,
            memory: ask.memory_mib,
            cards: ask.cards,
            milli: ask.card_milli,
            card_memory: ask.card_memory_mib,
            models: self.models.mask(ask.models.iter()),
        }
    }

    /// Returns whether one worker fits anywhere.
    #[must_use]
    pub fn fits(&self, request: &Request) -> bool {
        self.nodes.iter().any(|node| node.fits(request))
    }

    /// Returns whether so many such workers fit at once.
    #[must_use]
    pub fn holds(&self, request: &Request, workers: u32) -> bool {
        let mut missing = u64::from(workers);
        self.nodes.iter().any(|node| {
            missing = missing.saturating_sub(node.room(request));
            missing == 0
        })
    }

    /// Takes what a worker asks for.
    ///
    /// # Errors
    /// [`Impossible`] when it does not fit there; then nothing changed.
    pub fn take(&mut self, request: &Request, place: &Place) -> Result<(), Impossible> {
        let node = self.nodes.get_mut(place.node).ok_or(Impossible::Node(place.node))?;
        if !node.fits(request) {
            return Err(Impossible::Node(place.node));
        }
        let mut once = place.cards.clone();
        once.sort_unstable();
        once.dedup();
        let right = once.len() == place.cards.len()
            && place.cards.len() == request.cards as usize
            && place.cards.iter().all(|card| node.card_fits(*card, request));
        if !right {
            return Err(Impossible::Cards { node: place.node, cards: place.cards.clone() });
        }
        node.change(request, &place.cards, false);
        Ok(())
    }

    /// Gives back what was taken there.
    pub fn give(&mut self, request: &Request, place: &Place) {
        if let Some(node) = self.nodes.get_mut(place.node) {
            node.change(request, &place.cards, true);
        }
    }

    /// Thousandths of a card that all nodes have when they are empty.
    #[must_use]
    pub fn capacity_milli(&self) -> u64 {
        self.nodes.iter().map(|node| node.cards.len() as u64 * u64::from(WHOLE_CARD)).sum()
    }

    /// Thousandths of a card that are free.
    #[must_use]
    pub fn free_milli(&self) -> u64 {
        self.nodes.iter().map(PlainNode::free_cards_milli).sum()
    }
}
