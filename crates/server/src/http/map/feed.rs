//! The changes of the map, found once for all who watch.

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::State;
use tokio::sync::{Mutex, broadcast, watch};
use tokio::task::JoinError;
use tokio::time::sleep;

use super::rows::{Map, Step};
use tessera_controller::pool::PoolHandle;

/// Pause after changes were sent: what happens meanwhile is sent together.
const PACE: Duration = Duration::from_millis(250);

/// Changes that wait for a watcher before it is cut.
const BEHIND: usize = 64;

/// The name of an event and its data.
pub(super) type Told = (&'static str, Arc<str>);

/// The changes of the map. Found only while somebody watches. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Feed {
    shared: Arc<Mutex<Option<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    map: Map,
    /// The map as JSON, while it has not changed since somebody asked.
    whole: Option<Arc<str>>,
    changes: broadcast::Sender<Told>,
}

impl Feed {
    /// The map as it is, and its changes from then on.
    pub(super) async fn join(&self, pool: &PoolHandle) -> Result<(Arc<str>, broadcast::Receiver<Told>), JoinError> {
        let mut shared = self.shared.lock().await;
        if shared.is_none() {
            let states = pool.view().changes();
            let map = Map::read(pool.view().current()).await?;
            let changes = broadcast::Sender::new(BEHIND);
            tokio::spawn(self.clone().follow(states, changes.clone()));
            *shared = Some(Shared { map, whole: None, changes });
        }
        let Some(shared) = shared.as_mut() else { unreachable!("it was just filled, under the same lock") };
        let whole = shared.whole.get_or_insert_with(|| Arc::from(shared.map.whole()));
        Ok((Arc::clone(whole), shared.changes.subscribe()))
    }

    /// Follows the published states until nobody watches.
    async fn follow(self, mut states: watch::Receiver<Arc<State>>, changes: broadcast::Sender<Told>) {
        loop {
            let alive = tokio::select! {
                changed = states.changed() => changed.is_ok(),
                () = changes.closed() => true,
            };
            let mut shared = self.shared.lock().await;
            if !alive || changes.receiver_count() == 0 {
                *shared = None;
                return;
            }
            let state = Arc::clone(&states.borrow_and_update());
            let Some(now) = shared.take() else { return };
            // Away from the threads that serve: at 100,000 cards it takes milliseconds.
            let Ok((now, told)) = tessera_consensus::try_blocking(move || advanced(now, &state)).await else { return };
            if let Some(told) = told {
                // Nobody may be left to hear it.
                let _ = now.changes.send(told);
            }
            *shared = Some(now);
            drop(shared);
            sleep(PACE).await;
        }
    }
}

fn advanced(mut shared: Shared, state: &State) -> (Shared, Option<Told>) {
    let told: Option<Told> = match shared.map.advance(state) {
        Step::Same => return (shared, None),
        Step::Changed(rows) => {
            shared.whole = None;
            Some(("changed", Arc::from(rows)))
        }
        Step::Anew => {
            let whole: Arc<str> = Arc::from(shared.map.whole());
            shared.whole = Some(Arc::clone(&whole));
            Some(("map", whole))
        }
    };
    (shared, told)
}
