//! The part of an agent's reports that the ledger does not know yet: only that is proposed to the log.

use tessera_ledger::{
    CardDescription, CheckpointKey, Command, NodeId, NodeState, Observation, PartKey, State, WorkerReport, WorkerState,
};

use super::messages::{Greeting, Report, Sighting};
use super::orders;

/// Reports of workers in one command: with the longest sentences they fit into one entry of the log.
const TOGETHER: usize = 256;

/// The number of the node if the ledger knows all that its agent says of it; `None` when it must register.
pub(super) fn known_as(greeting: &Greeting, state: &State) -> Option<NodeId> {
    let node = state.node_by_name(&greeting.node.name)?;
    let mut cards = state.cards_of(node.id).map(|(_, card)| &card.description);
    let same_cards = greeting.cards.iter().all(|card| cards.next() == Some(card)) && cards.next().is_none();
    (node.description == greeting.node && same_cards).then_some(node.id)
}

/// The name of the node that the agent's identity belongs to, when it is another than the agent says.
pub(super) fn other_name_of<'a>(greeting: &Greeting, state: &'a State) -> Option<&'a str> {
    let said = &greeting.node;
    if state.node_by_name(&said.name).is_some_and(|known| known.description.uid == said.uid) {
        return None;
    }
    let mut own = state.nodes().filter(|node| node.state != NodeState::Forgotten && node.description.uid == said.uid);
    own.next().map(|node| node.description.name.as_str())
}

/// The commands that tell the ledger what it does not know of these reports.
pub(super) fn news(node: NodeId, reports: &[Report], state: &State) -> Vec<Command> {
    let workers: Vec<WorkerReport> = reports
        .iter()
        .flat_map(|report| &report.workers)
        .flat_map(Sighting::reports)
        .filter(|report| is_news(node, report, state))
        .collect();
    let cards: Vec<CardDescription> = reports
        .iter()
        .flat_map(|report| &report.cards)
        .filter(|card| {
            let id = tessera_ledger::CardId { node, index: card.index };
            state.card(id).is_none_or(|known| known.description != **card)
        })
        .cloned()
        .collect();
    let together = workers.chunks(TOGETHER).map(|some| Command::ReportWorkers { node, reports: some.to_vec() });
    let mut commands: Vec<Command> = together.collect();
    if !cards.is_empty() {
        commands.push(Command::UpdateCards { node, cards });
    }
    let known = state.node(node).map(|node| &node.description.cached);
    if let Some(cached) = reports.iter().rev().find_map(|report| report.cached.as_ref())
        && known.is_some_and(|known| known != cached)
    {
        commands.push(Command::UpdateCached { node, cached: cached.clone() });
    }
    commands
}

/// True if a report would change the ledger. What is in the leader's state is committed, so what it shows need not be
/// said.
fn is_news(node: NodeId, report: &WorkerReport, state: &State) -> bool {
    let Some((allocation, worker)) = orders::worker_on(state, node, report.worker) else { return false };
    match &report.observation {
        Observation::Running => matches!(worker.state, WorkerState::Held | WorkerState::Lost),
        Observation::Stopped(_) => worker.state != WorkerState::Stopped,
        Observation::Saved(saved) => {
            let checkpoint = CheckpointKey { attempt: allocation.attempt, sequence: saved.sequence };
            state.job(allocation.job).is_some_and(|job| {
                let Some(rank) = allocation.program(&job.spec.virtual_card, worker.rank) else { return false };
                let key = PartKey { job: allocation.job, checkpoint, epoch: allocation.epoch, rank };
                job.checkpoints.holding(&key).is_none() && !job.checkpoints.can_do_without(&key, job.attempts)
            })
        }
        Observation::Unusable { .. } => worker.state != WorkerState::Stopped,
        Observation::Unconfirmed { .. } => !matches!(worker.state, WorkerState::Stopped | WorkerState::Lost),
    }
}
