//! Nodes, cards and answered requests as snapshots keep them.

use super::card::{card_from_wire, card_to_wire};
use super::field::{FieldError, WireEnum, each, required, required_enum, wide_from_wire};
use super::plan::{owner_from_wire, owner_to_wire};
use super::pool::{node_from_wire, node_to_wire};
use super::{stored, v1};
use crate::card::Card;
use crate::extent::{BlockState, Extent, ExtentMap};
use crate::ids::{CardId, JobId, NodeId, RequestId};
use crate::node::Node;
use crate::past_use::PastUse;
use crate::queue::Queue;
use crate::state::AnsweredRequest;
use crate::units::{BlockCount, BlockIndex, BlockNumber, Epoch, LogTime, Mebibytes, Percent, Revision};

pub(super) fn node_record(node: &Node) -> stored::Node {
    let Node {
        id,
        description,
        state,
        eligibility,
        eligibility_reason,
        drain_by,
        base,
        cards,
        epoch,
        changed_at,
        faults,
    } = node;
    stored::Node {
        id: id.0,
        description: Some(node_to_wire(description)),
        state: state.to_wire(),
        eligibility: eligibility.to_wire(),
        eligibility_reason: eligibility_reason.clone(),
        base: base.0,
        cards: *cards,
        epoch: epoch.0,
        changed_at_ms: changed_at.0,
        faults: *faults,
        drain_by_ms: drain_by.map_or(0, |by| by.0),
    }
}

pub(super) fn node_of_record(node: stored::Node) -> Result<Node, FieldError> {
    Ok(Node {
        id: NodeId(node.id),
        description: node_from_wire(required("description", node.description)?),
        state: required_enum("state", node.state)?,
        eligibility: required_enum("eligibility", node.eligibility)?,
        eligibility_reason: node.eligibility_reason,
        base: BlockNumber(node.base),
        cards: node.cards,
        epoch: Epoch(node.epoch),
        changed_at: LogTime(node.changed_at_ms),
        faults: node.faults,
        drain_by: (node.drain_by_ms > 0).then_some(LogTime(node.drain_by_ms)),
    })
}

pub(super) fn card_record(id: CardId, card: &Card) -> stored::Card {
    let Card {
        description,
        blocks,
        oversubscription: _,
        shared_only: _,
        offset,
        extents,
        memory_used,
        memory_promised,
        slices,
    } = card;
    stored::Card {
        node_id: id.node.0,
        description: Some(card_to_wire(description)),
        blocks: blocks.0,
        offset: *offset,
        extents: extents.as_slice().iter().map(extent_to_wire).collect(),
        memory_used_mib: memory_used.0,
        memory_promised_mib: memory_promised.0,
        slices: *slices,
    }
}

pub(super) fn card_of_record(card: stored::Card) -> Result<(CardId, Card), FieldError> {
    let description = card_from_wire(required("description", card.description)?)?;
    let mut start = 0u32;
    let extents = each("extents", card.extents, |extent| extent_from_wire(&extent))?;
    let placed = extents.into_iter().map(|(length, state)| {
        let extent = Extent { start: BlockIndex(start), length, state };
        start = start.saturating_add(length.0);
        extent
    });
    let extents = ExtentMap::from_extents(placed)
        .ok_or_else(|| FieldError::invalid("extents", "must cover the card's blocks one after the other"))?;
    let id = CardId { node: NodeId(card.node_id), index: description.index };
    let card = Card {
        description,
        blocks: BlockCount(card.blocks),
        // Both follow from the settings and the allocations, and are computed when all has been read.
        oversubscription: Percent::WHOLE,
        shared_only: false,
        offset: card.offset,
        extents,
        memory_used: Mebibytes(card.memory_used_mib),
        memory_promised: Mebibytes(card.memory_promised_mib),
        slices: card.slices,
    };
    Ok((id, card))
}

fn extent_to_wire(extent: &Extent) -> stored::Extent {
    let (state, next) = match extent.state {
        BlockState::Free => (v1::BlockState::Free, None),
        BlockState::Offline => (v1::BlockState::Offline, None),
        BlockState::Held(_) => (v1::BlockState::Held, None),
        BlockState::Running(_) => (v1::BlockState::Running, None),
        BlockState::Draining { next, .. } => (v1::BlockState::Draining, next),
        BlockState::Lost(_) => (v1::BlockState::Lost, None),
    };
    stored::Extent {
        blocks: extent.length.0,
        state: state.into(),
        owner: extent.state.owner().as_ref().map(owner_to_wire),
        next: next.as_ref().map(owner_to_wire),
    }
}

fn extent_from_wire(extent: &stored::Extent) -> Result<(BlockCount, BlockState), FieldError> {
    let owner = || required("owner", extent.owner.as_ref()).map(owner_from_wire);
    let state = match block_state("state", extent.state)? {
        v1::BlockState::Unspecified => return Err(FieldError::missing("state")),
        v1::BlockState::Free => BlockState::Free,
        v1::BlockState::Offline => BlockState::Offline,
        v1::BlockState::Held => BlockState::Held(owner()?),
        v1::BlockState::Running => BlockState::Running(owner()?),
        v1::BlockState::Draining => {
            BlockState::Draining { owner: owner()?, next: extent.next.as_ref().map(owner_from_wire) }
        }
        v1::BlockState::Lost => BlockState::Lost(owner()?),
    };
    Ok((BlockCount(extent.blocks), state))
}

/// Reads the state of a block, whose domain twin carries its owner.
fn block_state(field: &str, number: i32) -> Result<v1::BlockState, FieldError> {
    let known = &["Free", "Offline", "Held", "Running", "Draining", "Lost"];
    let problem = super::field::FieldProblem::UnknownValue { number, known };
    v1::BlockState::try_from(number).map_err(|_| FieldError { field: field.to_owned(), problem })
}

pub(super) fn answer_record(id: RequestId, answer: &AnsweredRequest) -> stored::AnsweredRequest {
    let AnsweredRequest { fingerprint, at, revision, job, refused } = answer;
    stored::AnsweredRequest {
        id: id.0.to_be_bytes().to_vec(),
        fingerprint: *fingerprint,
        at_ms: at.0,
        revision: revision.0,
        job_id: job.map(|job| job.0),
        refused: *refused,
    }
}

pub(super) fn answer_of_record(answer: &stored::AnsweredRequest) -> Result<(RequestId, AnsweredRequest), FieldError> {
    let id = RequestId(wide_from_wire("id", &answer.id)?);
    let answer = AnsweredRequest {
        fingerprint: answer.fingerprint,
        at: LogTime(answer.at_ms),
        revision: Revision(answer.revision),
        job: answer.job_id.map(JobId),
        refused: answer.refused,
    };
    Ok((id, answer))
}

/// The record of a queue's past use and of when it opens; `None` when it never held anything and was never closed.
pub(super) fn past_record(queue: &Queue) -> Option<stored::QueuePast> {
    let PastUse { compute, memory, counted_to } = queue.past;
    let says_something = queue.past != PastUse::default() || queue.closed_until != LogTime::default();
    says_something.then(|| stored::QueuePast {
        name: queue.settings.name.clone(),
        compute: compute.to_be_bytes().to_vec(),
        memory: memory.to_be_bytes().to_vec(),
        counted_to_ms: counted_to.0,
        closed_until_ms: queue.closed_until.0,
    })
}

pub(super) fn past_of_record(past: stored::QueuePast) -> Result<(String, PastUse, LogTime), FieldError> {
    let read = PastUse {
        compute: wide_from_wire("compute", &past.compute)?,
        memory: wide_from_wire("memory", &past.memory)?,
        counted_to: LogTime(past.counted_to_ms),
    };
    Ok((past.name, read, LogTime(past.closed_until_ms)))
}
