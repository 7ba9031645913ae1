//! Interrupted work goes on where it was: no attempt goes on from further back than the newest checkpoint of its job that
//! was told, is whole, and lies on nodes that are there.
//!
//! What was told is followed in the log alone and counted anew here, by other means than the ledger's.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, CheckpointKey, Command, Event, JobId, MovePhase, NodeId, Observation,
    Rank, State, WorkerReport,
};

use super::Oracle;
use crate::journal::Applied;

/// What was told of one checkpoint.
#[derive(Default)]
struct Told {
    workers: usize,
    /// By rank: the hash, how far it was, and who keeps it.
    parts: BTreeMap<Rank, ([u8; 32], u64, BTreeSet<NodeId>)>,
}

impl Told {
    fn is_whole(&self) -> bool {
        let at: BTreeSet<u64> = self.parts.values().map(|(_, progress, _)| *progress).collect();
        self.parts.len() == self.workers && at.len() == 1
    }

    fn is_there(&self, state: &State) -> bool {
        self.parts.values().all(|(.., nodes)| nodes.iter().any(|node| state.is_ready(*node)))
    }

    fn hashes(&self) -> Vec<[u8; 32]> {
        self.parts.values().map(|(hash, ..)| *hash).collect()
    }
}

/// See the module.
#[derive(Default)]
pub struct Checkpoints {
    told: BTreeMap<JobId, BTreeMap<CheckpointKey, Told>>,
    judged: BTreeSet<AllocationId>,
    resumed: BTreeSet<AllocationId>,
}

impl Checkpoints {
    fn report(&mut self, before: &State, node: NodeId, report: &WorkerReport) {
        let grant = before.allocation(report.worker.allocation).filter(|grant| grant.epoch == report.worker.epoch);
        let Some(grant) = grant else { return };
        match &report.observation {
            Observation::Saved(saved) => {
                let key = CheckpointKey { attempt: grant.attempt, sequence: saved.sequence };
                let told = self.told.entry(grant.job).or_default().entry(key).or_default();
                told.workers = grant.workers.len();
                let part = told.parts.entry(report.worker.rank);
                part.or_insert_with(|| (saved.hash, saved.progress, BTreeSet::new())).2.insert(node);
            }
            Observation::Unusable { lost: true, .. } => {
                if let Some((all, from)) = self.told.get_mut(&grant.job).zip(grant.from) {
                    all.remove(&from);
                }
            }
            _ => {}
        }
    }

    /// What is wrong with where an attempt goes on. `before` and `after`: around the entry that granted it.
    fn further_back(&self, before: &State, after: &State, grant: &Allocation) -> Option<String> {
        let all = self.told.get(&grant.job)?;
        let chosen = grant.from.and_then(|from| all.get(&from)).map(Told::hashes);
        let newer = all.iter().rev().take_while(|(key, _)| Some(**key) > grant.from);
        let mut better = newer.filter(|(key, told)| {
            let usable = told.is_whole() && told.workers == grant.workers.len();
            // What says the same as the one before is none of its own.
            let same = chosen.as_ref() == Some(&told.hashes())
                || all.range(..*key).any(|(_, older)| older.is_whole() && older.hashes() == told.hashes());
            usable && told.is_there(before) && told.is_there(after) && !same && key.attempt < grant.attempt
        });
        let (key, _) = better.next()?;
        Some(format!(
            "attempt {} of job {} goes on from {:?}, and {key:?} could be had",
            grant.attempt, grant.job, grant.from
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
        for grant in granted {
            // The target of a move is given its checkpoint later than its blocks.
            let begun = matches!(grant.phase, AllocationPhase::Active | AllocationPhase::Waiting);
            if self.judged.insert(grant.id) && begun {
                self.further_back(&entry.before, &entry.after, grant).map_or(Ok(()), Err)?;
            }
        }
        let resumed = entry.events.iter().filter_map(|event| match event {
            Event::Move { id, .. } => entry.after.move_in_progress(*id),
            _ => None,
        });
        for movement in resumed.filter(|movement| movement.phase == MovePhase::Resuming) {
            let target = entry.after.allocation(movement.target);
            if let Some(target) = target.filter(|target| self.resumed.insert(target.id)) {
                self.further_back(&entry.before, &entry.after, target).map_or(Ok(()), Err)?;
            }
        }
        for request in &entry.requests {
            match &request.command {
                Command::ReportWorkers { node, reports } => {
                    reports.iter().for_each(|report| self.report(&entry.before, *node, report));
                }
                Command::NoteKept { node, kept, gone } => {
                    for (part, is_kept) in
                        kept.iter().map(|part| (part, true)).chain(gone.iter().map(|part| (part, false)))
                    {
                        let told = self.told.get_mut(&part.job).and_then(|all| all.get_mut(&part.checkpoint));
                        if let Some((.., nodes)) = told.and_then(|told| told.parts.get_mut(&part.rank)) {
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
}
