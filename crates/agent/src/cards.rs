//! The task that looks at the cards and at what workers use of them: readings for heartbeats and for the agent's page,
//! and changes of health.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tessera_actor::Address;
use tessera_api::fields::as_designation;
use tessera_api::v1 as wire;
use tessera_devices::{Hardware, HealthReport, NodeDevices};
use tessera_ledger::CardDescription;
use tessera_ledger::wire::card_to_wire;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::boot::BootTime;
use crate::node::{Event, Readings};
use crate::shell::Input;
use crate::turns::TurnBook;
use crate::worker::folder::WorkerFolders;
use crate::worker::{Measurable, Meter};

/// The interval between two readings.
const INTERVAL: Duration = Duration::from_secs(2);

/// The sources of the readings.
struct Looker {
    devices: Arc<Mutex<NodeDevices>>,
    hardware: Arc<[Hardware]>,
    meter: Meter,
    begin: BootTime,
    turns: TurnBook,
}

/// Looks until `end`.
pub async fn watch_cards(
    devices: Arc<Mutex<NodeDevices>>,
    folders: WorkerFolders,
    turns: TurnBook,
    node: Address<Input>,
    end: CancellationToken,
) {
    let hardware = {
        let devices = devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.cards().iter().map(|card| devices.hardware(card.index).unwrap_or_default()).collect()
    };
    let meter = Meter::new(folders);
    let looker = Looker { devices: Arc::clone(&devices), hardware, meter, begin: BootTime::now(), turns };
    let looker = Arc::new(Mutex::new(looker));
    loop {
        let deadline = Instant::now() + INTERVAL;
        // A node that does not answer now has its workers measured the next time.
        let workers = node.ask(Input::Measurable, deadline).await.unwrap_or_default();
        let own = Arc::clone(&looker);
        let look = move || own.lock().unwrap_or_else(PoisonError::into_inner).look(&workers);
        if let Ok((readings, changed)) = tokio::task::spawn_blocking(look).await {
            // A reading that finds no room is replaced by the next one.
            let _ = node.tell(Input::Event(Event::Measured(Box::new(readings))), Instant::now() + INTERVAL).await;
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

impl Looker {
    fn look(&mut self, workers: &[Measurable]) -> (Readings, Vec<HealthReport>) {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootTime::now();
        let since_start = self.begin.until(now);
        let cards = devices.sample(since_start);
        let mut workers: BTreeMap<_, _> = self.meter.look(workers, &mut devices, since_start, now);
        for (worker, used) in &mut workers {
            used.turns = self.turns.of_worker(*worker);
        }
        let slicing = devices.cards().iter().filter_map(|card| {
            let share = devices.caps(card.index)?.share;
            Some((card.index, self.turns.of_card(card.index, share)))
        });
        let slicing = slicing.collect();
        let at = Some(BootTime::now());
        let readings = Readings { at, hardware: Arc::clone(&self.hardware), cards, workers, slicing };
        (readings, devices.changed_health())
    }
}

/// The cards as they are declared to the leader.
pub(crate) fn cards_of(devices: &Mutex<NodeDevices>) -> Vec<wire::CardDescription> {
    devices.lock().unwrap_or_else(PoisonError::into_inner).cards().iter().map(declared).collect()
}

/// A card whose texts the leader takes: drivers and firmware have all kinds of bytes in theirs, and for the odd name of
/// one card the whole node would be refused.
fn declared(card: &CardDescription) -> wire::CardDescription {
    let card = card_to_wire(card);
    wire::CardDescription {
        vendor: as_designation(&card.vendor),
        model: as_designation(&card.model),
        uuid: as_designation(&card.uuid),
        pci_address: as_designation(&card.pci_address),
        ..card
    }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::CardKind;

    use super::*;

    #[test]
    fn the_odd_text_of_one_card_keeps_no_node_out() {
        let odd = CardDescription {
            vendor: "Some\nVendor".to_owned(),
            model: "\u{1b}[2JCard \"A\"\0".to_owned(),
            uuid: "GPU-1\u{202e}".to_owned(),
            pci_address: "0000:3b:00.0\n".to_owned(),
            ..tessera_testkit::card(CardKind::Gpu, 9, 1024)
        };
        let taken = tessera_api::agent::cards(vec![declared(&odd)]).expect("the leader takes it");
        let [card] = &taken[..] else { panic!("it is one card") };
        assert_eq!(
            [&card.vendor, &card.model, &card.uuid, &card.pci_address],
            ["SomeVendor", "[2JCard A", "GPU-1", "0000:3b:00.0"]
        );
    }
}
