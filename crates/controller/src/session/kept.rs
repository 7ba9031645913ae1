//! The checkpoints on nodes' disks: what each agent says that it keeps, against what the ledger knows and wants.
//!
//! An agent says what is on its disk when that has changed. What the ledger does not know of it is brought into the
//! log; with each heartbeat the agent is told what nobody needs any more, and what it is to fetch from another node, so
//! that the loss of one node loses nothing. All of it is said again until it is done.
//!
//! What an agent does not name is not gone: the list may be older than what it lacks. The agent is told what is missed,
//! looks for it, and what it then says is not there is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use planted::Bug;
use tessera_api::agent::{checkpoint_source, part_name};
use tessera_api::v1::{CheckpointOrders, CheckpointSource};
use tessera_consensus::Term;
use tessera_ledger::{Command, NodeId, PartKey, Revision, State};
use tokio::time::Instant;

use super::messages::Kept;
use super::orders::sources;

/// The interval at which the copies to be made are determined anew: that takes time in proportion to the jobs with
/// checkpoints.
const LOOK: Duration = Duration::from_secs(1);
/// Copies and removals that are ordered at once.
const AT_ONCE: usize = 256;
/// Stores that are named at most: a pool has one, and another while it changes from one to the next.
const STORES: usize = 16;

/// A session's knowledge of its node's disk.
#[derive(Debug, Default)]
pub(super) struct KeptHere {
    /// `None` until the agent has said it.
    said: Option<Kept>,
    /// True if the list was compared with the ledger since the agent sent it.
    compared: bool,
    /// The parts that the ledger had on the node at that comparison, and that the agent neither named nor reported as
    /// absent.
    missed: Vec<PartKey>,
    /// The shared stores that the agent was told last; `None`: it was not told yet, not even that there is none.
    stores: Option<Vec<Bytes>>,
}

impl KeptHere {
    /// The agent says all that is there.
    pub(super) fn said(&mut self, kept: Kept) {
        self.said = Some(kept);
        self.compared = false;
    }

    /// The command that reports the parts that the ledger does not know to be on the node, and those that it believes
    /// to be there although they are gone. `None` when there are neither, the agent has sent no list, or the list was
    /// compared already.
    pub(super) fn news(&mut self, node: NodeId, state: &State) -> Option<Command> {
        let said = self.said.as_ref().filter(|_| !self.compared)?;
        self.compared = true;
        let known = |part: &&PartKey| {
            let told = state.job(part.job).and_then(|job| job.checkpoints.holding(part));
            told.is_none_or(|told| told.saved.shared || told.nodes.contains(&node))
        };
        let kept: Vec<PartKey> = said.parts.iter().filter(|part| !known(part)).copied().collect();
        let is_gone = |key: &PartKey| said.absent.contains(key) || planted::is(Bug::AbsenceBelieved);
        let (gone, missed) = missed(said, node, state).partition(is_gone);
        self.missed = missed;
        (!kept.is_empty() || !gone.is_empty()).then_some(Command::NoteKept { node, kept, gone })
    }

    /// The ledger did not take what was proposed: it is compared again.
    pub(super) const fn compare_again(&mut self) {
        self.compared = false;
    }

    /// The orders about the node's disk, the sources from which its workers resume, and the stores that nodes share.
    /// `None` when there are none of these, and the agent was told already that there are no stores.
    pub(super) fn orders(
        &mut self,
        term: Term,
        node: NodeId,
        elsewhere: Elsewhere,
        state: &State,
    ) -> Option<CheckpointOrders> {
        let is_news = self.stores.as_ref() != Some(&elsewhere.stores);
        self.stores = Some(elsewhere.stores.clone());
        let missed = self.missed.iter().filter_map(|key| {
            let part = state.job(key.job)?.checkpoints.holding(key).filter(|part| part.nodes.contains(&node))?;
            Some(checkpoint_source(state, key, part))
        });
        let missed: Vec<_> = missed.take(AT_ONCE).collect();
        // What cannot be looked for now does not keep the others from being asked for.
        let asked = missed.len();
        self.missed.rotate_left(asked);
        let needless = |part: &&PartKey| {
            let job = state.job(part.job).filter(|job| !job.state.is_terminal());
            job.is_none_or(|job| job.checkpoints.can_do_without(part, job.attempts))
        };
        let said = self.said.iter().flat_map(|said| &said.parts);
        let needless: Vec<_> = said.filter(needless).take(AT_ONCE).map(part_name).collect();
        let sources = sources(state, node).take(AT_ONCE).collect();
        let Elsewhere { mut copies, stores } = elsewhere;
        if self.said.is_none() {
            // It may be there already.
            copies.clear();
        }
        let orders = CheckpointOrders { term: term.0, needless, copies, sources, stores, missed };
        let nothing = CheckpointOrders { term: term.0, ..CheckpointOrders::default() };
        (is_news || orders != nothing).then_some(orders)
    }
}

/// The parts that the ledger has on a node and its agent did not name.
fn missed(said: &Kept, node: NodeId, state: &State) -> impl Iterator<Item = PartKey> {
    state.jobs_with_checkpoints().flat_map(move |job| {
        job.checkpoints.iter().flat_map(move |checkpoint| {
            let here = checkpoint.parts.iter().filter(move |part| part.nodes.contains(&node));
            here.map(|part| checkpoint.part_key(job.id, part.rank)).filter(|key| !said.parts.contains(key))
        })
    })
}

/// The checkpoints beyond its own disk that a node is to know of.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The parts that it is to fetch.
    pub copies: Vec<CheckpointSource>,
    /// The stores that nodes share in which any lie.
    pub stores: Vec<Bytes>,
}

/// The copies that are to be made, by the node that is to make them, and the stores that nodes share; looked up once
/// for all sessions.
#[derive(Debug, Default)]
pub(crate) struct CopyPlan(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    made: Option<(Revision, Instant)>,
    by_node: BTreeMap<NodeId, Vec<CheckpointSource>>,
    stores: Vec<Bytes>,
}

impl CopyPlan {
    /// The copies that a node is to fetch, and the stores that nodes share.
    pub(super) fn of(&self, node: NodeId, state: &State, now: Instant) -> Elsewhere {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |(revision, at): (Revision, Instant)| {
            revision == state.revision() || now.saturating_duration_since(at) < LOOK
        };
        if !plan.made.is_some_and(fresh) {
            plan.made = Some((state.revision(), now));
            plan.by_node.clear();
            for (key, part, onto) in state.copies_to_make() {
                let copies = plan.by_node.entry(onto).or_default();
                if copies.len() < AT_ONCE {
                    copies.push(checkpoint_source(state, &key, &part));
                }
            }
            plan.stores = shared_stores(state);
        }
        Elsewhere { copies: plan.by_node.get(&node).cloned().unwrap_or_default(), stores: plan.stores.clone() }
    }
}

/// The stores that nodes share in which checkpoints lie.
fn shared_stores(state: &State) -> Vec<Bytes> {
    let checkpoints = state.jobs_with_checkpoints().flat_map(|job| job.checkpoints.that_count());
    let parts = checkpoints.flat_map(|checkpoint| &checkpoint.parts).filter(|part| part.saved.shared);
    let stores: BTreeSet<u128> = parts.map(|part| part.saved.ticket).collect();
    stores.into_iter().take(STORES).map(|store| Bytes::copy_from_slice(&store.to_be_bytes())).collect()
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
