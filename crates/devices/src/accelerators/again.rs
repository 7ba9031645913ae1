//! Looks again for cards that are missed, and measures those that could not be: beside the agent, which has workers to
//! look after. A driver that is loaded later, or a card that is reset, brings a card back; a rate counts from the
//! agent's next start.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::ask::Interpreter;
use super::known::Known;
use crate::host::HostRoot;

/// From one look to the next.
pub(super) const EVERY: Duration = Duration::from_secs(300);
/// How soon it is noticed that nobody wants to know any more.
const TURN: Duration = Duration::from_millis(200);

/// Identities of the cards that are missed.
#[derive(Debug, Default)]
pub(super) struct Missing(Arc<Mutex<BTreeSet<String>>>);

impl Missing {
    /// Those of `known`, which are looked for again for as long as there are some.
    pub(super) fn of(known: &Known, host: &HostRoot, interpreter: &Interpreter, every: Duration) -> Self {
        let missing = Arc::new(Mutex::new(missing(known)));
        if known.is_incomplete() {
            let (weak, host, interpreter) = (Arc::downgrade(&missing), host.clone(), interpreter.clone());
            let look = move || look_until_complete(&weak, &host, &interpreter, every);
            if let Err(error) = thread::Builder::new().name("accelerators".to_owned()).spawn(look) {
                tracing::warn!(%error, "accelerators that are missed are not looked for again: no thread can be started");
            }
        }
        Self(missing)
    }

    pub(super) fn has(&self, identity: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(identity)
    }
}

fn missing(known: &Known) -> BTreeSet<String> {
    known.cards.iter().filter(|card| card.is_missing).map(|card| card.identity.clone()).collect()
}

fn look_until_complete(
    whose: &Weak<Mutex<BTreeSet<String>>>,
    host: &HostRoot,
    interpreter: &Interpreter,
    every: Duration,
) {
    loop {
        let next = Instant::now() + every;
        while Instant::now() < next {
            if whose.strong_count() == 0 {
                return;
            }
            thread::sleep(TURN.min(every));
        }
        let looked = Known::load(host).and_then(|mut known| {
            let found = known.look(host, interpreter)?;
            known.measure(host, interpreter, &found);
            known.store(host)?;
            Ok(known)
        });
        match (looked, whose.upgrade()) {
            (_, None) => return,
            (Ok(known), Some(told)) => {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = missing(&known);
                if !known.is_incomplete() {
                    tracing::info!("all accelerators are there and measured; rates count from the agent's next start");
                    return;
                }
            }
            (Err(error), Some(_)) => tracing::warn!(%error, "accelerators that are missed cannot be looked for"),
        }
    }
}
