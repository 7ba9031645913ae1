//! The lifecycle actor: declares silent nodes lost, drives moves of jobs, stops what its agent fails to stop in time,
//! and lets time pass in the ledger.

pub(crate) mod leases;
mod loss;
mod state;

use std::sync::{Arc, PoisonError};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::leader::Reign;
use crate::pool::PoolHandle;
use state::{Effect, Event, Lifecycle};

/// Name of the actor in logs and metrics.
pub(crate) const NAME: &str = "lifecycle";

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, reign: Arc<Reign>) {
    let timings = pool.config().timings;
    let mut state = Lifecycle::new(timings, pool.config().mass_loss);
    let mut looks = interval(timings.check);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = pool.view().changes();
    changes.mark_changed();
    let mut pending: FuturesUnordered<BoxFuture<'static, Event>> = FuturesUnordered::new();
    loop {
        let event = tokio::select! {
            biased;
            () = reign.end.cancelled() => return,
            Some(event) = pending.next(), if !pending.is_empty() => event,
            changed = changes.changed() => match changed {
                Ok(()) => Event::Changed,
                Err(_) => return,
            },
            now = looks.tick() => Event::Look { now, log_now: pool.log_time() },
        };
        let effects = {
            let mut leases = reign.leases.lock().unwrap_or_else(PoisonError::into_inner);
            // Read while the table is held: see `Leases::is_over`.
            let seen = changes.borrow_and_update().clone();
            state.on(event, &seen, &mut leases)
        };
        for effect in effects {
            match effect {
                Effect::Propose(duty, request) => {
                    let pool = pool.clone();
                    let deadline = Instant::now() + timings.propose;
                    let proposed = async move { Event::Answered(duty, pool.propose(*request, deadline).await) };
                    pending.push(proposed.boxed());
                }
                Effect::Silent { nodes, suspected } => pool.metrics().nodes_silent(nodes, suspected),
                Effect::CountLost => pool.metrics().lease_expired(),
            }
        }
    }
}
