//! Checkpoints as the log and snapshots keep them.

use std::sync::Arc;

use super::field::{FieldError, WireEnum, each, enum_from_wire, required, wide_from_wire};
use super::stored;
use crate::checkpoint::{Checkpoint, CheckpointKey, CheckpointPart, Checkpoints, PartKey, SavedPart};
use crate::ids::{JobId, NodeId, Rank};
use crate::units::{Epoch, LogTime};

pub(super) const fn key_to_wire(key: CheckpointKey) -> stored::CheckpointKey {
    let CheckpointKey { attempt, sequence } = key;
    stored::CheckpointKey { attempt, sequence }
}

pub(super) const fn key_from_wire(key: stored::CheckpointKey) -> CheckpointKey {
    CheckpointKey { attempt: key.attempt, sequence: key.sequence }
}

pub(super) const fn part_key_to_wire(key: &PartKey) -> stored::PartKey {
    let PartKey { job, checkpoint, epoch, rank } = key;
    stored::PartKey { job_id: job.0, checkpoint: Some(key_to_wire(*checkpoint)), epoch: epoch.0, rank: rank.0 }
}

pub(super) fn part_key_from_wire(key: stored::PartKey) -> Result<PartKey, FieldError> {
    Ok(PartKey {
        job: JobId(key.job_id),
        checkpoint: key_from_wire(required("checkpoint", key.checkpoint)?),
        epoch: Epoch(key.epoch),
        rank: Rank(key.rank),
    })
}

pub(super) fn saved_to_wire(saved: &SavedPart) -> stored::SavedPart {
    let SavedPart { sequence, progress, bytes, hash, ticket, shared, mode } = saved;
    stored::SavedPart {
        sequence: *sequence,
        progress: *progress,
        bytes: *bytes,
        hash: hash.to_vec(),
        ticket: ticket.to_be_bytes().to_vec(),
        shared: *shared,
        mode: mode.to_wire(),
    }
}

pub(super) fn saved_from_wire(saved: stored::SavedPart) -> Result<SavedPart, FieldError> {
    let wrong = |bytes: Vec<u8>| FieldError::invalid("hash", format!("must have 32 bytes, has {}", bytes.len()));
    Ok(SavedPart {
        sequence: saved.sequence,
        progress: saved.progress,
        bytes: saved.bytes,
        hash: saved.hash.try_into().map_err(wrong)?,
        ticket: wide_from_wire("ticket", &saved.ticket)?,
        shared: saved.shared,
        mode: required("mode", enum_from_wire("mode", saved.mode)?)?,
    })
}

pub(super) fn checkpoint_to_wire(checkpoint: &Checkpoint) -> stored::Checkpoint {
    let Checkpoint { key, epoch, at, workers, parts, is_next_copied } = checkpoint;
    let part = |part: &CheckpointPart| {
        let CheckpointPart { rank, saved, nodes } = part;
        stored::CheckpointPart {
            rank: rank.0,
            saved: Some(saved_to_wire(saved)),
            node_ids: nodes.iter().map(|node| node.0).collect(),
        }
    };
    stored::Checkpoint {
        key: Some(key_to_wire(*key)),
        epoch: epoch.0,
        at_ms: at.0,
        workers: *workers,
        parts: parts.iter().map(part).collect(),
        is_next_copied: *is_next_copied,
    }
}

fn part_from_wire(part: stored::CheckpointPart) -> Result<CheckpointPart, FieldError> {
    Ok(CheckpointPart {
        rank: Rank(part.rank),
        saved: saved_from_wire(required("saved", part.saved)?).map_err(|error| error.under("saved"))?,
        nodes: part.node_ids.into_iter().map(NodeId).collect(),
    })
}

fn checkpoint_from_wire(checkpoint: stored::Checkpoint) -> Result<Arc<Checkpoint>, FieldError> {
    Ok(Arc::new(Checkpoint {
        key: key_from_wire(required("key", checkpoint.key)?),
        epoch: Epoch(checkpoint.epoch),
        at: LogTime(checkpoint.at_ms),
        workers: checkpoint.workers,
        parts: each("parts", checkpoint.parts, part_from_wire)?,
        is_next_copied: checkpoint.is_next_copied,
    }))
}

pub(super) fn checkpoints_from_wire(checkpoints: Vec<stored::Checkpoint>) -> Result<Checkpoints, FieldError> {
    Ok(Checkpoints(each("checkpoints", checkpoints, checkpoint_from_wire)?))
}
