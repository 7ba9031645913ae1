//! Nodes that are to be empty by some time: their jobs are moved away a few at a time while there is time. When it is
//! over, placement has what is left suspended. All of it follows from the ledger, so that every leader goes on with it.

use std::sync::Arc;
use std::time::Duration;

use tessera_check::check;
use tessera_ledger::{CheckpointMode, Job, JobId, JobState, LogTime, NodeId, Plan, PlanPart, Reason, State};
use tessera_placement::Pool;

/// The pause before jobs for which there was no room are tried again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Moves away from a node at once: its disk and its network hand out what they save.
const AT_ONCE: usize = 2;

/// The time that a job stays in place after its move has failed.
const REST: Duration = Duration::from_secs(30);

/// Jobs that are tried at one look.
const TRIES: usize = 16;

/// The actor's memory of emptying nodes.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    look_at: LogTime,
    /// The job that was tried last: the next look goes on behind it.
    tried: JobId,
}

impl Emptying {
    /// The time of the next search for room; `None` when no job may move now.
    pub(super) fn next_look(&self, pool: &Pool, state: &State, now: LogTime) -> Option<LogTime> {
        let any = nodes(pool, state, now).any(|node| !may_move(state, node, now).is_empty());
        any.then(|| if self.look_at > now { self.look_at } else { now.after(LOOK_EVERY) })
    }

    /// The next move, if there is one to make now.
    pub(super) fn parts(&mut self, pool: &mut Pool, state: &State, now: LogTime) -> Vec<PlanPart> {
        if self.look_at > now {
            return Vec::new();
        }
        let nodes: Vec<NodeId> = nodes(pool, state, now).collect();
        let mut jobs: Vec<JobId> = nodes.into_iter().flat_map(|node| may_move(state, node, now)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let behind = jobs.partition_point(|job| *job <= self.tried);
        jobs.rotate_left(behind);
        for job in jobs.into_iter().take(TRIES) {
            self.tried = job;
            let parts = pool.move_one(state, now, job, None).map(|planned| planned.parts()).unwrap_or_default();
            let plan = Plan { revision: state.revision(), parts };
            if !plan.parts.is_empty() && check(state, &plan).is_ok() {
                return plan.parts;
            }
        }
        self.look_at = now.after(LOOK_EVERY);
        Vec::new()
    }
}

/// The nodes that need not be left yet, and are to be.
fn nodes(pool: &Pool, state: &State, now: LogTime) -> impl Iterator<Item = NodeId> {
    pool.draining().filter(move |node| state.node(*node).is_some_and(|node| !node.must_be_left(now)))
}

/// The jobs of a node that go on elsewhere where they were, as far as more of them may move now. Others run on until
/// the node must be left, and one whose move has just failed has a rest: its target may be about to be missed.
fn may_move(state: &State, node: NodeId, now: LogTime) -> Vec<JobId> {
    let jobs = || {
        state
            .allocations_on(node)
            .filter_map(|allocation| state.job(allocation.job).filter(|job| job.allocation == Some(allocation.id)))
    };
    if jobs().filter(|job| job.moving.is_some()).count() >= AT_ONCE {
        return Vec::new();
    }
    let rests = |job: &Job| job.reason == Reason::MoveFailed && now.since(job.changed_at) < REST;
    let saves = |mode| matches!(mode, CheckpointMode::Cooperative | CheckpointMode::Transparent);
    let goes = |job: &&Arc<Job>| job.state == JobState::Running && saves(job.spec.checkpoint.mode) && !rests(job);
    jobs().filter(goes).map(|job| job.id).collect()
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{Command, JobSpec, Observation};

    use super::*;
    use crate::fixture::{Ledger, job, owner};

    /// Three nodes of ten blocks; the first has jobs of this mode, each of so many TFLOPS, and is to be empty.
    fn emptied(jobs: &[(CheckpointMode, u64)]) -> (Ledger, NodeId, Vec<JobId>) {
        let mut ledger = Ledger::default();
        let nodes = ["a", "b", "c"].map(|name| ledger.node(name, &[10]));
        let mut start = 0;
        let jobs = jobs.iter().map(|(mode, tflops)| {
            let mut spec: JobSpec = job(*tflops);
            spec.checkpoint.mode = *mode;
            let id = ledger.submit(spec);
            let blocks = u32::try_from(*tflops).expect("it is small");
            let allocation = ledger.grant(id, &[(nodes[0], start, blocks)]);
            ledger.report(nodes[0], owner(&allocation, 0), Observation::Running);
            start += blocks;
            id
        });
        let jobs = jobs.collect();
        let (node, reason, within) = (nodes[0], "fan".to_owned(), Duration::from_secs(600));
        ledger.apply(Command::DrainNode { node, reason, within });
        (ledger, node, jobs)
    }

    /// Commits what it wants now, again and again; which jobs it moved.
    fn moved(emptying: &mut Emptying, ledger: &mut Ledger) -> Vec<JobId> {
        let mut moved = Vec::new();
        loop {
            let (mut pool, now) = (Pool::new(&ledger.state), ledger.now());
            let parts = emptying.parts(&mut pool, &ledger.state, now);
            let Some(PlanPart::Move { job, .. }) = parts.last() else { return moved };
            moved.push(*job);
            let plan = Plan { revision: ledger.state.revision(), parts };
            ledger.apply(Command::CommitPlan { plan });
        }
    }

    #[test]
    fn what_saves_itself_is_moved_away_two_at_a_time_and_the_rest_runs_on() {
        use CheckpointMode::{Cooperative, Requeue};
        let (mut ledger, _, jobs) = emptied(&[(Cooperative, 2), (Requeue, 2), (Cooperative, 2), (Cooperative, 2)]);
        let mut emptying = Emptying::default();
        assert_eq!(moved(&mut emptying, &mut ledger), [jobs[0], jobs[2]]);
        let state = |ledger: &Ledger, job: JobId| ledger.state.job(job).expect("it is known").state;
        assert_eq!([1, 3].map(|place| state(&ledger, jobs[place])), [JobState::Running; 2]);
        let (pool, now) = (Pool::new(&ledger.state), ledger.now());
        assert_eq!(emptying.next_look(&pool, &ledger.state, now), None, "the end of a move is a change");
    }

    #[test]
    fn for_which_there_is_no_room_is_tried_again_after_a_while() {
        let (mut ledger, node, _) = emptied(&[(CheckpointMode::Cooperative, 8)]);
        let others: Vec<NodeId> = ledger.state.nodes().map(|node| node.id).filter(|id| *id != node).collect();
        for other in others {
            let filler = ledger.submit(job(5));
            ledger.grant(filler, &[(other, 0, 5)]);
        }
        let mut emptying = Emptying::default();
        assert_eq!(moved(&mut emptying, &mut ledger), []);
        let (pool, now) = (Pool::new(&ledger.state), ledger.now());
        let look = emptying.next_look(&pool, &ledger.state, now).expect("it is tried again");
        assert!(look > now && look <= now.after(LOOK_EVERY));
    }

    #[test]
    fn when_its_time_is_over_what_is_left_is_suspended() {
        let (mut ledger, node, jobs) = emptied(&[(CheckpointMode::Requeue, 2)]);
        let by = ledger.state.node(node).and_then(|node| node.drain_by).expect("there is a time");
        let decided = |ledger: &Ledger, now| {
            let mut pool = Pool::new(&ledger.state);
            pool.decide(&ledger.state, now, &tessera_placement::Limits::default())
        };
        let early = decided(&ledger, ledger.now());
        assert_eq!((early.plan.parts, early.next_wakeup), (vec![], Some(by)));
        assert_eq!(decided(&ledger, by).plan.parts, [PlanPart::Evict { job: jobs[0], node }]);
        assert_eq!(moved(&mut Emptying::default(), &mut ledger), [], "it begins again wherever it goes");
    }
}
