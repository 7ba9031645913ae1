//! Checkpoints: what agents say that they have saved and keep, and what a new attempt goes on from.

use std::collections::BTreeSet;
use std::sync::Arc;

use planted::Bug;
use xxhash_rust::xxh3::xxh3_64;

use super::Applied;
use crate::allocation::{Allocation, Move, MovePhase, StopCause, WorkerExit};
use crate::checkpoint::{COPIES_WANTED, Checkpoint, CheckpointKey, CheckpointPart, PartKey, SavedPart};
use crate::command::Outcome;
use crate::event::Event;
use crate::ids::{JobId, NodeId, Rank};
use crate::job::{Ending, Job};
use crate::node::NodeState;
use crate::reason::Reason;
use crate::rejection::Rejection;
use crate::spec::{CheckpointMode, CheckpointPolicy};
use crate::state::State;

/// Most bytes that a saved part may claim: more is nonsense, and would upset sums.
const MOST_BYTES: u64 = 1 << 50;

impl State {
    /// The jobs that can go on from a checkpoint, or may come to.
    pub fn jobs_with_checkpoints(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.checkpointed.into_iter().filter_map(|(id, ())| self.jobs.get(id))
    }

    /// The nodes from which a part can be fetched now.
    pub fn sources_of(&self, part: &CheckpointPart) -> impl Iterator<Item = NodeId> {
        part.nodes.iter().copied().filter(|node| self.is_ready(*node))
    }

    /// Returns whether every part of a checkpoint can be fetched now.
    #[must_use]
    pub fn can_be_had(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.parts.iter().all(|part| part.saved.shared || self.sources_of(part).next().is_some())
    }

    /// Every copy of a part that is to be made, with the node that is to keep it too: where a job is about to be moved
    /// to, and one more node for what is to outlive one. That one is the same for all checkpoints of a worker for as
    /// long as it is there.
    pub fn copies_to_make(&self) -> impl Iterator<Item = (PartKey, CheckpointPart, NodeId)> {
        let ahead = self.moves().flat_map(|movement| self.copies_ahead(movement));
        let ready: Vec<NodeId> =
            self.nodes().filter(|node| node.state == NodeState::Ready).map(|node| node.id).collect();
        ahead.chain(self.jobs_with_checkpoints().flat_map(move |job| self.copies_of(job, &ready)))
    }

    /// The copies that are worth waiting for before the source of a move is told to stop: of what a program has saved
    /// that saves while it runs. What it saves when it stops may be the same for the most part, and only the rest must
    /// be brought to the target while the job runs nowhere. Of two images of processes little is the same.
    ///
    /// Any that was the newest at some time since the move began will do: a program that saves more often than copies
    /// are made would be followed for ever.
    pub fn copies_ahead(&self, movement: &Move) -> impl Iterator<Item = (PartKey, CheckpointPart, NodeId)> {
        self.copied_ahead(movement).into_iter().flat_map(|(job, checkpoint, target)| {
            let id = job.id;
            lacking_at(checkpoint, job, target)
                .filter(|(part, _)| self.sources_of(part).next().is_some())
                .map(move |(part, onto)| (checkpoint.part_key(id, part.rank), part.clone(), onto))
        })
    }

    /// The checkpoint that is brought to the target of a move first, unless one that will do is there: the first of
    /// them that stays for as long as that takes.
    fn copied_ahead(&self, movement: &Move) -> Option<(&Arc<Job>, &Arc<Checkpoint>, &Arc<Allocation>)> {
        let job = self.jobs.get(&movement.job).filter(|_| movement.phase == MovePhase::Reserved)?;
        let CheckpointPolicy { mode: CheckpointMode::Cooperative, every: Some(_), .. } = job.spec.checkpoint else {
            return None;
        };
        let target = self.allocations.get(&movement.target)?;
        let newer = job.checkpoints.that_count().take_while(|saved| saved.at > movement.started_at).count();
        let will_do = || job.checkpoints.that_count().take(newer + 1);
        if will_do().any(|saved| lacking_at(saved, job, target).next().is_none()) {
            return None;
        }
        let stays = will_do().filter(|saved| job.checkpoints.is_reserved(saved.key)).last();
        Some((job, stays.or_else(|| will_do().next())?, target))
    }

    fn copies_of(&self, job: &Job, ready: &[NodeId]) -> Vec<(PartKey, CheckpointPart, NodeId)> {
        let lacking = |part: &CheckpointPart| {
            let kept = self.sources_of(part).count();
            !part.saved.shared && kept > 0 && kept < COPIES_WANTED
        };
        let parts = job.checkpoints.to_be_copied().flat_map(|checkpoint| {
            checkpoint.parts.iter().map(move |part| (checkpoint.part_key(job.id, part.rank), part))
        });
        let to_make = parts.filter(|(_, part)| lacking(part)).filter_map(|(key, part)| {
            let others = ready.iter().copied().filter(|node| !part.nodes.contains(node));
            let onto = others.max_by_key(|node| preference(job.id, part.rank, *node))?;
            Some((key, part.clone(), onto))
        });
        to_make.collect()
    }

    /// The checkpoint that the programs of an allocation go on from when it comes into force now: the newest that
    /// counts, suits so many, and can be had.
    pub(super) fn begins_from(&self, allocation: &Allocation) -> Option<CheckpointKey> {
        let job = self.jobs.get(&allocation.job)?;
        let programs = allocation.programs(&job.spec.virtual_card).count();
        let usable = |checkpoint: &&Arc<Checkpoint>| checkpoint.suits(programs) && self.can_be_had(checkpoint);
        let passed_over = usize::from(planted::is(Bug::CheckpointPassedOver));
        job.checkpoints.that_count().filter(usable).nth(passed_over).map(|checkpoint| checkpoint.key)
    }

    /// Says why an attempt that begins now does not go on from the newest checkpoint that counts; nothing when it does,
    /// or there is none.
    pub(super) fn say_passed_over(&mut self, allocation: &Allocation) -> String {
        let why = self.jobs.get(&allocation.job).and_then(|job| {
            let newest = job.checkpoints.that_count().next().filter(|newest| Some(newest.key) != allocation.from)?;
            let programs = allocation.programs(&job.spec.virtual_card).count();
            Some((newest.key, self.hindrance(newest, programs)))
        });
        let Some((checkpoint, message)) = why else { return String::new() };
        let newest_left = allocation.from;
        let job = allocation.job;
        self.pending_events.push(Event::CheckpointSkipped { job, checkpoint, newest_left, message: message.clone() });
        message
    }

    /// The reason why `programs` programs cannot resume from a checkpoint; empty: nothing prevents it.
    fn hindrance(&self, checkpoint: &Checkpoint, programs: usize) -> String {
        if !checkpoint.suits(programs) {
            return format!("{} workers saved it, and {programs} begin", checkpoint.workers);
        }
        let away = |part: &&CheckpointPart| !part.saved.shared && self.sources_of(part).next().is_none();
        let Some(part) = checkpoint.parts.iter().find(away) else { return String::new() };
        let names: Vec<&str> = part.nodes.iter().filter_map(|id| Some(&*self.node(*id)?.description.name)).collect();
        if names.is_empty() {
            format!("no node keeps the part of worker {} any more", part.rank)
        } else {
            format!("the part of worker {} is on {}: not ready", part.rank, names.join(", "))
        }
    }

    /// A worker of the present attempt, or its agent, has saved its part of a checkpoint.
    pub(super) fn worker_saved(&mut self, allocation: &Allocation, rank: Rank, saved: &SavedPart) {
        let present = self.jobs.get(&allocation.job).filter(|job| job.allocation == Some(allocation.id));
        let Some(job) = present.filter(|_| saved.bytes <= MOST_BYTES) else { return };
        let card = &job.spec.virtual_card;
        let Some(worker) = allocation.worker(rank) else { return };
        let Some(program) = allocation.program(card, rank) else { return };
        let nodes = if saved.shared { BTreeSet::new() } else { BTreeSet::from([worker.node]) };
        let part = CheckpointPart { rank: program, saved: saved.clone(), nodes };
        let key = CheckpointKey { attempt: allocation.attempt, sequence: saved.sequence };
        let workers = u32::try_from(allocation.programs(card).count()).unwrap_or(u32::MAX);
        let now = self.time;
        self.with_job(allocation.job, |job| {
            let known = job.checkpoints.get(key).is_some_and(|checkpoint| checkpoint.counts());
            job.checkpoints.note(key, allocation.epoch, workers, part, now, job.spec.checkpoint.kept());
            let counts = job.checkpoints.get(key).is_some_and(|checkpoint| checkpoint.counts());
            let attempt = job.history.iter_mut().rev().find(|attempt| attempt.number == key.attempt);
            if let Some(attempt) = attempt.filter(|_| counts && !known) {
                attempt.saved_at = Some(now);
                attempt.saved_as = Some(saved.mode);
            }
        });
        self.device_worked(worker.node, allocation.job);
        self.keep_to_quota_of(allocation.job);
    }

    /// A worker could not be started because its part of the checkpoint cannot be had. The attempt ends, all of it: a
    /// gang never goes on from different places. What is lost for ever is given up for the checkpoint before.
    pub(super) fn checkpoint_unusable(&mut self, allocation: &Arc<Allocation>, rank: Rank, lost: bool, message: &str) {
        let message = message.to_owned();
        let exit = WorkerExit::without_word(StopCause::StartFailed, &message);
        let reason = match allocation.from.filter(|_| lost) {
            Some(checkpoint) => {
                self.give_up_checkpoint(allocation.job, checkpoint, message.clone());
                Reason::CheckpointDamaged { checkpoint, message }
            }
            None => Reason::StartFailed { message },
        };
        self.end_worker(allocation.id, rank, exit, |_| (Ending::Requeue, reason));
    }

    /// Forgets a checkpoint that cannot be used; whichever worker of a gang finds that first says so.
    pub(super) fn give_up_checkpoint(&mut self, job: JobId, checkpoint: CheckpointKey, message: String) {
        let knows = |job: &Arc<Job>| job.checkpoints.get(checkpoint).is_some();
        if self.jobs.get(&job).is_some_and(knows) {
            self.with_job(job, |job| job.checkpoints.remove(checkpoint));
            self.say_skipped(job, checkpoint, message);
        }
    }

    /// Nobody is told of a job that does not go on.
    fn say_skipped(&mut self, id: JobId, checkpoint: CheckpointKey, message: String) {
        let Some(job) = self.jobs.get(&id) else { return };
        if matches!(job.ending, None | Some(Ending::Retry | Ending::Requeue)) {
            let newest_left = job.checkpoints.that_count().next().map(|newest| newest.key);
            self.pending_events.push(Event::CheckpointSkipped { job: id, checkpoint, newest_left, message });
        }
    }

    /// An attempt is over: the newest of what its workers did not all save, or not at the same place, is skipped.
    pub(super) fn skip_partial_checkpoint(&mut self, job: JobId) {
        let partial = self.jobs.get(&job).and_then(|job| job.checkpoints.newest_partial().cloned());
        let Some(partial) = partial else { return };
        let (told, workers) = (partial.parts.len(), partial.workers);
        let message = if told != workers as usize {
            format!("{told} of {workers} workers saved their part")
        } else if partial.bytes() == 0 {
            "nothing is in it".to_owned()
        } else {
            "its workers saved at different places of their work".to_owned()
        };
        self.say_skipped(job, partial.key, message);
    }

    /// Records that the parts on a node's disk differ from those that were known: `kept` are there, `gone` are not.
    pub(super) fn note_kept(&mut self, node: NodeId, kept: &[PartKey], gone: &[PartKey]) -> Applied {
        if self.nodes.get(&node).is_none() {
            return Err(Rejection::UnknownNode(node));
        }
        let all = kept.iter().map(|part| (part, true)).chain(gone.iter().map(|part| (part, false)));
        for (part, is_kept) in all {
            let news = self.jobs.get(&part.job).is_some_and(|job| {
                let known = job.checkpoints.holding(part);
                known.is_some_and(|known| !known.saved.shared && known.nodes.contains(&node) != is_kept)
            });
            if news {
                self.with_job(part.job, |job| job.checkpoints.keep(part, node, is_kept, job.spec.checkpoint.kept()));
                // One that has its copies now may let an older one go.
                self.keep_to_quota_of(part.job);
            }
        }
        Ok(Outcome::Done)
    }
}

/// The parts of a checkpoint that are not where an allocation needs them, with the node that does.
fn lacking_at<'a>(
    checkpoint: &'a Checkpoint,
    job: &'a Job,
    allocation: &'a Allocation,
) -> impl Iterator<Item = (&'a CheckpointPart, NodeId)> {
    checkpoint.parts.iter().filter_map(|part| {
        let onto = allocation.worker_of(&job.spec.virtual_card, part.rank)?.node;
        (!part.saved.shared && !part.nodes.contains(&onto)).then_some((part, onto))
    })
}

/// Preference for a node as the place of copies of a worker's checkpoints: jobs spread over the nodes, and nodes that
/// come and go move few of the copies.
fn preference(job: JobId, rank: Rank, node: NodeId) -> (u64, NodeId) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&job.0.to_be_bytes());
    bytes[8..12].copy_from_slice(&rank.0.to_be_bytes());
    bytes[12..].copy_from_slice(&node.0.to_be_bytes());
    (xxh3_64(&bytes), node)
}
