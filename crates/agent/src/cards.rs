//! The task that looks at the cards: readings for heartbeats, and changes of health.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tessera_actor::Address;
use tessera_api::v1 as wire;
use tessera_devices::{HealthReport, NodeDevices, Sample};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::agent::cards_of;
use crate::boot::BootTime;
use crate::node::Event;
use crate::shell::Input;

/// How often the cards are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// Looks at the cards until `end`.
pub async fn watch_cards(devices: Arc<Mutex<NodeDevices>>, node: Address<Input>, end: CancellationToken) {
    let begin = BootTime::now();
    loop {
        let own = Arc::clone(&devices);
        let looked = tokio::task::spawn_blocking(move || look(&own, begin.until(BootTime::now()))).await;
        if let Ok((samples, changed)) = looked {
            let deadline = Instant::now() + INTERVAL;
            let samples = samples.iter().map(to_wire).collect();
            // A reading that finds no room is replaced by the next one.
            let _ = node.tell(Input::Event(Event::Samples(samples)), deadline).await;
            if !changed.is_empty() {
                for report in &changed {
                    tracing::warn!(card = report.card_index, health = ?report.health, reason = report.reason, "a card's health changed");
                }
                let cards = cards_of(&devices);
                if node.tell(Input::Event(Event::CardsChanged(cards)), deadline + INTERVAL * 30).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = sleep(INTERVAL) => {}
        }
    }
}

fn look(devices: &Mutex<NodeDevices>, since_start: Duration) -> (Vec<Sample>, Vec<HealthReport>) {
    let mut devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
    (devices.sample(since_start), devices.changed_health())
}

const fn to_wire(sample: &Sample) -> wire::CardSample {
    wire::CardSample {
        card_index: sample.card_index,
        utilization_ratio: sample.utilization,
        memory_used_bytes: sample.memory_used_bytes,
        temperature_celsius: sample.temperature_celsius,
        power_watts: sample.power_watts,
    }
}
