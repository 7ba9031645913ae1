//! Compaction (P7): previewed on any member, begun and watched on the leader.

use tessera_api::error::Refusal;
use tessera_api::fields::number;
use tessera_api::time::timestamp;
use tessera_api::{job_view, v1};
use tessera_foresight::{Measure, Room, compact};
use tessera_ledger::wire::{FieldError, WireEnum};
use tessera_ledger::{CardId, State};
use tessera_placement::CompactionOrder;
use tokio::time::Instant;
use tonic::Status;

use crate::services::jobs::moving::planned_move;
use crate::services::{Desk, refusal};
use tessera_controller::placement_actor::{CompactionPhase, CompactionProgress};

/// Most moves of one run.
const MOVES: u32 = 1_000;

/// Most moves at once.
const AT_ONCE: u32 = 16;

/// Plans a compaction without making it.
pub(super) async fn plan(
    desk: &Desk,
    deadline: Instant,
    request: v1::PlanCompactionRequest,
) -> Result<v1::PlanCompactionResponse, Status> {
    let order = order_of(request.order)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let plan = desk.rehearse(&reading, deadline, move |state, now| compact(state, now, &order)).await?;
    let state = &reading.state;
    Ok(v1::PlanCompactionResponse {
        moves: plan.moves.iter().map(|planned| planned_move(state, planned)).collect(),
        renumbers: plan.renumbers.iter().map(|card| card_ref(state, *card)).collect(),
        before: Some(measure(&plan.before)),
        after: Some(measure(&plan.after)),
        tflops_seconds_lost: plan.tflops_seconds_lost(),
        read: reading.read_state(),
    })
}

/// Begins a run.
pub(super) async fn start(
    desk: &Desk,
    deadline: Instant,
    request: v1::StartCompactionRequest,
) -> Result<v1::StartCompactionResponse, Status> {
    let order = order_of(request.order)?;
    let at_once = within("at_once", request.at_once, 2, AT_ONCE).map_err(Refusal::from)?;
    let answer = desk.pool.start_compaction(order, at_once, deadline).await;
    let (started, progress) = answer.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    Ok(v1::StartCompactionResponse { started, status: Some(status(desk, progress)) })
}

/// Reports the progress of the compaction.
pub(super) async fn get(desk: &Desk, deadline: Instant) -> Result<v1::GetCompactionResponse, Status> {
    let answer = desk.pool.compaction(deadline).await;
    let progress = answer.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    Ok(v1::GetCompactionResponse { status: Some(status(desk, progress)) })
}

/// Begins no further move.
pub(super) async fn stop(desk: &Desk, deadline: Instant) -> Result<v1::StopCompactionResponse, Status> {
    let answer = desk.pool.stop_compaction(deadline).await;
    let progress = answer.map_err(|error| refusal::of_placement(&desk.pool, &error))?;
    Ok(v1::StopCompactionResponse { status: Some(status(desk, progress)) })
}

fn order_of(order: Option<v1::CompactionOrder>) -> Result<CompactionOrder, Refusal> {
    let order = order.unwrap_or_default();
    let default = CompactionOrder::default();
    Ok(CompactionOrder {
        moves: within("order.moves", order.moves, default.moves, MOVES)?,
        losing_work: order.losing_work,
        not_preemptible: order.not_preemptible,
        ..default
    })
}

/// A count of a request; 0 is the usual one.
pub(super) fn within(field: &str, asked: u32, usual: u32, most: u32) -> Result<u32, FieldError> {
    number(field, asked, 0..=most)?;
    Ok(if asked == 0 { usual } else { asked })
}

fn status(desk: &Desk, progress: CompactionProgress) -> v1::CompactionStatus {
    let phase = match progress.phase {
        CompactionPhase::Idle => v1::CompactionPhase::Idle,
        CompactionPhase::Running => v1::CompactionPhase::Running,
        CompactionPhase::Stopped => v1::CompactionPhase::Stopped,
        CompactionPhase::Done => v1::CompactionPhase::Done,
    };
    let state = desk.pool.view().current();
    let moves = state.moves().map(|movement| v1::MoveProgress {
        move_id: movement.id.0,
        job_id: movement.job.0,
        phase: movement.phase.to_wire(),
        started_at: Some(timestamp(movement.started_at)),
    });
    v1::CompactionStatus {
        phase: phase.into(),
        automatic: progress.automatic,
        budget: progress.budget,
        begun: progress.begun,
        done: progress.done,
        failed: progress.failed,
        renumbered: progress.renumbered,
        moves: moves.collect(),
    }
}

fn measure(measure: &Measure) -> v1::PoolMeasure {
    let kinds = measure.kinds.iter().map(|(kind, of)| v1::KindMeasure {
        kind: kind.to_wire(),
        largest_on_card: Some(room(of.largest_on_card)),
        largest_on_node: Some(room(of.largest_on_node)),
        free: Some(room(of.free)),
        empty_cards: of.empty_cards,
        fragmentation: of.fragmentation,
        slices: of.slices,
    });
    v1::PoolMeasure { kinds: kinds.collect(), startable_jobs: measure.startable }
}

fn room(room: Room) -> v1::FreeRoom {
    v1::FreeRoom { milli_tflops: room.compute.0, memory_mib: room.memory.0 }
}

fn card_ref(state: &State, card: CardId) -> v1::CardRef {
    v1::CardRef { node_id: card.node.0, node_name: job_view::node_name(state, card.node), card_index: card.index }
}
