//! Looks again for cards that are missed, and measures those that could not be: beside the agent, which has workers to
//! look after. A driver that is loaded later, or a card that is reset, brings a card back; a rate counts from the
//! agent's next start.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::ask::Interpreter;
use super::known::Known;
use crate::host::HostRoot;

/// From one look to the next.
pub(super) const EVERY: Duration = Duration::from_secs(300);

/// Cards that are missed.
#[derive(Debug, Default)]
pub(super) struct Missing {
    identities: Arc<Mutex<BTreeSet<String>>>,
    /// Whoever looks again ends when nobody holds this any more.
    _wanted: Option<Sender<()>>,
}

impl Missing {
    /// The missing cards of `known`. A thread looks again at the interval `every` for as long as a card is missing or
    /// unmeasured.
    pub(super) fn of(known: &Known, host: &HostRoot, interpreter: &Interpreter, every: Duration) -> Self {
        let identities = Arc::new(Mutex::new(missing(known)));
        let (wanted, is_wanted) = channel();
        if known.is_incomplete() {
            let (told, host, interpreter) = (Arc::clone(&identities), host.clone(), interpreter.clone());
            let look = move || look_until_complete(&told, &is_wanted, &host, &interpreter, every);
            if let Err(error) = thread::Builder::new().name("accelerators".to_owned()).spawn(look) {
                tracing::warn!(%error, "missing accelerators are not looked for again: no thread can be started");
            }
        }
        Self { identities, _wanted: Some(wanted) }
    }

    pub(super) fn has(&self, identity: &str) -> bool {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner).contains(identity)
    }
}

fn missing(known: &Known) -> BTreeSet<String> {
    known.cards.iter().filter(|card| card.is_missing).map(|card| card.identity.clone()).collect()
}

fn look_until_complete(
    told: &Mutex<BTreeSet<String>>,
    is_wanted: &Receiver<()>,
    host: &HostRoot,
    interpreter: &Interpreter,
    every: Duration,
) {
    while is_wanted.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let looked = Known::load(host).and_then(|mut known| {
            let found = known.look(host, interpreter)?;
            known.measure(host, interpreter, &found);
            known.store(host)?;
            Ok(known)
        });
        match looked {
            Ok(known) => {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = missing(&known);
                if !known.is_incomplete() {
                    tracing::info!("all accelerators are there and measured; rates count from the agent's next start");
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "accelerators that are missed cannot be looked for"),
        }
    }
}
