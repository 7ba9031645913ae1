//! Reconciliation of the workers that should run with those that do.

use std::collections::VecDeque;

use wire::{StopCause, WorkerDesire, WorkerPhase};

use super::*;

#[test]
fn an_order_launches_once_however_often_it_comes() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    let effects = bench.order(one, WorkerDesire::Run);
    assert_eq!(launched(&effects), [one]);
    assert_eq!(reported(&effects), [(10, WorkerPhase::Starting, StopCause::Unspecified)]);
    assert!(launched(&bench.order(one, WorkerDesire::Run)).is_empty());
    bench.told(status(one, Phase::Running));
    assert!(launched(&bench.order(one, WorkerDesire::Run)).is_empty());
}

#[test]
fn what_is_over_is_reported_again_and_never_started_again() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.order(one, WorkerDesire::Run);
    let effects = bench.told(exited(one, 7));
    bench.acknowledge(&effects);
    let effects = bench.order(one, WorkerDesire::Run);
    assert!(launched(&effects).is_empty());
    assert_eq!(reported(&effects), [(10, WorkerPhase::Stopped, StopCause::Exited)]);
}

#[test]
fn a_process_lost_over_a_restart_is_reported_and_not_started_again() {
    let one = worker(1, 10, 0);
    let mut gone = status(one, Phase::Stopped);
    gone.cause = Some(Cause::Vanished);
    let mut bench =
        Bench::with(5, vec![WorkerRecord::found(gone, Some(std::sync::Arc::new(order(one, WorkerDesire::Run))))]);
    let effects = bench.welcome_in(5);
    assert_eq!(reported(&effects), [(10, WorkerPhase::Stopped, StopCause::Vanished)]);
    bench.lease(9_000);
    let effects = bench.hear(orders(5, true, vec![order(one, WorkerDesire::Run)]));
    assert!(launched(&effects).is_empty() && stopped(&effects).is_empty());
}

#[test]
fn adopted_workers_go_on_when_they_are_still_ordered() {
    let one = worker(1, 10, 0);
    let found =
        WorkerRecord::found(status(one, Phase::Running), Some(std::sync::Arc::new(order(one, WorkerDesire::Run))));
    let mut bench = Bench::with(5, vec![found]);
    bench.welcome_in(6);
    let effects = bench.hear(orders(6, true, vec![order(one, WorkerDesire::Run)]));
    assert!(launched(&effects).is_empty() && stopped(&effects).is_empty());
    let renewed = bench.lease(9_000);
    assert!(renewed.iter().any(
        |effect| matches!(effect, Effect::Renew { worker, fence, .. } if *worker == one && fence.term == Term(6))
    ));
}

#[test]
fn complete_orders_stop_what_they_do_not_name() {
    let (kept, extra) = (worker(1, 10, 0), worker(2, 11, 0));
    let mut bench = Bench::leased();
    bench.order(kept, WorkerDesire::Run);
    bench.order(extra, WorkerDesire::Run);
    let effects = bench.hear(orders(5, true, vec![order(kept, WorkerDesire::Run)]));
    assert_eq!(stopped(&effects), [(extra, Cause::NotGranted)]);
    let again = bench.hear(orders(5, true, vec![order(kept, WorkerDesire::Run)]));
    assert!(stopped(&again).is_empty(), "told once");
    let mut over = exited(extra, 0);
    over.cause = Some(Cause::NotGranted);
    let effects = bench.told(over);
    assert_eq!(reported(&effects), [(11, WorkerPhase::Stopped, StopCause::NotGranted)]);
    assert!(forgotten(&effects).is_empty(), "not before it is acknowledged");
    assert_eq!(forgotten(&bench.acknowledge(&effects)), [extra]);
}

#[test]
fn partial_orders_stop_nothing_else() {
    let mut bench = Bench::leased();
    bench.order(worker(1, 10, 0), WorkerDesire::Run);
    let effects = bench.order(worker(2, 11, 0), WorkerDesire::Run);
    assert!(stopped(&effects).is_empty());
}

#[test]
fn a_stop_order_carries_its_policy() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.order(one, WorkerDesire::Run);
    let effects = bench.order(one, WorkerDesire::Stop);
    let policy =
        effects.iter().find_map(|effect| if let Effect::Stop { policy, .. } = effect { Some(*policy) } else { None });
    let policy = policy.expect("stopped");
    assert_eq!((policy.signal.0, policy.grace), (nix::sys::signal::Signal::SIGUSR1, Duration::from_secs(30)));
    assert!(stopped(&bench.order(one, WorkerDesire::Stop)).is_empty(), "the same word again is no news");
    let mut sooner = order(one, WorkerDesire::Stop);
    sooner.stop = Some(wire::StopPolicy { signal: "SIGTERM".to_owned(), grace: None, save: false });
    assert_eq!(stopped(&bench.hear(orders(5, false, vec![sooner]))), [(one, Cause::Ordered)]);
}

#[test]
fn a_stop_for_what_was_never_here_is_confirmed_and_a_late_run_refused() {
    let mut bench = Bench::leased();
    let effects = bench.order(worker(1, 10, 0), WorkerDesire::Stop);
    assert_eq!(reported(&effects), [(10, WorkerPhase::Stopped, StopCause::Ordered)]);
    let late = bench.order(worker(1, 10, 0), WorkerDesire::Run);
    assert!(launched(&late).is_empty());
    assert_eq!(reported(&late), [(10, WorkerPhase::Stopped, StopCause::Ordered)]);
}

#[test]
fn an_older_epoch_of_the_same_allocation_is_refused() {
    let mut bench = Bench::leased();
    bench.order(worker(1, 12, 0), WorkerDesire::Run);
    let effects = bench.order(worker(1, 10, 0), WorkerDesire::Run);
    assert!(launched(&effects).is_empty());
    assert_eq!(reported(&effects), [(10, WorkerPhase::Stopped, StopCause::StartFailed)]);
}

#[test]
fn a_newer_allocation_waits_until_the_older_one_is_gone() {
    let (old, new) = (worker(1, 10, 0), worker(1, 12, 0));
    let mut bench = Bench::leased();
    bench.order(old, WorkerDesire::Run);
    bench.told(status(old, Phase::Running));
    let effects = bench.order(new, WorkerDesire::Run);
    assert!(launched(&effects).is_empty(), "L2: never both at once");
    assert_eq!(stopped(&effects), [(old, Cause::NotGranted)]);
    let mut unconfirmed = status(old, Phase::Unconfirmed);
    unconfirmed.cause = Some(Cause::NotGranted);
    let effects = bench.told(unconfirmed);
    assert!(launched(&effects).is_empty());
    assert_eq!(reported(&effects), [(10, WorkerPhase::Unconfirmed, StopCause::NotGranted)]);
    assert_eq!(launched(&bench.told(exited(old, 0))), [new]);
}

#[test]
fn ranks_of_one_allocation_run_side_by_side() {
    let mut bench = Bench::leased();
    let run = |rank| order(worker(1, 10, rank), WorkerDesire::Run);
    let effects = bench.hear(orders(5, true, vec![run(0), run(1)]));
    assert_eq!(launched(&effects), [worker(1, 10, 0), worker(1, 10, 1)]);
}

#[test]
fn what_waits_for_a_lease_is_stopped_without_ever_starting() {
    let mut bench = Bench::with(0, Vec::new());
    bench.welcome_in(5);
    bench.order(worker(1, 10, 0), WorkerDesire::Run);
    let effects = bench.order(worker(1, 10, 0), WorkerDesire::Stop);
    assert_eq!(reported(&effects), [(10, WorkerPhase::Stopped, StopCause::Ordered)]);
    assert!(launched(&bench.lease(9_000)).is_empty());
}

#[test]
fn what_is_settled_is_forgotten_with_its_output_kept() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    let mut run = order(one, WorkerDesire::Run);
    run.spec.as_mut().expect("made above").output_retention = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    bench.hear(orders(5, false, vec![run]));
    bench.told(exited(one, 0));
    let effects = bench.order(one, WorkerDesire::Forget);
    let kept = effects.iter().find_map(|effect| {
        if let Effect::Forget { worker, retention } = effect { Some((*worker, *retention)) } else { None }
    });
    assert_eq!(kept, Some((one, Some(Duration::from_secs(60)))));
    assert_eq!(bench.node.workers().count(), 0);
    assert!(bench.order(one, WorkerDesire::Forget).is_empty(), "forgetting twice is no news");
}

#[test]
fn forgetting_what_runs_stops_it_first() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.order(one, WorkerDesire::Run);
    let effects = bench.order(one, WorkerDesire::Forget);
    assert_eq!(stopped(&effects), [(one, Cause::NotGranted)]);
    assert!(forgotten(&effects).is_empty());
    assert_eq!(forgotten(&bench.told(exited(one, 0))), [one]);
}

#[test]
fn orders_without_a_worker_or_a_wish_change_nothing() {
    let mut bench = Bench::leased();
    let nameless = wire::WorkerOrder { worker: None, ..order(worker(1, 1, 0), WorkerDesire::Run) };
    let wishless = order(worker(1, 10, 0), WorkerDesire::Unspecified);
    assert!(bench.hear(orders(5, false, vec![nameless, wishless])).is_empty());
    assert_eq!(bench.node.workers().count(), 0);
}

/// Orders all workers of a gang of so many to run.
fn gang(bench: &mut Bench, allocation: u64, size: u32) -> Vec<Effect> {
    let workers = (0..size).map(|rank| order(worker(allocation, 10, rank), WorkerDesire::Run)).collect();
    bench.hear(orders(5, false, workers))
}

#[test]
fn a_large_gang_starts_so_many_workers_at_a_time() {
    let mut bench = Bench::leased();
    let mut starting = launched(&gang(&mut bench, 1, 40));
    assert_eq!(starting.len(), 8);
    let mut seen = starting.clone();
    while let Some(one) = starting.pop() {
        // A worker that cannot be started makes room as one does that runs.
        let next = if one.rank.0 % 2 == 0 { status(one, Phase::Running) } else { exited(one, 1) };
        let next = launched(&bench.told(next));
        assert!(starting.len() + next.len() <= 8, "{next:?} start beside {starting:?}");
        seen.extend(&next);
        starting.extend(next);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).map(|rank| worker(1, 10, rank)).collect::<Vec<_>>(), "each once");
}

#[test]
fn a_host_of_many_processors_starts_more_workers_at_once() {
    let mut bench = Bench::leased();
    bench.node = bench.node.with_processors(16);
    assert_eq!(launched(&gang(&mut bench, 1, 40)).len(), 32);
}

#[test]
fn a_small_job_starts_before_the_rest_of_a_large_gang() {
    let mut bench = Bench::leased();
    let first = launched(&gang(&mut bench, 1, 40))[0];
    let small = worker(2, 10, 0);
    assert!(launched(&bench.order(small, WorkerDesire::Run)).is_empty(), "as many start as may");
    assert_eq!(launched(&bench.told(status(first, Phase::Running))), [small]);
}

#[test]
fn no_stream_of_small_jobs_passes_the_rest_of_a_large_gang_for_ever() {
    let mut bench = Bench::leased();
    let mut starting = VecDeque::from(launched(&gang(&mut bench, 1, 40)));
    let mut left = 32;
    for job in 2..170 {
        bench.pass(Duration::from_millis(50));
        // As much is ordered as there is room for: something waits for good.
        bench.order(worker(job, 10, 0), WorkerDesire::Run);
        let runs = starting.pop_front().expect("as many start as may");
        let next = launched(&bench.told(status(runs, Phase::Running)));
        left -= next.iter().filter(|worker| worker.allocation == AllocationId(1)).count();
        starting.extend(next);
    }
    assert_eq!(left, 0);
}

#[test]
fn a_start_that_waits_for_something_else_holds_no_other_up_for_long() {
    let mut bench = Bench::leased();
    gang(&mut bench, 1, 9);
    assert!(launched(&bench.on(Event::HeartbeatDue)).is_empty());
    bench.pass(Duration::from_secs(2));
    assert_eq!(launched(&bench.on(Event::HeartbeatDue)), [worker(1, 10, 8)]);
}

#[test]
fn stops_wait_for_no_start() {
    let mut bench = Bench::leased();
    let starting = launched(&gang(&mut bench, 1, 40));
    let effects = bench.hear(orders(5, true, Vec::new()));
    let stopped: Vec<_> = stopped(&effects).into_iter().map(|(worker, _)| worker).collect();
    assert_eq!(stopped, starting);
    assert_eq!(reported(&effects).len(), 32, "what waited is over at once");
    assert!(launched(&effects).is_empty());
}
