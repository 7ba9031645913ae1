//! The orders given to an agent and the workers that it reports, compared with what the ledger wants.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::v1::WorkerOrder;
use tessera_ledger::{NodeId, Owner, State};

use super::concern::Concern;
use super::messages::Sighting;
use super::orders::{self, Desire};

/// The orders of one session.
#[derive(Debug, Default)]
pub(super) struct OrderBook {
    /// The last order to each worker.
    ordered: BTreeMap<Owner, Desire>,
    /// The workers that the agent says are, or may be, there.
    present: BTreeSet<Owner>,
    /// The workers that the agent says are over and that it was not told to forget.
    over: BTreeSet<Owner>,
    /// The changes not yet compared.
    concern: Concern,
}

impl OrderBook {
    /// Notes what is there and what is over.
    pub(super) fn sight(&mut self, workers: &[Sighting]) {
        self.concern.add(workers.iter().map(|sighting| sighting.worker.allocation).collect());
        for sighting in workers {
            if sighting.is_present() {
                self.present.insert(sighting.worker);
                self.over.remove(&sighting.worker);
            } else {
                self.present.remove(&sighting.worker);
                self.over.insert(sighting.worker);
            }
        }
    }

    /// Number of workers that the agent has spoken of and was not told to forget.
    pub(super) fn sighted(&self) -> usize {
        self.present.len() + self.over.len()
    }

    /// True if the ledger grants every worker that is or may be on the node (law L2).
    pub(super) fn holds_only_granted(&self, node: NodeId, state: &State) -> bool {
        self.present.iter().all(|owner| orders::is_granted(state, node, *owner))
    }

    /// The ledger changed for these.
    pub(super) fn touch(&mut self, concern: Concern) {
        self.concern.add(concern);
    }

    /// The orders that are new or differ from the last ones, for all that changed since the last call. With `complete`,
    /// a worker that may be there and for which the ledger yields no order is left out: the agent must stop what
    /// complete orders do not name.
    pub(super) fn changes(&mut self, node: NodeId, state: &State, complete: bool) -> Vec<WorkerOrder> {
        let concern = std::mem::take(&mut self.concern);
        let desired = orders::desired(state, node, &concern, &self.present);
        let mut changes = Vec::new();
        for (owner, desire) in &desired {
            if self.ordered.insert(*owner, *desire) != Some(*desire) {
                changes.push(orders::order(state, node, *owner, *desire));
            }
        }
        let mentioned = [concern.among(&self.ordered), concern.among(&self.over), concern.among(&self.present)];
        let strangers: BTreeSet<Owner> =
            mentioned.into_iter().flatten().filter(|owner| !desired.contains_key(owner)).collect();
        for owner in strangers {
            let order = self.stranger(owner, complete);
            changes.extend(order.map(|desire| orders::order(state, node, owner, desire)));
        }
        self.over.retain(|owner| self.ordered.get(owner) != Some(&Desire::Forget));
        changes
    }

    /// Decides on a worker that the ledger does not grant, or has settled and forgotten: it is stopped while it may be
    /// there, then forgotten.
    fn stranger(&mut self, owner: Owner, complete: bool) -> Option<Desire> {
        if self.present.contains(&owner) {
            let last = self.ordered.insert(owner, Desire::Stop);
            return (last != Some(Desire::Stop) && !complete).then_some(Desire::Stop);
        }
        self.over.remove(&owner);
        let last = self.ordered.remove(&owner);
        (last != Some(Desire::Forget)).then_some(Desire::Forget)
    }
}
