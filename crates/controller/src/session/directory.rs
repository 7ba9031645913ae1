//! The connected agents, and the sessions that a change of the ledger concerns. One task reads what each entry changed
//! and wakes only the sessions of the nodes concerned; each then compares what it has ordered with what the ledger
//! wants now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use tessera_ledger::{AllocationId, Event, NodeId, State};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::pool::PoolHandle;
use crate::session::concern::{Concern, Wake};
use crate::session::events;
use crate::trace;

/// A session as others reach it.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Counts up; a later session of the same node replaces an earlier one.
    pub number: u64,
    /// The ledger changed for this node.
    pub wake: Arc<Wake>,
    /// A newer session of the node took over.
    pub replaced: CancellationToken,
}

/// The sessions of a reign by node.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    registrations: DashMap<NodeId, Registration>,
    sessions: AtomicU64,
}

impl Directory {
    /// A registration of a new session, with the next number.
    pub fn register(&self) -> Registration {
        Registration {
            number: self.sessions.fetch_add(1, Ordering::Relaxed) + 1,
            wake: Arc::default(),
            replaced: CancellationToken::new(),
        }
    }

    /// Speaks for a node from now on; an older session that holds it is told to end. Answers false when a newer one
    /// holds it.
    pub fn take(&self, node: NodeId, registration: &Registration) -> bool {
        let mut entry = self.registrations.entry(node).or_insert_with(|| registration.clone());
        if entry.number > registration.number {
            return false;
        }
        if entry.number < registration.number {
            entry.replaced.cancel();
            *entry = registration.clone();
        }
        true
    }

    /// Takes the registration back, unless a newer session holds it.
    pub fn leave(&self, node: NodeId, number: u64) {
        self.registrations.remove_if(&node, |_, registration| registration.number == number);
    }

    fn wake(&self, node: NodeId, concern: Concern) {
        if let Some(registration) = self.registrations.get(&node) {
            registration.wake.add(concern);
        }
    }

    fn wake_all(&self) {
        for registration in &self.registrations {
            registration.wake.add(Concern::Everything);
        }
    }
}

/// Reads what entries changed, wakes the sessions concerned, counts, and tells traces, until the reign ends.
pub(crate) async fn route(pool: PoolHandle, directory: Arc<Directory>, end: CancellationToken) {
    let mut changes = pool.view().changes();
    let mut known = changes.borrow_and_update().clone();
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
        }
        let state = changes.borrow_and_update().clone();
        step(&known, &state, &directory, pool.metrics());
        known = state;
    }
}

/// Wakes whom the entries concern that lie between `known` and `state`.
fn step(known: &State, state: &State, directory: &Directory, metrics: &Metrics) {
    let Some(entries) = state.events_after(known.revision()) else {
        tracing::warn!(
            revision = known.revision().0,
            "events since this revision are forgotten: every session looks anew"
        );
        return directory.wake_all();
    };
    let mut concerns = Concerns::new();
    for entry in entries {
        for event in entry.events.iter() {
            concerned(known, state, event, &mut concerns);
            events::count(metrics, known, state, entry, event);
            trace::waited(state, entry, event);
        }
    }
    for (node, concern) in concerns {
        directory.wake(node, concern);
    }
}

/// The orders that entries may have changed, by node.
type Concerns = BTreeMap<NodeId, Concern>;

/// Adds the nodes whose orders an event may change, and which orders.
fn concerned(known: &State, state: &State, event: &Event, concerns: &mut Concerns) {
    match event {
        Event::Node { node, .. } => concerns.entry(*node).or_default().add(Concern::Everything),
        // By name: an allocation that has left the ledger with this very event has no nodes any more.
        Event::Worker { node, allocation, .. } | Event::Quarantined { node, allocation, .. } => {
            concerns.entry(*node).or_default().add([*allocation].into_iter().collect());
        }
        Event::Card { card } => {
            // A virtual card may have slices on several nodes, and each of its workers is told where all of them are.
            for allocation in state.allocations_on(card.node) {
                add_allocation(state, allocation.id, concerns);
            }
        }
        Event::Job { allocation: Some(id), .. } => add_allocation(state, *id, concerns),
        Event::Move { id, job, .. } => {
            let target = state.move_in_progress(*id).map(|movement| movement.target);
            let present = state.job(*job).and_then(|job| job.allocation);
            target.into_iter().chain(present).for_each(|id| add_allocation(state, id, concerns));
        }
        // Its nodes keep no order of it, also those whose workers were over before.
        Event::AllocationReleased { allocation, .. } => add_allocation(known, *allocation, concerns),
        Event::Job { .. } | Event::JobRemoved { .. } | Event::CheckpointSkipped { .. } => {}
        Event::Queue { .. } | Event::Config => {}
    }
}

/// An allocation concerns the nodes of all its workers.
fn add_allocation(state: &State, id: AllocationId, concerns: &mut Concerns) {
    let workers = state.allocation(id).into_iter().flat_map(|allocation| allocation.workers.iter());
    for worker in workers {
        concerns.entry(worker.node).or_default().add([id].into_iter().collect());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tessera_ledger::{Command, Observation};

    use super::*;
    use crate::fixture::{Ledger, job, owner};

    fn is_woken(registration: &Registration) -> bool {
        registration.wake.concerned().now_or_never().is_some()
    }

    #[test]
    fn a_newer_session_takes_the_seat_and_an_older_one_never_does() {
        let directory = Directory::default();
        let (older, newer) = (directory.register(), directory.register());
        let node = NodeId(0);
        assert!(directory.take(node, &older));
        assert!(directory.take(node, &newer));
        assert!(older.replaced.is_cancelled());
        assert!(!directory.take(node, &older), "it was slow to register");
        directory.leave(node, older.number);
        assert!(directory.registrations.contains_key(&node));
        directory.leave(node, newer.number);
        assert!(!directory.registrations.contains_key(&node));
    }

    #[test]
    fn only_sessions_that_are_concerned_are_woken() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.node("a", &[10]), ledger.node("b", &[10]));
        let directory = Directory::default();
        let registrations = [a, b].map(|node| {
            let registration = directory.register();
            directory.take(node, &registration);
            registration
        });
        let metrics = Metrics::new();
        let mut known = ledger.state.clone();
        let mut look = |ledger: &Ledger| {
            step(&known, &ledger.state, &directory, &metrics);
            known = ledger.state.clone();
            [is_woken(&registrations[0]), is_woken(&registrations[1])]
        };
        let id = ledger.submit(job(4));
        assert_eq!(look(&ledger), [false, false], "a submission concerns no node");
        let allocation = ledger.grant(id, &[(b, 0, 4)]);
        assert_eq!(look(&ledger), [false, true], "an allocation concerns the node where it is");
        ledger.report(b, owner(&allocation, 0), Observation::Running);
        ledger.apply(Command::CancelJob { job: id });
        assert_eq!(look(&ledger), [false, true], "a stop too");
        ledger.lose(a);
        assert_eq!(look(&ledger), [true, false], "a loss concerns the node lost");
        step(&State::new(), &ledger.state, &directory, &metrics);
        assert!(metrics.encode().is_ok_and(|page| page.contains("tessera_jobs_submitted_total{queue=\"default\"} 2")));
    }
}
