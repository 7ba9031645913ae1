//! Whatever the leader orders, in whatever order, a node keeps its word.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::WorkerDesire;

use super::*;

/// Something that may happen.
#[derive(Clone, Debug)]
enum Step {
    Orders { complete: bool, workers: Vec<(u64, u64, u32, i32)> },
    Status { which: usize, phase: u8 },
    Lease { stop_after_ms: u64 },
    Pass { ms: u64 },
    Acknowledge { which: usize },
    Reconnect { raise_term: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = (1..3_u64, 10..13_u64, 0..2_u32, 0..4_i32);
    let step = prop_oneof![
        3 => (any::<bool>(), prop::collection::vec(worker, 0..4))
            .prop_map(|(complete, workers)| Step::Orders { complete, workers }),
        4 => (any::<usize>(), 0..5_u8).prop_map(|(which, phase)| Step::Status { which, phase }),
        2 => (0..20_000_u64).prop_map(|stop_after_ms| Step::Lease { stop_after_ms }),
        2 => (0..15_000_u64).prop_map(|ms| Step::Pass { ms }),
        2 => any::<usize>().prop_map(|which| Step::Acknowledge { which }),
        1 => any::<bool>().prop_map(|raise_term| Step::Reconnect { raise_term }),
    ];
    prop::collection::vec(step, 1..60)
}

/// The test's own knowledge, gained without looking into the node.
#[derive(Default)]
struct World {
    /// Workers that were launched, and whether they are over.
    launched: BTreeMap<WorkerId, bool>,
    told_to_stop: Vec<WorkerId>,
    unacknowledged: Vec<u64>,
}

impl World {
    fn check(&mut self, bench: &Bench, effects: &[Effect]) {
        for worker in launched(effects) {
            assert!(!self.launched.contains_key(&worker), "{worker} was launched twice");
            assert!(bench.node.lease().is_some_and(|lease| bench.now < lease.stop_at), "launched without a lease");
            let rival = self.launched.iter().find(|(other, over)| {
                !**over
                    && other.allocation == worker.allocation
                    && other.rank == worker.rank
                    && other.epoch < worker.epoch
            });
            assert_eq!(rival, None, "L2: an older allocation of {worker} is alive");
            self.launched.insert(worker, false);
        }
        for (worker, _) in stopped(effects) {
            assert_eq!(self.launched.get(&worker), Some(&false), "{worker} is told to stop but does not run");
            self.told_to_stop.push(worker);
        }
        for worker in forgotten(effects) {
            assert_ne!(self.launched.get(&worker), Some(&false), "{worker} is forgotten while it runs");
        }
        self.unacknowledged.extend(reports(effects).iter().map(|report| report.report_id));
    }

    fn running(&self, which: usize) -> Option<WorkerId> {
        let running: Vec<WorkerId> =
            self.launched.iter().filter(|(_, over)| !**over).map(|(worker, _)| *worker).collect();
        running.get(which.checked_rem(running.len())?).copied()
    }
}

fn perform(bench: &mut Bench, world: &mut World, step: Step) {
    let effects = match step {
        Step::Orders { complete, workers } => {
            let ordered: Vec<_> = workers
                .iter()
                // The leader orders nothing that it has settled.
                .map(|(allocation, epoch, rank, desire)| (worker(*allocation, *epoch, *rank), *desire))
                .filter(|(worker, _)| world.launched.get(worker) != Some(&true))
                .map(|(worker, desire)| order(worker, WorkerDesire::try_from(desire).unwrap_or_default()))
                .collect();
            let named: Vec<WorkerId> =
                ordered.iter().map(|order| crate::node::from_ref(&order.worker.unwrap_or_default())).collect();
            let effects = bench.hear(orders(bench.node.highest_term().0, complete, ordered));
            world.check(bench, &effects);
            if complete {
                for (worker, over) in &world.launched {
                    assert!(
                        *over || named.contains(worker) || world.told_to_stop.contains(worker),
                        "{worker} runs on ungranted"
                    );
                }
            }
            return;
        }
        Step::Status { which, phase } => {
            let Some(worker) = world.running(which) else { return };
            let phases = [Phase::Preparing, Phase::Running, Phase::Stopping, Phase::Unconfirmed, Phase::Stopped];
            let phase = phases[usize::from(phase)];
            if phase == Phase::Stopped {
                world.launched.insert(worker, true);
            }
            bench.told(status(worker, phase))
        }
        Step::Lease { stop_after_ms } => bench.lease(stop_after_ms),
        Step::Pass { ms } => {
            bench.pass(Duration::from_millis(ms));
            bench.on(Event::HeartbeatDue)
        }
        Step::Acknowledge { which } => {
            let Some(place) = which.checked_rem(world.unacknowledged.len()) else { return };
            let report_id = world.unacknowledged.swap_remove(place);
            bench.hear(FromLeader::ReportAcknowledged(wire::ReportAcknowledged { report_id }))
        }
        Step::Reconnect { raise_term } => {
            bench.on(Event::SessionClosed);
            world.unacknowledged.clear();
            let hello = bench.hello();
            for (worker, over) in &world.launched {
                let said = hello.workers.iter().any(|report| report.worker == Some(to_ref(*worker)));
                assert!(*over || said, "{worker} runs and the leader is not told");
            }
            let term = bench.node.highest_term().0 + u64::from(raise_term);
            let mut effects = bench.hear(welcome(term));
            effects.extend(bench.on(Event::TermKept(Term(term))));
            effects
        }
    };
    world.check(bench, &effects);
    if leaves(&effects) {
        perform(bench, world, Step::Reconnect { raise_term: false });
    }
}

proptest! {
    #[test]
    fn no_order_of_events_breaks_a_promise(steps in steps()) {
        let mut bench = Bench::leased();
        let mut world = World::default();
        for step in steps {
            perform(&mut bench, &mut world, step);
        }
    }
}
