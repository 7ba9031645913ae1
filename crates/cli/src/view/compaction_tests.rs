use super::*;
use crate::args::Format;
use crate::print::Printer;
use crate::view::WhatIfView;
use std::io::Write;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Sheet(Arc<Mutex<Vec<u8>>>);

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn page<V: Serialize + Detail>(view: &V) -> String {
    let sheet = Sheet::default();
    let mut printer = Printer::to(Box::new(sheet.clone()), Format::Table, false, Clock::at(1_000_100));
    printer.one(view).expect("printed");
    let bytes = sheet.0.lock().expect("nobody panicked").clone();
    String::from_utf8(bytes).expect("text")
}

fn worker(node: &str, first: u64, last: u64) -> v1::Worker {
    let slice = v1::SliceView {
        slice: Some(v1::Slice { card_index: 0, ..Default::default() }),
        kind: v1::CardKind::Gpu.into(),
        first_block_number: first,
        last_block_number: last,
        ..Default::default()
    };
    v1::Worker { node_name: node.to_owned(), slices: vec![slice], ..Default::default() }
}

fn planned() -> v1::PlannedMove {
    v1::PlannedMove {
        job_id: 12,
        from: vec![worker("node-a", 1, 4)],
        to: vec![worker("node-b", 15, 18)],
        checkpoint_mode: v1::CheckpointMode::Cooperative.into(),
        work_lost: None,
        makes_room_for: 17,
    }
}

fn measure(largest: u64, empty_cards: u32, fragmentation: u32, startable_jobs: u32) -> Option<v1::PoolMeasure> {
    let room = |tflops: u64| Some(v1::FreeRoom { milli_tflops: tflops * 1_000, memory_mib: 1_024 });
    let kind = v1::KindMeasure {
        kind: v1::CardKind::Gpu.into(),
        largest_on_card: room(largest),
        largest_on_node: room(largest),
        free: room(12),
        empty_cards,
        fragmentation,
        slices: 2,
    };
    Some(v1::PoolMeasure { kinds: vec![kind], startable_jobs })
}

#[test]
fn a_plan_shows_gain_moves_and_cost() {
    let requeued = v1::PlannedMove {
        job_id: 13,
        checkpoint_mode: v1::CheckpointMode::Requeue.into(),
        work_lost: Some(prost_types::Duration { seconds: 3_700, nanos: 0 }),
        makes_room_for: 0,
        ..planned()
    };
    let response = v1::PlanCompactionResponse {
        moves: vec![planned(), requeued],
        renumbers: vec![v1::CardRef { node_id: 1, node_name: "node-b".to_owned(), card_index: 3 }],
        before: measure(6, 0, 490, 0),
        after: measure(10, 1, 0, 1),
        tflops_seconds_lost: 14_800,
        read: None,
    };
    insta::assert_snapshot!(page(&CompactionPlanView::from(response)));
    insta::assert_snapshot!("nothing_to_gain", page(&CompactionPlanView::from(v1::PlanCompactionResponse::default())));
}

#[test]
fn a_status_shows_how_far_it_is() {
    let status = v1::CompactionStatus {
        phase: v1::CompactionPhase::Running.into(),
        budget: 16,
        begun: 3,
        done: 1,
        failed: 1,
        moves: vec![v1::MoveProgress {
            move_id: 9,
            job_id: 12,
            phase: v1::MovePhase::Suspending.into(),
            started_at: Some(prost_types::Timestamp { seconds: 1_000_090, nanos: 0 }),
        }],
        ..Default::default()
    };
    insta::assert_snapshot!(page(&CompactionStatusView::from(status)));
}

#[test]
fn a_move_shows_where_from_and_where_to() {
    let response = v1::MoveJobResponse { planned: Some(planned()), revision: 0 };
    insta::assert_snapshot!(page(&MoveAnswerView::of(12, response)));
}

#[test]
fn what_if_shows_who_leaves_and_who_waits() {
    let explanation = v1::Explanation {
        constraint: "COMPUTE_SHORT".to_owned(),
        sentence: "it needs 6 TFLOPS and 1 TFLOPS is free on the cards that it accepts".to_owned(),
        ..Default::default()
    };
    let affected = |job_id, to: Vec<v1::Worker>, explanation| v1::AffectedJob {
        job_id,
        queue: "vision".to_owned(),
        priority: 50,
        from: vec!["node-a".to_owned()],
        to,
        explanation,
        checkpoint_mode: v1::CheckpointMode::Cooperative.into(),
    };
    let room = |tflops: u64| Some(v1::FreeRoom { milli_tflops: tflops * 1_000, memory_mib: tflops * 1_024 });
    let response = v1::WhatIfResponse {
        capacity: vec![v1::CapacityChange {
            kind: v1::CardKind::Gpu.into(),
            cards_before: 2,
            cards_after: 1,
            before: room(20),
            after: room(10),
        }],
        displaced: vec![affected(12, vec![worker("node-b", 15, 18)], None), affected(13, vec![], Some(explanation))],
        started: vec![],
        waiting_before: 0,
        waiting_after: 1,
        whole: true,
        like_node: "node-b".to_owned(),
        read: None,
    };
    insta::assert_snapshot!(page(&WhatIfView::from(response)));
}
