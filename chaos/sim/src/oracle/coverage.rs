//! Transitions of the ledger that a run has seen, and the [`sights`] that workloads are there for: what was never hit
//! was never tested, and what is not in the tables here must not happen.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tessera_ledger::{AllocationId, Eligibility, Event, JobState, MoveId, NodeId, NodeState, Rank, WorkerState};

use super::sights::{self, Sights};
use crate::journal::Applied;
use crate::story::Story;

/// Number of times that each transition was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Transitions, named `job pending -> starting`, and sights, named `seen: loan recalled`.
    pub hits: BTreeMap<String, u64>,
}

impl Coverage {
    fn count(&mut self, what: &str) {
        *self.hits.entry(what.to_owned()).or_default() += 1;
    }

    pub fn see(&mut self, sight: &str) {
        self.count(&sights::named(sight));
    }
}

/// Follows the log.
#[derive(Default)]
pub struct Follower {
    pub coverage: Coverage,
    legal: BTreeSet<String>,
    sights: Sights,
    workers: BTreeMap<(AllocationId, Rank), WorkerState>,
    nodes: BTreeMap<NodeId, (NodeState, Eligibility)>,
    /// The step of each move: its place in [`STEPS`].
    moves: BTreeMap<MoveId, usize>,
}

/// The steps of a move, in their order; each is told once.
const STEPS: [&str; 4] = ["reserved", "suspending", "transferring", "resuming"];

/// The states that may follow each state of a worker.
const WORKERS: [(&str, &[WorkerState]); 5] = {
    use WorkerState::{Draining, Held, Lost, Running, Stopped};
    [
        ("granted", &[Held]),
        ("Held", &[Running, Draining, Lost, Stopped]),
        ("Running", &[Draining, Lost, Stopped]),
        ("Draining", &[Lost, Stopped]),
        ("Lost", &[Running, Draining, Stopped]),
    ]
};

const ELIGIBILITIES: [Eligibility; 3] = [Eligibility::Eligible, Eligibility::Cordoned, Eligibility::Draining];

fn transition(what: &str, from: &str, to: &str) -> String {
    format!("{what} {from} -> {to}")
}

/// Every legal transition of jobs, workers, moves and nodes, but for nodes that are forgotten: no operator here does
/// that.
pub fn legal() -> BTreeSet<String> {
    let jobs = JobState::ALL
        .into_iter()
        .flat_map(|from| from.successors().iter().map(move |to| transition("job", from.name(), to.name())));
    let workers = WORKERS
        .into_iter()
        .flat_map(|(from, all)| all.iter().map(move |to| transition("worker", from, &format!("{to:?}"))));
    let onwards = STEPS.windows(2).map(|pair| transition("move", pair[0], pair[1]));
    let endings = STEPS.into_iter().map(|step| transition("move", step, "ended"));
    let nodes = [transition("node", "Ready", "Lost"), transition("node", "Lost", "Ready")];
    let eligibilities = ELIGIBILITIES.into_iter().flat_map(|from| {
        let others = ELIGIBILITIES.into_iter().filter(move |to| *to != from);
        others.map(move |to| transition("node", &format!("{from:?}"), &format!("{to:?}")))
    });
    let begun = [transition("job", "submitted", JobState::Pending.name()), transition("move", "running", STEPS[0])];
    jobs.chain(workers).chain(onwards).chain(endings).chain(nodes).chain(eligibilities).chain(begun).collect()
}

/// An event in a line of the story; `None` for those that say nothing to a reader.
fn describe(event: &Event) -> Option<String> {
    match event {
        Event::Job { job, from, to, reason, .. } => {
            let from = from.map_or("submitted", JobState::name);
            Some(format!("job {job} {from} -> {}: {}", to.name(), reason.code()))
        }
        Event::Worker { job, allocation, rank, node, state } => {
            Some(format!("job {job} worker {}-*-{} on node {node}: {state:?}", allocation.0, rank.0))
        }
        Event::AllocationReleased { job, allocation } => {
            Some(format!("job {job} allocation {} given back", allocation.0))
        }
        Event::Node { node, state, eligibility } => Some(format!("node {node}: {state:?}, {eligibility:?}")),
        Event::Move { id, job, in_progress } => {
            Some(format!("job {job} move {} {}", id.0, if *in_progress { "goes on" } else { "ended" }))
        }
        Event::Quarantined { node, job, .. } => Some(format!("job {job} quarantined on node {node}")),
        _ => None,
    }
}

impl Follower {
    /// Takes note of an entry.
    ///
    /// # Errors
    /// What happened and is in no table.
    pub fn learn(&mut self, entry: &Applied, story: &Story) -> Result<(), String> {
        if self.legal.is_empty() {
            self.legal = legal();
        }
        for event in entry.events.iter() {
            if let Some(line) = describe(event) {
                story.tell("==", format!("{:<4} {line}", entry.at.revision.0));
            }
            for name in self.transitions(event) {
                if !self.legal.contains(&name) {
                    return Err(format!("revision {}: {name}", entry.at.revision.0));
                }
                self.coverage.count(&name);
            }
        }
        for sight in self.sights.of(entry) {
            self.coverage.see(sight);
        }
        Ok(())
    }

    fn transitions(&mut self, event: &Event) -> Vec<String> {
        match event {
            Event::Job { from, to, .. } => {
                let from = from.map_or("submitted", JobState::name);
                if from == to.name() { Vec::new() } else { vec![transition("job", from, to.name())] }
            }
            Event::Worker { allocation, rank, state, .. } => {
                let before = self.workers.insert((*allocation, *rank), *state);
                let before = before.map_or("granted".to_owned(), |before| format!("{before:?}"));
                vec![transition("worker", &before, &format!("{state:?}"))]
            }
            Event::Node { node, state, eligibility } => self.node_became(*node, *state, *eligibility),
            Event::Move { id, in_progress, .. } => vec![self.move_went_on(*id, *in_progress)],
            _ => Vec::new(),
        }
    }

    fn node_became(&mut self, node: NodeId, state: NodeState, eligibility: Eligibility) -> Vec<String> {
        let before = self.nodes.insert(node, (state, eligibility));
        let Some((state_before, eligibility_before)) = before else { return Vec::new() };
        let mut seen = Vec::new();
        if state_before != state {
            seen.push(transition("node", &format!("{state_before:?}"), &format!("{state:?}")));
        }
        if eligibility_before != eligibility {
            seen.push(transition("node", &format!("{eligibility_before:?}"), &format!("{eligibility:?}")));
        }
        seen
    }

    fn move_went_on(&mut self, id: MoveId, in_progress: bool) -> String {
        let step = |place: usize| STEPS.get(place).copied().unwrap_or("beyond its last step");
        let Some(place) = self.moves.get_mut(&id) else {
            self.moves.insert(id, 0);
            return transition("move", "running", step(0));
        };
        let before = step(*place);
        if !in_progress {
            return transition("move", before, "ended");
        }
        *place += 1;
        transition("move", before, step(*place))
    }
}
