//! Histories that once broke something: an index that was kept current decided otherwise than a fresh one.

use tessera_ledger::{CardKind, Eligibility, Span};

use super::{limits, play};
use crate::world::history::{Request, Step};

fn submit(request: Request) -> Step {
    Step::Submit(Box::new(request))
}

#[test]
fn a_whole_card_waits_beside_others() {
    let nodes = [
        vec![(CardKind::Npu, 10, 400, 0, false), (CardKind::Npu, 10, 400, 0, false)],
        vec![(CardKind::Npu, 3, 100, 0, false), (CardKind::Gpu, 20, 100, 0, false), (CardKind::Cpu, 8, 400, 0, false)],
    ];
    let steps = [
        submit(Request { tflops: 3, gang: 2, ..Request::default() }),
        submit(Request::default()),
        submit(Request { preemptible: true, zone: Some(1), host: (1000, false), ..Request::default() }),
        submit(Request::default()),
        submit(Request { preemptible: true, kinds: vec![CardKind::Gpu], host: (1000, false), ..Request::default() }),
        Step::Decide,
        submit(Request { tflops: 14, priority: 90, host: (2500, false), ..Request::default() }),
        Step::DecideInVain,
        Step::Resume(0),
        submit(Request { priority: 50, zone: Some(1), host: (1000, false), ..Request::default() }),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

#[test]
fn int8_and_a_lost_node() {
    let nodes = [vec![(CardKind::Fpga, 20, 1000, 2, true), (CardKind::Cpu, 8, 100, 0, false)]];
    let steps = [
        submit(Request { int8: true, ..Request::default() }),
        submit(Request { gang: 2, queue: 1, ..Request::default() }),
        submit(Request { tflops: 4, gang: 3, kinds: vec![CardKind::Fpga], queue: 2, ..Request::default() }),
        Step::Decide,
        Step::Start(0),
        Step::Finish(0),
        submit(Request::default()),
        submit(Request::default()),
        submit(Request::default()),
        Step::Decide,
        Step::Release(0),
        submit(Request { queue: 2, ..Request::default() }),
        submit(Request::default()),
        submit(Request::default()),
        submit(Request::default()),
        Step::Lose(0),
        submit(Request { priority: 50, queue: 1, ..Request::default() }),
        Step::Queue(26, None, (10, 1000)),
        Step::Pass(480),
        Step::Decide,
        Step::Return(0),
        Step::Release(0),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

#[test]
fn a_queue_gets_a_maximum() {
    let nodes = [
        vec![(CardKind::Cpu, 8, 400, 0, true)],
        vec![(CardKind::Gpu, 20, 400, 0, false)],
        vec![(CardKind::Npu, 3, 100, 0, false), (CardKind::Cpu, 20, 100, 0, false), (CardKind::Gpu, 8, 100, 0, true)],
        vec![(CardKind::Npu, 3, 100, 0, false), (CardKind::Npu, 3, 100, 0, false)],
    ];
    let steps = [
        submit(Request::default()),
        submit(Request { tflops: 4, ..Request::default() }),
        submit(Request { tflops: 9, queue: 1, ..Request::default() }),
        submit(Request { memory: 300, priority: 50, host: (1000, false), ..Request::default() }),
        submit(Request { tflops: 12, memory: 300, ..Request::default() }),
        Step::Decide,
        submit(Request::default()),
        Step::Obey(0),
        Step::Obey(0),
        Step::Decide,
        Step::Queue(20, Some((15, 300)), (0, 0)),
        Step::Decide,
        submit(Request { kinds: vec![CardKind::Cpu], host: (0, true), ..Request::default() }),
        submit(Request { kinds: vec![CardKind::Npu], int8: true, ..Request::default() }),
        submit(Request { queue: 1, ..Request::default() }),
        Step::Decide,
        submit(Request {
            tflops: 8,
            memory: 1,
            priority: 90,
            preemptible: true,
            kinds: vec![CardKind::Cpu],
            mixed: true,
            limit: Some(900),
            host: (1000, false),
            ..Request::default()
        }),
        Step::Decide,
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

#[test]
fn a_node_is_drained_and_another_lost() {
    let nodes = [
        vec![(CardKind::Npu, 20, 1000, 0, true)],
        vec![(CardKind::Npu, 20, 100, 0, true), (CardKind::Npu, 20, 100, 0, false)],
        vec![(CardKind::Gpu, 10, 100, 0, true), (CardKind::Gpu, 8, 100, 0, false)],
        vec![(CardKind::Npu, 10, 1000, 0, false), (CardKind::Gpu, 10, 400, 0, true)],
    ];
    let steps = [
        submit(Request::default()),
        Step::Decide,
        submit(Request { tflops: 15, gang: 3, priority: 90, queue: 2, int8: true, ..Request::default() }),
        submit(Request { tflops: 11, host: (0, true), ..Request::default() }),
        submit(Request { tflops: 7, ..Request::default() }),
        submit(Request { tflops: 6, queue: 1, ..Request::default() }),
        submit(Request { tflops: 11, ..Request::default() }),
        Step::Decide,
        submit(Request { tflops: 2, memory: 1, gang: 2, queue: 2, ..Request::default() }),
        submit(Request { tflops: 4, memory: 50, gang: 2, ..Request::default() }),
        Step::Decide,
        Step::Eligibility(3, Eligibility::Draining),
        Step::Decide,
        Step::Obey(22),
        Step::Obey(28),
        Step::Suspend(19),
        submit(Request::default()),
        Step::Lose(13),
        Step::Quarantine(4),
        submit(Request::default()),
        Step::Decide,
        Step::Pass(60),
        submit(Request::default()),
        submit(Request::default()),
        submit(Request::default()),
        Step::Decide,
        Step::Pass(421),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

#[test]
fn a_gang_of_six_in_queues_that_change() {
    let nodes = [
        vec![(CardKind::Gpu, 3, 100, 0, false), (CardKind::Cpu, 8, 400, 0, false)],
        vec![(CardKind::Gpu, 10, 400, 0, false)],
        vec![(CardKind::Gpu, 10, 100, 0, true), (CardKind::Fpga, 10, 100, 0, false)],
        vec![(CardKind::Npu, 10, 400, 0, true)],
        vec![(CardKind::Gpu, 10, 100, 0, false), (CardKind::Npu, 20, 100, 0, false)],
    ];
    let steps = [
        Step::Queue(29, Some((30, 300)), (0, 0)),
        Step::Queue(14, Some((18, 300)), (0, 0)),
        submit(Request { tflops: 11, int8: true, ..Request::default() }),
        submit(Request::default()),
        submit(Request { tflops: 5, gang: 6, priority: 50, queue: 2, ..Request::default() }),
        Step::Decide,
        submit(Request {
            tflops: 11,
            memory: 300,
            preemptible: true,
            span: Span::Pool,
            kinds: vec![CardKind::Npu],
            queue: 2,
            ..Request::default()
        }),
        Step::Decide,
        Step::Queue(26, None, (0, 0)),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

#[test]
fn what_gangs_left_is_found_again() {
    let nodes = [
        vec![(CardKind::Fpga, 8, 400, 0, false), (CardKind::Gpu, 10, 100, 0, true)],
        vec![(CardKind::Cpu, 20, 400, 0, false)],
    ];
    let steps = [
        submit(Request { gang: 6, kinds: vec![CardKind::Fpga], ..Request::default() }),
        Step::Decide,
        Step::Start(0),
        Step::Finish(0),
        submit(Request { tflops: 5, gang: 2, kinds: vec![CardKind::Fpga, CardKind::Cpu], ..Request::default() }),
        submit(Request { gang: 3, kinds: vec![CardKind::Cpu], host: (2500, false), ..Request::default() }),
        Step::Decide,
        submit(Request { tflops: 2, queue: 1, ..Request::default() }),
        submit(Request { tflops: 14, priority: 50, host: (2500, false), ..Request::default() }),
        Step::Start(0),
        Step::Decide,
        submit(Request { tflops: 9, gang: 3, queue: 1, ..Request::default() }),
        Step::Fail(5),
        Step::Finish(0),
        submit(Request { gang: 6, int8: true, ..Request::default() }),
        submit(Request { memory: 1, gang: 2, priority: 50, host: (0, true), ..Request::default() }),
        Step::Decide,
        Step::Pass(481),
        Step::Start(0),
        Step::Finish(0),
        Step::Decide,
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

/// Room kept for the first of a queue is free for those behind it once the queue would not let the first one start any
/// more: the next one starts and keeps nothing from the one after it.
#[test]
fn a_maximum_is_too_small_for_the_one_that_cards_are_kept_for() {
    let nodes = [vec![(CardKind::Gpu, 10, 100, 0, false)]];
    let steps = [
        submit(Request { tflops: 5, ..Request::default() }),
        Step::Decide,
        submit(Request { tflops: 10, ..Request::default() }),
        Step::Pass(60),
        Step::Decide,
        submit(Request { tflops: 1, ..Request::default() }),
        submit(Request { tflops: 2, ..Request::default() }),
        Step::Decide,
        Step::Pass(60),
        Step::Queue(0, Some((9, 100)), (0, 0)),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

/// One that has waited very long starts before one of its queue that may preempt it, and takes the last room of their
/// queue. That one is tried again once the allocation is there.
#[test]
fn one_starts_out_of_turn_before_one_that_may_preempt_it() {
    let nodes = [vec![(CardKind::Gpu, 3, 100, 0, false)], vec![(CardKind::Npu, 20, 400, 0, true)]];
    let steps = [
        submit(Request { tflops: 6, gang: 2, ..Request::default() }),
        submit(Request { tflops: 2, memory: 50, gang: 6, ..Request::default() }),
        Step::Return(0),
        submit(Request { tflops: 12, memory: 300, preemptible: true, ..Request::default() }),
        Step::Queue(12, Some((13, 300)), (20, 500)),
        Step::Decide,
        submit(Request { queue: 1, ..Request::default() }),
        Step::Start(0),
        submit(Request { tflops: 3, priority: 50, span: Span::Node, kinds: vec![CardKind::Npu], ..Request::default() }),
        submit(Request { tflops: 9, queue: 1, ..Request::default() }),
        Step::Pass(481),
        Step::Decide,
        Step::Finish(12),
        Step::Decide,
        Step::Start(6),
        Step::Finish(48),
        Step::Start(0),
        Step::Decide,
        Step::Finish(0),
        Step::Decide,
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}

/// A queue is guaranteed something, and its gang that waits for whole cards may recall what others hold of them.
#[test]
fn a_gang_of_whole_cards_gets_a_guarantee() {
    let nodes = [
        vec![(CardKind::Npu, 10, 100, 0, false)],
        vec![(CardKind::Npu, 3, 100, 0, false)],
        vec![(CardKind::Gpu, 20, 100, 0, false)],
        vec![(CardKind::Gpu, 20, 100, 0, false), (CardKind::Npu, 8, 400, 0, false)],
        vec![(CardKind::Gpu, 8, 100, 0, false)],
    ];
    let steps = [
        Step::Queue(4, None, (30, 3000)),
        submit(Request { tflops: 6, ..Request::default() }),
        submit(Request::default()),
        submit(Request { tflops: 4, memory: 50, gang: 3, host: (1000, false), ..Request::default() }),
        submit(Request::default()),
        Step::Queue(3, Some((20, 500)), (20, 500)),
        submit(Request::default()),
        submit(Request::default()),
        submit(Request { memory: 300, ..Request::default() }),
        Step::Queue(20, None, (0, 0)),
        Step::Decide,
        submit(Request { gang: 2, kinds: vec![CardKind::Gpu], queue: 3, host: (0, true), ..Request::default() }),
        Step::Decide,
        Step::Queue(19, None, (20, 500)),
        Step::Decide,
    ];
    play(&nodes, &steps, &limits(), false, true);
}
