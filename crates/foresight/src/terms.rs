//! The reasons for the nodes that a job would go to: the terms of its wishes, node by node, for people.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{JobSpec, NodeId, Packing, PlannedWorker, State};
use tessera_placement::{cached, preferred};

/// One reason for or against a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The name of the term, such as `preferred`.
    pub name: &'static str,
    /// The weight of the term; more is better.
    pub score: u64,
    /// In words.
    pub sentence: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTerms {
    pub node: NodeId,
    /// Its terms, the weightiest first; empty when the job has no wishes.
    pub terms: Vec<Term>,
}

/// Says what of a job's wishes the nodes of a placement meet, in order of nodes.
#[must_use]
pub fn terms(state: &State, spec: &JobSpec, workers: &[PlannedWorker]) -> Vec<NodeTerms> {
    let nodes: BTreeSet<NodeId> = workers.iter().map(|worker| worker.node).collect();
    nodes.into_iter().map(|node| NodeTerms { node, terms: terms_of(state, spec, workers, node) }).collect()
}

fn terms_of(state: &State, spec: &JobSpec, workers: &[PlannedWorker], id: NodeId) -> Vec<Term> {
    let Some(node) = state.node(id) else { return Vec::new() };
    let affinity = &spec.affinity;
    let mut terms = Vec::new();
    let label = |id: NodeId, key: &str| state.node(id).and_then(|node| node.description.label(key).map(str::to_owned));
    if !affinity.together.is_empty() {
        let value = label(id, &affinity.together).unwrap_or_default();
        let sentence = format!("all workers share {}={value}", affinity.together);
        terms.push(Term { name: "together", score: 1, sentence });
    }
    if !affinity.avoid.is_empty() {
        let pairs: Vec<String> = affinity.avoid.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let sentence = format!("it runs no job with {}", pairs.join(", "));
        terms.push(Term { name: "avoid", score: 1, sentence });
    }
    if !affinity.spread.is_empty() {
        let mut zones: BTreeMap<Option<String>, u64> = BTreeMap::new();
        for worker in workers {
            *zones.entry(label(worker.node, &affinity.spread)).or_default() += 1;
        }
        let own = label(id, &affinity.spread);
        let here = zones.get(&own).copied().unwrap_or(0);
        let value = own.unwrap_or_else(|| "none".to_owned());
        let sentence = format!("{here} of {} workers are where {} is {value}", workers.len(), affinity.spread);
        terms.push(Term { name: "spread", score: (workers.len() as u64).saturating_sub(here), sentence });
    }
    if !affinity.preferred.is_empty() {
        let (score, all) =
            (preferred(affinity, node), affinity.preferred.iter().map(|label| label.weight).sum::<u32>());
        let sentence = format!("preferred labels of weight {score} of {all}");
        terms.push(Term { name: "preferred", score: u64::from(score), sentence });
    }
    if !affinity.data.is_empty() {
        let (hits, all) = (cached(affinity, node), affinity.data.len());
        let sentence = format!("{hits} of {all} pieces of its data are on the node's disks");
        terms.push(Term { name: "data", score: 100 * hits as u64 / all as u64, sentence });
    }
    if let Some(packing) = packing(state, spec) {
        let counts = state
            .cards_of(id)
            .fold((0, 0), |(free, all), (_, card)| (free + card.extents.counts().free, all + u64::from(card.blocks.0)));
        let (free, word) =
            (100 * counts.0 / counts.1.max(1), if packing == Packing::Stack { "stack" } else { "spread" });
        let score = if packing == Packing::Stack { 100u64.saturating_sub(free) } else { free };
        terms.push(Term { name: "packing", score, sentence: format!("{word}: {free} % of its blocks are free") });
    }
    terms
}

/// The packing of the job's virtual cards over the pool, where it has any wish or somebody says `spread`.
fn packing(state: &State, spec: &JobSpec) -> Option<Packing> {
    let queue = state.queue(&spec.queue).and_then(|queue| queue.settings.packing);
    let packing = spec.packing.or(queue).unwrap_or(state.config().packing);
    let wishes = spec.affinity != tessera_ledger::Affinity::default() || spec.packing.is_some();
    (wishes || packing == Packing::Spread).then_some(packing)
}
