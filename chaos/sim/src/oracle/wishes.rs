//! Checks that workers are where their job wants them: all together where it says so, and not on a node that runs what
//! it must not be beside. The ledger does not check that; placement does, against the newest state that it has seen.

use tessera_ledger::{Allocation, Command, Event, Job, NodeId, Outcome, PlanPart, Revision, State, WorkerState};

use super::Oracle;
use crate::journal::Applied;

#[derive(Default)]
pub struct Wishes {
    /// Revision of the last grant: whoever planned before that could not know it.
    granted: Revision,
}

/// The allocations that an entry made and that are still there at its end.
pub fn granted(entry: &Applied) -> Vec<&Allocation> {
    let begun = |event: &Event| match event {
        Event::Worker { allocation, state: WorkerState::Held, rank, .. } if rank.0 == 0 => Some(*allocation),
        _ => None,
    };
    let fresh = |allocation: &&Allocation| allocation.epoch.0 == entry.at.revision.0;
    entry
        .events
        .iter()
        .filter_map(begun)
        .filter_map(|id| entry.after.allocation(id))
        .map(|allocation| &**allocation)
        .filter(fresh)
        .collect()
}

fn label<'a>(state: &'a State, node: NodeId, key: &str) -> Option<&'a str> {
    state.node(node)?.description.label(key)
}

/// Returns whether all workers are where a label has one value.
fn are_together(state: &State, allocation: &Allocation, key: &str) -> bool {
    let mut values = allocation.workers.iter().map(|worker| label(state, worker.node, key));
    let first = values.next().flatten();
    first.is_some() && values.all(|value| value == first)
}

/// A job that runs beside a worker of the allocation and carries all that its job avoids.
fn avoided<'a>(state: &'a State, job: &Job, allocation: &Allocation) -> Option<&'a Job> {
    let carries =
        |other: &Job| job.spec.affinity.avoid.iter().all(|(key, value)| other.spec.labels.get(key) == Some(value));
    let stays = |state: WorkerState| matches!(state, WorkerState::Held | WorkerState::Running);
    let others = state.allocations().filter(|other| other.job != job.id);
    let beside = others.filter(|other| {
        let there = other.workers.iter().filter(|worker| stays(worker.state));
        there.into_iter().any(|worker| allocation.workers.iter().any(|own| own.node == worker.node))
    });
    beside.filter_map(|other| state.job(other.job)).map(|other| &**other).find(|other| carries(other))
}

impl Wishes {
    /// Returns whether this entry commits one plan with one grant, and its planner knew everything that was granted
    /// before.
    fn was_foreseen(&self, entry: &Applied) -> bool {
        let plans = entry.requests.iter().zip(&entry.outcomes).filter_map(|(request, outcome)| {
            match (&request.command, outcome) {
                (Command::CommitPlan { plan }, Outcome::Planned(_)) => Some(plan),
                _ => None,
            }
        });
        let plans: Vec<_> = plans.collect();
        let grants = |plan: &&tessera_ledger::Plan| {
            plan.parts.iter().filter(|part| matches!(part, PlanPart::Grant { .. } | PlanPart::Move { .. })).count()
        };
        plans.len() == 1 && plans.iter().all(|plan| plan.revision >= self.granted && grants(plan) == 1)
    }
}

impl Oracle for Wishes {
    fn name(&self) -> &'static str {
        "workers are where their jobs want them"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        let allocations = granted(entry);
        if allocations.is_empty() {
            return Ok(());
        }
        let foreseen = self.was_foreseen(entry);
        for allocation in allocations {
            let Some(job) = entry.after.job(allocation.job) else { continue };
            let (key, nodes) = (&job.spec.affinity.together, || allocation.workers.iter().map(|worker| worker.node.0));
            if !key.is_empty() && !are_together(&entry.after, allocation, key) {
                return Err(format!(
                    "revision {}: the workers of job {} must be together by {key:?}, and are on the nodes {:?}",
                    entry.at.revision,
                    job.id,
                    nodes().collect::<Vec<_>>()
                ));
            }
            if foreseen
                && !job.spec.affinity.avoid.is_empty()
                && let Some(other) = avoided(&entry.after, job, allocation)
            {
                return Err(format!(
                    "revision {}: job {} avoids what job {} is, and is put beside it",
                    entry.at.revision, job.id, other.id
                ));
            }
        }
        self.granted = entry.at.revision;
        Ok(())
    }
}
