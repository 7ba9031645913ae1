//! Interrupted work goes on where it was: no attempt goes on from further back than the newest checkpoint of its job
//! that was told, is whole, and lies on nodes that are there; one that goes on from further back than the newest that
//! the ledger has says why; and nothing is forgotten that lies where it was.
//!
//! What was told is followed in the log alone and counted anew here, by other means than the ledger's.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, CheckpointKey, Command, Event, JobId, MovePhase, NodeId, Observation,
    PartKey, Rank, State, WorkerReport,
};

use super::{Oracle, View};
use crate::journal::Applied;

/// The report of one part.
struct Part {
    hash: [u8; 32],
    progress: u64,
    empty: bool,
    nodes: BTreeSet<NodeId>,
}

/// The reports of one checkpoint.
#[derive(Default)]
struct Told {
    workers: usize,
    parts: BTreeMap<Rank, Part>,
}

impl Told {
    fn is_whole(&self) -> bool {
        let at: BTreeSet<u64> = self.parts.values().map(|part| part.progress).collect();
        self.parts.len() == self.workers && at.len() == 1
    }

    fn is_there(&self, state: &State) -> bool {
        self.parts.values().all(|part| part.nodes.iter().any(|node| state.is_ready(*node)))
    }

    fn suits(&self, workers: usize) -> bool {
        self.workers == workers || self.parts.iter().all(|(rank, part)| *rank == Rank(0) || part.empty)
    }

    fn hashes(&self) -> Vec<[u8; 32]> {
        self.parts.values().map(|part| part.hash).collect()
    }
}

#[derive(Default)]
pub struct Checkpoints {
    told: BTreeMap<JobId, BTreeMap<CheckpointKey, Told>>,
    judged: BTreeSet<AllocationId>,
    resumed: BTreeSet<AllocationId>,
    /// Parts that the ledger took for gone since the world was looked at, with the names of their nodes.
    gone: Vec<(String, PartKey)>,
}

impl Checkpoints {
    fn report(&mut self, before: &State, node: NodeId, report: &WorkerReport) {
        let allocation =
            before.allocation(report.worker.allocation).filter(|allocation| allocation.epoch == report.worker.epoch);
        let Some(allocation) = allocation else { return };
        match &report.observation {
            Observation::Saved(saved) => {
                let key = CheckpointKey { attempt: allocation.attempt, sequence: saved.sequence };
                let told = self.told.entry(allocation.job).or_default().entry(key).or_default();
                told.workers = allocation.workers.len();
                let part = told.parts.entry(report.worker.rank);
                let told = || Part {
                    hash: saved.hash,
                    progress: saved.progress,
                    empty: saved.bytes == 0,
                    nodes: BTreeSet::new(),
                };
                part.or_insert_with(told).nodes.insert(node);
            }
            Observation::Unusable { lost: true, .. } => {
                if let Some((all, from)) = self.told.get_mut(&allocation.job).zip(allocation.from) {
                    all.remove(&from);
                }
            }
            _ => {}
        }
    }

    /// Explains why an attempt should have resumed from a newer checkpoint. `before` and `after`: around the entry that
    /// granted it.
    fn further_back(&self, before: &State, after: &State, allocation: &Allocation) -> Option<String> {
        let all = self.told.get(&allocation.job)?;
        let chosen = allocation.from.and_then(|from| all.get(&from)).map(Told::hashes);
        // No more than the two newest are kept.
        let newest = all.iter().rev().filter(|(_, told)| told.is_whole()).take(2);
        let newer = newest.take_while(|(key, _)| Some(**key) > allocation.from);
        let mut better = newer.filter(|(key, told)| {
            let usable = told.is_whole() && told.suits(allocation.workers.len());
            // What says the same as the one before is none of its own.
            let same = chosen.as_ref() == Some(&told.hashes())
                || all.range(..*key).any(|(_, older)| older.is_whole() && older.hashes() == told.hashes());
            usable && told.is_there(before) && told.is_there(after) && !same && key.attempt < allocation.attempt
        });
        let (key, _) = better.next()?;
        Some(format!(
            "attempt {} of job {} goes on from {:?}, and {key:?} could be had",
            allocation.attempt, allocation.job, allocation.from
        ))
    }
}

impl Oracle for Checkpoints {
    fn name(&self) -> &'static str {
        "interrupted work goes on where it was"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        let granted = entry.events.iter().filter_map(|event| match event {
            Event::Worker { allocation, .. } => entry.after.allocation(*allocation),
            _ => None,
        });
        for allocation in granted {
            // The target of a move is given its checkpoint later than its blocks.
            let begun = matches!(allocation.phase, AllocationPhase::Active | AllocationPhase::Waiting);
            if self.judged.insert(allocation.id) && begun {
                without_a_word(&entry.after, allocation).map_or(Ok(()), Err)?;
                self.further_back(&entry.before, &entry.after, allocation).map_or(Ok(()), Err)?;
            }
        }
        let resumed = entry.events.iter().filter_map(|event| match event {
            Event::Move { id, .. } => entry.after.move_in_progress(*id),
            _ => None,
        });
        for movement in resumed.filter(|movement| movement.phase == MovePhase::Resuming) {
            let target = entry.after.allocation(movement.target);
            if let Some(target) = target.filter(|target| self.resumed.insert(target.id)) {
                without_a_word(&entry.after, target).map_or(Ok(()), Err)?;
                self.further_back(&entry.before, &entry.after, target).map_or(Ok(()), Err)?;
            }
        }
        let mut lost: BTreeSet<NodeId> = BTreeSet::new();
        for request in &entry.requests {
            match &request.command {
                Command::NodeLost { node, .. } => {
                    lost.insert(*node);
                }
                // What is told after the loss of a node, within one entry, comes when its work may be settled.
                Command::ReportWorkers { node, .. } if lost.contains(node) => {}
                Command::ReportWorkers { node, reports } => {
                    reports.iter().for_each(|report| self.report(&entry.before, *node, report));
                }
                Command::NoteKept { node, kept, gone } => {
                    let name = entry.after.node(*node).map(|node| node.description.name.clone()).unwrap_or_default();
                    self.gone.extend(gone.iter().map(|part| (name.clone(), *part)));
                    for (part, is_kept) in
                        kept.iter().map(|part| (part, true)).chain(gone.iter().map(|part| (part, false)))
                    {
                        let told = self.told.get_mut(&part.job).and_then(|all| all.get_mut(&part.checkpoint));
                        if let Some(Part { nodes, .. }) = told.and_then(|told| told.parts.get_mut(&part.rank)) {
                            if is_kept {
                                nodes.insert(*node)
                            } else {
                                nodes.remove(node)
                            };
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let shelf = &view.world.shelf;
        match self.gone.drain(..).find(|(machine, part)| shelf.kept(machine).contains(part)) {
            Some((machine, part)) => Err(format!("{part:?} lies on {machine}, and the ledger took it for gone")),
            None => Ok(()),
        }
    }
}

/// The fault of an attempt that does not go on from the newest checkpoint and does not say why.
fn without_a_word(state: &State, allocation: &Allocation) -> Option<String> {
    let job = state.job(allocation.job)?;
    let newest = job.checkpoints.that_count().next().filter(|newest| Some(newest.key) != allocation.from)?;
    let attempt = job.history.iter().find(|attempt| attempt.allocation == allocation.id)?;
    let (number, key) = (attempt.number, newest.key);
    let says_nothing = attempt.passed_over.is_empty();
    says_nothing.then(|| format!("attempt {number} of job {} passes over {key:?} without a word", job.id))
}
