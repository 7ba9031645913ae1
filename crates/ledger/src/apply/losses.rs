//! Nodes that are lost, come back, or are given up, and what that says of their workers (law L2).

use planted::Bug;

use super::Applied;
use crate::allocation::{Allocation, AllocationPhase, StopCause, WorkerExit, WorkerState};
use crate::command::Outcome;
use crate::event::Touched;
use crate::ids::{AllocationId, NodeId, Rank};
use crate::job::JobState;
use crate::node::{Containment, NodeState};
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::spec::OnDisconnect;
use crate::state::State;
use crate::units::Epoch;

impl State {
    /// The node's lease is provably over: its workers are, too, except those that may go on without one.
    pub(super) fn node_lost(&mut self, node: NodeId, epoch: Epoch) -> Applied {
        let known = self.known_node(node)?;
        if (known.epoch != epoch && !planted::is(Bug::EpochUncheckedInLedger)) || known.state == NodeState::Forgotten {
            return Err(Rejection::NodeChanged { node });
        }
        if known.state == NodeState::Lost {
            return Ok(Outcome::Done);
        }
        self.set_node_state(node, NodeState::Lost);
        for (id, rank) in self.live_workers_on(node) {
            self.lose_node_of(node, id, rank);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn lose_node_of(&mut self, node: NodeId, id: AllocationId, rank: Rank) {
        let Some(allocation) = self.allocations.get(&id).cloned() else { return };
        let Some(job) = self.jobs.get(&allocation.job).cloned() else { return };
        match allocation.phase {
            AllocationPhase::Waiting => self.abandon_waiting(id),
            AllocationPhase::Reserved => {
                // The target of a move is gone before anything was started there.
                if let Some(movement) = job.moving.and_then(|id| self.moves.get(&id)).cloned() {
                    // Not refused: a target is reserved only in the steps in which a move can be given up.
                    let given_up = self.advance_move(movement.id, movement.phase, false);
                    debug_assert!(given_up.is_ok(), "{movement:?}: {given_up:?}");
                }
            }
            AllocationPhase::Active | AllocationPhase::Ending => {
                // One that could not be ended is no surer to have ended now.
                if is_lost(&allocation, rank) {
                    return;
                }
                let known_to_end = planted::is(Bug::SilenceBelieved)
                    || self.nodes.get(&node).is_some_and(|node| node.description.containment == Containment::Whole);
                if job.spec.on_disconnect == OnDisconnect::Keep || !known_to_end {
                    self.lose_worker(id, rank);
                    if job.state == JobState::Running {
                        self.move_job(job.id, JobState::Running, Reason::NodeDisconnected { node });
                    }
                } else {
                    self.settle_worker(
                        id,
                        rank,
                        WorkerExit::without_word(StopCause::LeaseExpired, "its node was lost"),
                    );
                }
            }
        }
    }

    pub(super) fn node_returned(&mut self, node: NodeId, incarnation: u64) -> Applied {
        let known = self.known_node(node)?;
        if known.description.incarnation != incarnation || known.state == NodeState::Forgotten {
            return Err(Rejection::NodeChanged { node });
        }
        if known.state == NodeState::Lost {
            self.set_node_state(node, NodeState::Ready);
        }
        Ok(Outcome::Done)
    }

    /// An operator declares a node dead (law L2). A node that is heard from can only be forgotten when it
    /// holds nothing.
    pub(super) fn forget_node(&mut self, node: NodeId) -> Applied {
        let known = self.known_node(node)?;
        if known.state == NodeState::Forgotten {
            return Ok(Outcome::Done);
        }
        let held = self.live_workers_on(node);
        if known.state == NodeState::Ready
            && let Some((id, _)) = held.first()
        {
            let job = self.allocations.get(id).map(|allocation| allocation.job).unwrap_or_default();
            return Err(Rejection::NodeBusy { node, job });
        }
        for (id, rank) in held {
            self.settle_worker(
                id,
                rank,
                WorkerExit::without_word(StopCause::LeaseExpired, "its node was declared dead"),
            );
        }
        for id in self.card_ids(node) {
            self.count_capacity_out(id);
            if let Some(card) = self.cards.remove_cow(&id) {
                self.counts = self.counts.minus(card.extents.counts());
                self.touched.push(Touched::Card(id));
            }
        }
        self.node_names.remove_cow(&known.description.name);
        self.with_node(node, |node| node.cards = 0);
        self.set_node_state(node, NodeState::Forgotten);
        Ok(Outcome::Done)
    }

    /// An operator gives their word that the workers of a node whose stop could not be confirmed are gone.
    pub(super) fn confirm_stopped(&mut self, node: NodeId) -> Applied {
        self.known_node(node)?;
        for (id, rank) in self.live_workers_on(node) {
            if self.allocations.get(&id).is_some_and(|allocation| is_lost(allocation, rank)) {
                self.settle_worker(
                    id,
                    rank,
                    WorkerExit::without_word(StopCause::LeaseExpired, "an operator declared it gone"),
                );
            }
        }
        Ok(Outcome::Done)
    }

    /// The workers on a node that still hold blocks.
    pub(super) fn live_workers_on(&self, node: NodeId) -> Vec<(AllocationId, Rank)> {
        self.allocations_on(node)
            .flat_map(|allocation| {
                let live = allocation.workers.iter();
                live.filter(|worker| worker.node == node && worker.state != WorkerState::Stopped)
                    .map(|worker| (allocation.id, worker.rank))
            })
            .collect()
    }
}

fn is_lost(allocation: &Allocation, rank: Rank) -> bool {
    allocation.worker(rank).is_some_and(|worker| worker.state == WorkerState::Lost)
}
