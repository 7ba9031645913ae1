//! The changes of the map, found once for all who watch.

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::State;
use tokio::sync::{Mutex, broadcast, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, sleep_until};

use super::rows::{Map, Step};
use tessera_controller::pool::PoolHandle;
use tessera_controller::telemetry::Telemetry;

/// Pause after changes were sent: what happens meanwhile is sent together.
const PACE: Duration = Duration::from_millis(250);

/// Pause after the whole map was sent: while nodes come one by one, each of them would have it sent to all.
const WHOLE: Duration = Duration::from_secs(2);

/// Pause between two looks at what is used: agents tell it every two seconds.
const READINGS: Duration = Duration::from_secs(4);

/// Changes that wait for a watcher before it is cut.
const BEHIND: usize = 64;

/// A text that all who are told it share.
#[derive(Clone, Debug)]
pub(super) struct Text(Arc<str>);

impl Text {
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// The name of the event that is the whole map.
pub(super) const WHOLE_MAP: &str = "map";

/// The name of an event and its data.
pub(super) type Told = (&'static str, Text);

/// The changes of the map. Found only while somebody watches. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Feed {
    shared: Arc<Mutex<Option<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    map: Map,
    /// The map as JSON, while it has not changed since somebody asked.
    whole: Option<Text>,
    changes: broadcast::Sender<Told>,
}

impl Feed {
    /// The map as it is, and its changes from then on.
    pub(super) async fn join(&self, pool: &PoolHandle) -> Result<(Text, broadcast::Receiver<Told>), JoinError> {
        // In a task of its own: whoever asked may give up half-way, and others watch what it works on.
        tokio::spawn(self.clone().joined(pool.clone())).await?
    }

    async fn joined(self, pool: PoolHandle) -> Result<(Text, broadcast::Receiver<Told>), JoinError> {
        let mut place = self.shared.lock().await;
        let found = match place.take() {
            Some(found) => found,
            None => {
                let states = pool.view().changes();
                let map = Map::read(pool.view().current(), pool.telemetry().clone()).await?;
                let changes = broadcast::Sender::new(BEHIND);
                tokio::spawn(self.clone().follow(states, pool.telemetry().clone(), changes.clone()));
                Shared { map, whole: None, changes }
            }
        };
        let found = match found.whole {
            Some(_) => found,
            // Away from the threads that serve: at 100,000 cards it takes tens of milliseconds.
            None => tessera_consensus::try_blocking(move || written(found)).await?,
        };
        let whole = found.whole.clone().unwrap_or_else(|| found.map.whole().into());
        let changes = found.changes.subscribe();
        *place = Some(found);
        Ok((whole, changes))
    }

    /// Follows the published states until nobody watches.
    async fn follow(
        self,
        mut states: watch::Receiver<Arc<State>>,
        telemetry: Telemetry,
        changes: broadcast::Sender<Told>,
    ) {
        let mut measured_at = Instant::now();
        loop {
            let alive = tokio::select! {
                changed = states.changed() => changed.is_ok(),
                () = changes.closed() => true,
                () = sleep_until(measured_at + READINGS) => true,
            };
            let measure = measured_at.elapsed() >= READINGS;
            if measure {
                measured_at = Instant::now();
            }
            let mut shared = self.shared.lock().await;
            if !alive || changes.receiver_count() == 0 {
                *shared = None;
                return;
            }
            let state = Arc::clone(&states.borrow_and_update());
            let Some(now) = shared.take() else { return };
            // Away from the threads that serve: at 100,000 cards it takes milliseconds.
            let own = telemetry.clone();
            let advance = move || advanced(now, &state, &own, measure);
            let Ok((now, told)) = tessera_consensus::try_blocking(advance).await else { return };
            let pause = if matches!(told, Some((WHOLE_MAP, _))) { WHOLE } else { PACE };
            if let Some(told) = told {
                // Nobody may be left to hear it.
                let _ = now.changes.send(told);
            }
            *shared = Some(now);
            drop(shared);
            sleep(pause).await;
        }
    }
}

fn written(shared: Shared) -> Shared {
    Shared { whole: Some(shared.map.whole().into()), ..shared }
}

fn advanced(mut shared: Shared, state: &State, telemetry: &Telemetry, measure: bool) -> (Shared, Option<Told>) {
    let told: Option<Told> = match shared.map.advance(state, telemetry, measure) {
        Step::Same => return (shared, None),
        Step::Changed(rows) => {
            shared.whole = None;
            Some(("changed", rows.into()))
        }
        Step::Anew => {
            let whole: Text = shared.map.whole().into();
            shared.whole = Some(whole.clone());
            Some((WHOLE_MAP, whole))
        }
    };
    (shared, told)
}
