//! What is held on a node, by which grant and until when. Read from the ledger grant by grant, and anew only of grants
//! that have changed: a large node has dozens.

use tessera_ledger::{Allocation, AllocationId, CardId, HostRequest, NodeId, State, Worker, WorkerState};

use super::schedule::{Hold, SOON, end_of, since};

/// Grants that are noted as changed; when there are more, all are read anew.
const MOST_NOTED: usize = 64;

/// Something that a grant holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    grant: AllocationId,
    pub(super) hold: Hold,
    /// Whether it is lost: it does not come back.
    pub(super) lost: bool,
    pub(super) what: What,
}

/// What is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A part of the host.
    Host(HostRequest),
    /// A slice of a card: blocks and MiB.
    Slice { card: CardId, blocks: u32, memory: u64 },
}

/// Everything that is held on a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    /// By grant.
    known: Vec<Holding>,
    /// Grants that have changed since that was read.
    changed: Vec<AllocationId>,
}

impl Holdings {
    /// Notes that a grant has changed.
    pub(super) fn note(&mut self, grant: AllocationId) {
        if self.changed.len() >= MOST_NOTED {
            *self = Self::default();
        }
        if !self.known.is_empty() {
            self.changed.push(grant);
        }
    }

    /// Everything that is held on the node now.
    pub(super) fn read(&mut self, state: &State, node: NodeId) -> &[Holding] {
        let changed = std::mem::take(&mut self.changed);
        let mut before = std::mem::take(&mut self.known).into_iter().peekable();
        for grant in state.grants_on(node) {
            while before.next_if(|old| old.grant < grant).is_some() {}
            let count = self.known.len();
            while let Some(old) = before.next_if(|old| old.grant == grant) {
                self.known.push(old);
            }
            if changed.contains(&grant) {
                self.known.truncate(count);
            }
            if self.known.len() == count
                && let Some(allocation) = state.allocation(grant)
            {
                self.enter(state, node, allocation);
            }
        }
        &self.known
    }

    fn enter(&mut self, state: &State, node: NodeId, allocation: &Allocation) {
        let hold = Hold { since: since(allocation), end: end_of(state, allocation) };
        let host = state.job(allocation.job).map_or(HostRequest::ZERO, |job| job.spec.host);
        let there = |worker: &&Worker| worker.node == node && worker.state != WorkerState::Stopped;
        for worker in allocation.workers.iter().filter(there) {
            let end = if worker.state == WorkerState::Draining { SOON } else { hold.end };
            let slices = worker.slices.iter().map(|slice| What::Slice {
                card: slice.card,
                blocks: slice.length.0,
                memory: slice.memory.0,
            });
            let (grant, hold, lost) = (allocation.id, Hold { end, ..hold }, worker.state == WorkerState::Lost);
            let whats = std::iter::once(What::Host(host)).chain(slices);
            self.known.extend(whats.map(|what| Holding { grant, hold, lost, what }));
        }
    }
}
