//! The measurements of agents, and their sessions. Nothing here is replicated: a new leader starts empty and receives
//! it all again within a heartbeat.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dashmap::DashMap;
use tessera_api::v1::{DeviceUse, TimeSlicing};
use tessera_ledger::{AllocationId, CardId, Epoch, NodeId, Owner, Percent, Rank};
use tokio::time::Instant;

/// Number of readings of a card that are retained, so that a short window can be judged.
const WINDOW: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub struct CardReading {
    /// The time at which it arrived here.
    pub at: Instant,
    /// Share of time the card computed, 0 to 1.
    pub utilization_ratio: f64,
    pub memory_used_bytes: u64,
    /// Degrees Celsius; absent when unknown.
    pub temperature_celsius: Option<f64>,
    /// `None` when unknown.
    pub power_watts: Option<f64>,
    /// The division of its time, as its agent reports it; absent when it does not.
    pub time_slicing: Option<TimeSlicing>,
    /// Nothing else of it is known.
    pub unread: bool,
}

/// The use of one card by a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SliceReading {
    /// Share of what it may compute there that it computed; 1 is all of it.
    pub utilization_ratio: f64,
    pub memory_used_bytes: u64,
    /// The activity of the worker's slice server there, if it has one.
    pub device: Option<DeviceUse>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerReading {
    /// The time at which it arrived here.
    pub at: Instant,
    /// The allocation's epoch.
    pub epoch: Epoch,
    /// Processors of the host that it keeps busy.
    pub processors: f64,
    pub host_memory_bytes: u64,
    /// Its slices by the card's index on the node.
    pub slices: BTreeMap<u32, SliceReading>,
}

/// The newest readings of a node's workers.
type NodeWorkers = BTreeMap<(AllocationId, Rank), WorkerReading>;

/// A node's session with this leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Counts up with every session of this process: a later one has replaced an earlier one.
    pub number: u64,
    pub since: Instant,
    pub heard_at: Instant,
}

/// A share of time in percent, rounded to tens.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 10
fn tenths(ratio: f64) -> Percent {
    Percent((ratio.clamp(0.0, 1.0) * 10.0).round() as u32 * 10)
}

/// Readings and sessions by node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    cards: Arc<DashMap<CardId, VecDeque<CardReading>>>,
    workers: Arc<DashMap<NodeId, NodeWorkers>>,
    sessions: Arc<DashMap<NodeId, SessionInfo>>,
}

impl Telemetry {
    #[must_use]
    pub fn newest(&self, card: CardId) -> Option<CardReading> {
        self.cards.get(&card)?.back().cloned()
    }

    /// The last readings of a card, oldest first.
    #[must_use]
    pub fn window(&self, card: CardId) -> Vec<CardReading> {
        self.cards.get(&card).map(|readings| readings.iter().cloned().collect()).unwrap_or_default()
    }

    /// The newest reading of a worker on its node.
    #[must_use]
    pub fn worker(&self, node: NodeId, allocation: AllocationId, epoch: Epoch, rank: Rank) -> Option<WorkerReading> {
        let workers = self.workers.get(&node)?;
        workers.get(&(allocation, rank)).filter(|reading| reading.epoch == epoch).cloned()
    }

    /// The use of a card by the worker that owns blocks of it, by its newest reading.
    #[must_use]
    pub fn slice(&self, card: CardId, owner: Owner) -> Option<SliceReading> {
        let workers = self.workers.get(&card.node)?;
        let reading = workers.get(&(owner.allocation, owner.rank)).filter(|reading| reading.epoch == owner.epoch)?;
        reading.slices.get(&card.index).copied()
    }

    /// The mean utilization of each node's cards over their last readings, in steps of ten percent, so that it changes
    /// seldom. Nodes without a reading of the utilization are not named.
    #[must_use]
    pub fn load(&self) -> BTreeMap<NodeId, Percent> {
        let mut nodes: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
        for readings in self.cards.iter() {
            for reading in readings.iter().filter(|reading| !reading.unread) {
                let sum = nodes.entry(readings.key().node).or_default();
                *sum = (sum.0 + reading.utilization_ratio.clamp(0.0, 1.0), sum.1 + 1.0);
            }
        }
        nodes.into_iter().map(|(node, (sum, count))| (node, tenths(sum / count.max(1.0)))).collect()
    }

    /// The session of a node with this leader, if it has one.
    #[must_use]
    pub fn session(&self, node: NodeId) -> Option<SessionInfo> {
        self.sessions.get(&node).map(|session| *session)
    }

    /// Number of nodes that have a session with this leader.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The time at which the most silent of the connected agents was last heard; `None` when no agent is connected.
    #[must_use]
    pub fn most_silent(&self) -> Option<Instant> {
        self.sessions.iter().map(|session| session.heard_at).min()
    }

    /// Keeps a reading and drops the oldest.
    pub(crate) fn note(&self, card: CardId, reading: CardReading) {
        let mut readings = self.cards.entry(card).or_default();
        if readings.len() == WINDOW {
            readings.pop_front();
        }
        readings.push_back(reading);
    }

    /// Forgets what was read of cards that are gone.
    pub(crate) fn keep(&self, is_there: impl Fn(CardId) -> bool) {
        self.cards.retain(|card, _| is_there(*card));
    }

    /// Takes over what is used on a node: workers that are not named are not there any more.
    pub(crate) fn note_workers(&self, node: NodeId, workers: NodeWorkers) {
        if workers.is_empty() {
            self.workers.remove(&node);
        } else {
            self.workers.insert(node, workers);
        }
    }

    /// A session began; answers the number of the one that it replaces.
    pub(crate) fn opened(&self, node: NodeId, session: SessionInfo) -> Option<u64> {
        self.sessions.insert(node, session).map(|older| older.number)
    }

    /// An agent was heard.
    pub(crate) fn heard(&self, node: NodeId, number: u64, at: Instant) {
        if let Some(mut session) = self.sessions.get_mut(&node).filter(|session| session.number == number) {
            session.heard_at = at;
        }
    }

    /// A session ended; one that replaced it stays.
    pub(crate) fn closed(&self, node: NodeId, number: u64) {
        if self.sessions.remove_if(&node, |_, session| session.number == number).is_some() {
            self.workers.remove(&node);
        }
    }

    /// Forgets everything: this member leads no more.
    pub(crate) fn clear(&self) {
        self.cards.clear();
        self.workers.clear();
        self.sessions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    fn session(number: u64) -> SessionInfo {
        let now = Instant::now();
        SessionInfo { number, since: now, heard_at: now }
    }

    #[tokio::test]
    async fn the_end_of_a_replaced_session_leaves_the_newer_one() {
        let telemetry = Telemetry::default();
        assert_eq!(telemetry.opened(NODE, session(1)), None);
        assert_eq!(telemetry.opened(NODE, session(2)), Some(1));
        telemetry.closed(NODE, 1);
        assert_eq!(telemetry.session(NODE).map(|session| session.number), Some(2));
        telemetry.closed(NODE, 2);
        assert_eq!(telemetry.session(NODE), None);
    }

    #[tokio::test]
    async fn only_a_short_window_of_readings_is_kept() {
        let telemetry = Telemetry::default();
        let card = CardId { node: NODE, index: 0 };
        for memory_used_bytes in 0..100 {
            let at = Instant::now();
            let reading = CardReading {
                at,
                utilization_ratio: 0.5,
                memory_used_bytes,
                temperature_celsius: None,
                power_watts: None,
                time_slicing: None,
                unread: false,
            };
            telemetry.note(card, reading);
        }
        assert_eq!(telemetry.window(card).len(), WINDOW);
        assert_eq!(telemetry.newest(card).map(|reading| reading.memory_used_bytes), Some(99));
    }

    #[test]
    fn the_load_of_a_node_is_that_of_its_cards_over_their_last_readings() {
        let telemetry = Telemetry::default();
        let reading = |utilization_ratio| CardReading {
            at: Instant::now(),
            utilization_ratio,
            memory_used_bytes: 0,
            temperature_celsius: None,
            power_watts: None,
            time_slicing: None,
            unread: false,
        };
        for (index, ratio) in [(0, 0.2), (0, 0.5), (1, 1.7)] {
            telemetry.note(CardId { node: NODE, index }, reading(ratio));
        }
        telemetry.note(CardId { node: NODE, index: 2 }, CardReading { unread: true, ..reading(0.0) });
        telemetry.note(CardId { node: NodeId(9), index: 0 }, CardReading { unread: true, ..reading(0.0) });
        assert_eq!(telemetry.load(), BTreeMap::from([(NODE, Percent(60))]));
    }

    #[test]
    fn what_was_read_of_a_card_that_is_gone_is_forgotten() {
        let telemetry = Telemetry::default();
        let cards = [0, 1].map(|index| CardId { node: NODE, index });
        for card in cards {
            let reading = CardReading {
                at: Instant::now(),
                utilization_ratio: 0.5,
                memory_used_bytes: 0,
                temperature_celsius: None,
                power_watts: None,
                time_slicing: None,
                unread: false,
            };
            telemetry.note(card, reading);
        }
        telemetry.keep(|card| card == cards[0]);
        assert_eq!(cards.map(|card| telemetry.newest(card).is_some()), [true, false]);
    }
}
