//! The model that a plan is carried out on: only the cards that the plan names, as plain lists of blocks.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{BlockState, Card, CardId, HostRequest, JobId, NodeId, QueueAmount, Slice, State};

use crate::{Holder, Problem};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Free,
    /// Cannot be used.
    Offline,
    /// Held and able to move.
    Movable(Holder),
    /// Held, and not able to move: lost, or spoken for by another job.
    Fixed,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelCard {
    pub(crate) blocks: Vec<Block>,
    pub(crate) offered: u32,
    pub(crate) memory_free: u64,
    pub(crate) slices: u32,
    pub(crate) max_slices: u32,
    pinned: bool,
}

impl ModelCard {
    fn of(card: &Card) -> Self {
        let mut blocks = Vec::new();
        for extent in card.extents.as_slice() {
            let block = match extent.state {
                BlockState::Free => Block::Free,
                BlockState::Offline => Block::Offline,
                BlockState::Held(owner) | BlockState::Running(owner) | BlockState::Draining { owner, next: None } => {
                    Block::Movable(Holder::Granted(owner.allocation))
                }
                BlockState::Lost(_) | BlockState::Draining { .. } => Block::Fixed,
            };
            blocks.extend(std::iter::repeat_n(block, extent.length.0 as usize));
        }
        Self {
            blocks,
            offered: card.blocks.0,
            memory_free: card.memory_free().0,
            slices: card.slices,
            max_slices: card.description.max_slices,
            pinned: card.memory_promised.0 > 0,
        }
    }

    /// The blocks of a slice; `None` when it leaves what the card offers.
    pub(crate) fn blocks_of(&mut self, slice: &Slice) -> Option<&mut [Block]> {
        let end = slice.start.0.checked_add(slice.length.0).filter(|end| *end <= self.offered && slice.length.0 > 0)?;
        self.blocks.get_mut(slice.start.0 as usize..end as usize)
    }

    fn renumber(&mut self) -> bool {
        let offline_at_end = self.blocks.iter().rev().skip_while(|block| **block == Block::Offline);
        let movable = offline_at_end.clone().all(|block| matches!(block, Block::Free | Block::Movable(_)));
        if !movable || self.pinned {
            return false;
        }
        let used: Vec<Block> = self.blocks.iter().copied().filter(|block| matches!(block, Block::Movable(_))).collect();
        let rest = used.len()..self.blocks.len();
        let offered = self.offered as usize;
        let free = rest.map(|position| if position < offered { Block::Free } else { Block::Offline });
        self.blocks = used.into_iter().chain(free).collect();
        true
    }

    pub(crate) fn pin(&mut self) {
        self.pinned = true;
    }
}

/// The amounts that a queue holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// In all.
    pub(crate) used: QueueAmount,
    /// Without what is on its way back.
    pub(crate) standing: QueueAmount,
    /// The part of `standing` that non-preemptible jobs hold.
    pub(crate) firm: QueueAmount,
}

/// The state as the parts before have left it.
pub(crate) struct World<'a> {
    pub(crate) state: &'a State,
    cards: BTreeMap<CardId, ModelCard>,
    pub(crate) queues: BTreeMap<String, Held>,
    /// The host resources that the parts before took.
    pub(crate) hosts: BTreeMap<NodeId, HostRequest>,
    /// Cards that the parts before took whole.
    pub(crate) taken_whole: BTreeSet<CardId>,
    /// The nodes on which the parts before have placed jobs.
    pub(crate) placed: Vec<(NodeId, JobId)>,
    /// Jobs that got an allocation.
    pub(crate) granted: BTreeSet<JobId>,
    /// Jobs that are preempted or evicted.
    pub(crate) leaving: BTreeSet<JobId>,
}

impl<'a> World<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        let held = |queue: &tessera_ledger::Queue| Held {
            used: queue.used,
            standing: queue.used.minus(queue.leaving),
            firm: queue.firm,
        };
        let queues = state.queues().map(|queue| (queue.settings.name.clone(), held(queue))).collect();
        Self {
            state,
            cards: BTreeMap::new(),
            queues,
            hosts: BTreeMap::new(),
            taken_whole: BTreeSet::new(),
            placed: Vec::new(),
            granted: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    pub(crate) fn card(&mut self, id: CardId) -> Option<&mut ModelCard> {
        let card = self.state.card(id)?;
        Some(self.cards.entry(id).or_insert_with(|| ModelCard::of(card)))
    }

    pub(crate) fn renumber(&mut self, id: CardId) -> Result<(), Vec<Problem>> {
        let done = self.card(id).is_some_and(ModelCard::renumber);
        if done { Ok(()) } else { Err(vec![Problem::CardPinned(id)]) }
    }

    /// The queue and those above it.
    pub(crate) fn queue_line(&self, name: &str) -> Vec<String> {
        let mut line: Vec<String> = Vec::new();
        let mut next = name.to_owned();
        while let Some(queue) = self.state.queue(&next) {
            if line.contains(&next) {
                break;
            }
            line.push(next);
            next = queue.settings.parent.clone();
        }
        line
    }
}
