//! Checks the wishes that must be met: workers together, and away from jobs that they avoid.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{Job, PlannedWorker, WorkerState};

use crate::Problem;
use crate::world::World;

/// Checks against the jobs that run now, those that leave included, and those that the parts before have placed.
pub(crate) fn check(world: &mut World<'_>, job: &Job, workers: &[PlannedWorker], problems: &mut Vec<Problem>) {
    let state = world.state;
    let affinity = &job.spec.affinity;
    if !affinity.together.is_empty() {
        let value = |worker: &PlannedWorker| {
            state.node(worker.node).and_then(|node| node.description.label(&affinity.together))
        };
        let values: BTreeSet<Option<&str>> = workers.iter().map(value).collect();
        if values.len() > 1 || values.contains(&None) {
            problems.push(Problem::NotTogether(job.id));
        }
    }
    for worker in workers.iter().filter(|_| !affinity.avoid.is_empty()) {
        let carries = |labels: &BTreeMap<String, String>| {
            affinity.avoid.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let running = state.allocations_on(worker.node).filter(|other| other.job != job.id).any(|other| {
            let here = |held: &tessera_ledger::Worker| held.node == worker.node && held.state != WorkerState::Stopped;
            other.workers.iter().any(here) && state.job(other.job).is_some_and(|job| carries(&job.spec.labels))
        });
        let planned = world.placed.iter().filter(|(node, other)| *node == worker.node && *other != job.id);
        let planned = planned.filter_map(|(_, other)| state.job(*other)).any(|job| carries(&job.spec.labels));
        if running || planned {
            problems.push(Problem::BesideAvoided { job: job.id, node: worker.node });
        }
    }
    world.placed.extend(workers.iter().map(|worker| (worker.node, job.id)));
}
