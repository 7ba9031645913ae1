//! The leader's knowledge of nodes and cards beside the ledger: sessions and readings. Other members leave it out.

use tessera_api::time::timestamp;
use tessera_api::{pool_view, v1};
use tessera_consensus::Leadership;
use tessera_ledger::wire::duration_to_wire;
use tessera_ledger::{Card, CardId, LogTime, Node, State};

use crate::services::Desk;
use tessera_controller::telemetry::CardReading;

impl Desk {
    /// A node with its agent's session.
    pub(super) fn live_node(&self, state: &State, node: &Node) -> v1::Node {
        let mut view = pool_view::node(state, node);
        if matches!(&*self.pool.leadership().borrow(), Leadership::Leading { .. }) {
            let session = self.pool.telemetry().session(node.id);
            view.session = Some(v1::NodeSession {
                connected: session.is_some(),
                since_heartbeat: session.map(|session| duration_to_wire(session.heard_at.elapsed())),
            });
        }
        view
    }

    /// A card with its newest readings.
    pub(super) fn live_card(&self, state: &State, id: CardId, card: &Card) -> v1::Card {
        let mut view = pool_view::card(state, id, card);
        if let Some(reading) = self.pool.telemetry().newest(id) {
            let millis = u64::try_from(reading.at.elapsed().as_millis()).unwrap_or(u64::MAX);
            view.sampled_at = Some(timestamp(LogTime(self.pool.log_time().0.saturating_sub(millis))));
            view.sample = Some(sample(id, reading));
        }
        view
    }
}

fn sample(id: CardId, reading: CardReading) -> v1::CardSample {
    v1::CardSample {
        card_index: id.index,
        utilization_ratio: reading.utilization_ratio,
        memory_used_bytes: reading.memory_used_bytes,
        temperature_celsius: reading.temperature_celsius,
        power_watts: reading.power_watts,
        time_slicing: reading.time_slicing,
        unread: reading.unread,
    }
}
