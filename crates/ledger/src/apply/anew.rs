//! A pool that goes on from an old state under another control plane: after it was restored from a backup, or recovered
//! from one member of a control plane whose majority is lost.
//!
//! What the old control plane did after that state nobody knows. So nothing that it may have handed out since is handed
//! out again, and nothing is believed of work that it may have started, stopped or granted anew: every node is taken
//! for lost with its work where it stood, and gets no new work, until its agent has said what it really runs (law L2).

use crate::allocation::{AllocationPhase, WorkerState};
use crate::ids::{AllocationId, JobId, MoveId, NodeId, Rank};
use crate::job::JobState;
use crate::node::{Eligibility, NodeState};
use crate::reason::Reason;
use crate::state::State;
use crate::units::Revision;

use super::EntryPosition;

/// By how much revisions, and with them epochs, jump ahead: at 10,000 log entries a second the old control plane takes
/// three years to get there.
pub const REVISIONS_AHEAD: u64 = 1_000_000_000_000;

/// By how much the numbers of jobs, allocations and moves jump ahead.
pub const NUMBERS_AHEAD: u64 = 1_000_000_000;

/// The reason for which a node gets no new work in a pool that began anew.
pub const CORDONED_ANEW: &str =
    "the pool began anew from an old state: uncordon the nodes when all agents have come back";

impl State {
    /// Begins anew from this state, as said above. The digest is that of the state that results.
    pub fn begin_anew(&mut self) {
        self.begin(EntryPosition { revision: Revision(self.revision.0 + REVISIONS_AHEAD), time: self.time });
        let nodes: Vec<NodeId> =
            self.nodes().filter(|node| node.state != NodeState::Forgotten).map(|node| node.id).collect();
        for node in nodes {
            self.doubt_node(node);
        }
        self.next_job = JobId(self.next_job.0 + NUMBERS_AHEAD);
        self.next_allocation = AllocationId(self.next_allocation.0 + NUMBERS_AHEAD);
        self.next_move = MoveId(self.next_move.0 + NUMBERS_AHEAD);
        self.finish();
        // Whoever watched the old pool lists anew: it may have seen events that are not in this state.
        self.history = crate::kept::Kept::default();
        self.compacted = self.revision;
        self.touched.clear();
        self.rebuild_derived();
        self.watch_records();
    }

    /// The node is taken for lost, with its work where it stood, and gets no new work.
    fn doubt_node(&mut self, node: NodeId) {
        let Some(known) = self.node(node).cloned() else { return };
        if known.eligibility == Eligibility::Eligible {
            // Not refused: the node is known.
            let cordoned = self.set_eligibility(node, Eligibility::Cordoned, CORDONED_ANEW);
            debug_assert!(cordoned.is_ok(), "{cordoned:?}");
        }
        self.set_node_state(node, NodeState::Lost);
        for (id, rank) in self.live_workers_on(node) {
            self.doubt_worker(node, id, rank);
        }
    }

    fn doubt_worker(&mut self, node: NodeId, id: AllocationId, rank: Rank) {
        let Some(allocation) = self.allocation(id).cloned() else { return };
        match allocation.phase {
            AllocationPhase::Waiting | AllocationPhase::Reserved => self.lose_node_of(node, id, rank),
            AllocationPhase::Active | AllocationPhase::Ending => {
                let known_lost = allocation.worker(rank).is_none_or(|worker| worker.state == WorkerState::Lost);
                if !known_lost {
                    self.lose_worker(id, rank);
                }
                if self.job(allocation.job).is_some_and(|job| job.state == JobState::Running) {
                    self.move_job(allocation.job, JobState::Running, Reason::NodeDisconnected { node });
                }
            }
        }
    }
}
