//! Whose turn it is among the first jobs of all queues. A round of decisions begins with one entry per queue; what is
//! granted moves the queue's entry back, and nobody else's: entries that a grant has made out of date are found when
//! they come to the front.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::QueueAmount;
use tessera_ledger::state::WaitingKey;

use super::shape::LineId;
use crate::queues::Turn;

/// Where the first job of a queue stands among those of all queues; less is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The queue's turn.
    pub(crate) turn: Turn,
    /// The job's place in its queue; of equal queues the one goes first whose job does.
    pub(crate) key: WaitingKey,
    /// The queue.
    pub(crate) line: LineId,
}

/// The first job of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// Its place in its queue.
    pub(crate) key: WaitingKey,
    /// The least that it could be granted.
    pub(crate) least: QueueAmount,
}

/// The first jobs of all queues, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    positions: BTreeSet<Position>,
    by_line: BTreeMap<LineId, (Turn, First)>,
}

impl Order {
    /// Enters the first job of a queue, instead of the one that was known; `None`: it has none.
    pub(crate) fn set(&mut self, line: LineId, first: Option<First>, turn: impl FnOnce(QueueAmount) -> Turn) {
        if let Some((turn, first)) = self.by_line.remove(&line) {
            self.positions.remove(&Position { turn, key: first.key, line });
        }
        if let Some(first) = first {
            let turn = turn(first.least);
            self.by_line.insert(line, (turn.clone(), first));
            self.positions.insert(Position { turn, key: first.key, line });
        }
    }

    /// The first of all. Turns only move back while grants are counted in, so that an entry which comes to the front
    /// and is still right goes before all others; one that is not is entered anew.
    pub(crate) fn first(&mut self, turn: impl Fn(LineId, QueueAmount) -> Turn) -> Option<Position> {
        loop {
            let position = self.positions.first()?;
            let line = position.line;
            let first = self.by_line.get(&line)?.1;
            let now = turn(line, first.least);
            if now <= position.turn {
                return Some(position.clone());
            }
            self.set(line, Some(first), |_| now);
        }
    }
}
