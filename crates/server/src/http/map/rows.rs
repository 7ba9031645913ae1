//! The rows of the map, and finding those that changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tessera_api::v1;
use tessera_controller::telemetry::Telemetry;
use tessera_ledger::wire::WireEnum;
use tessera_ledger::{AllocationId, Card, CardId, JobId, Node, NodeState, State};
use tokio::task::JoinError;

/// Names that are sent once and referred to by their place.
#[derive(Debug, Default)]
struct Names {
    list: Vec<String>,
    places: BTreeMap<String, usize>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.list.len();
        self.list.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}

/// The displayed data of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    model: usize,
    /// Blocks that it offers, and how many are free, held, running, draining, lost and offline.
    blocks: [u64; 7],
    /// The job that holds most of it; 0: none.
    job: u64,
    /// The queue of that job, by its place among the names; meaningless without a job.
    queue: usize,
    /// Jobs that hold some of it.
    jobs: usize,
    /// The busy part of its granted blocks, in percent; [`UNTOLD`]: nothing is granted, or there is no reading.
    busy: u64,
}

/// In the place of a share that is not known.
const UNTOLD: u64 = 255;
/// Shares are told by steps of so many percent, so that they change seldom.
const STEP: f64 = 5.0;

/// The utilization of the granted blocks of a card in percent, each block counted alike; [`UNTOLD`] without a reading.
fn busy(telemetry: &Telemetry, id: CardId, card: &Card) -> u64 {
    let (mut computed, mut known) = (0.0, 0.0);
    for extent in card.extents.as_slice() {
        if let Some(reading) = extent.state.owner().and_then(|owner| telemetry.slice(id, owner)) {
            let blocks = f64::from(extent.length.0);
            computed += reading.utilization_ratio * blocks;
            known += blocks;
        }
    }
    if known == 0.0 {
        return UNTOLD;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 100")]
    let steps = ((computed / known).clamp(0.0, 1.0) * 100.0 / STEP).round() as u64;
    steps * 5
}

#[derive(Debug)]
struct CardRow {
    id: CardId,
    /// As it was shown last: another card in its place is another state of it.
    card: Arc<Card>,
    shown: Shown,
}

/// All rows.
#[derive(Debug)]
pub(super) struct Map {
    revision: u64,
    nodes: Vec<Arc<Node>>,
    cards: Vec<CardRow>,
    models: Names,
    queues: Names,
}

/// The result of updating a map.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing that is shown.
    Same,
    /// These rows, as JSON.
    Changed(String),
    /// Nodes or cards have come or gone.
    Anew,
}

/// The nodes that are shown.
fn nodes_of(state: &State) -> impl Iterator<Item = &Arc<Node>> {
    state.nodes().filter(|node| node.state != NodeState::Forgotten)
}

/// The cards of those nodes.
fn cards_of(state: &State) -> impl Iterator<Item = (CardId, &Arc<Card>)> {
    // Nodes and cards come in the same order. Looking for the cards of each node would go through the cards before it.
    let mut nodes = nodes_of(state).map(|node| node.id).peekable();
    state.cards().filter(move |(id, _)| {
        while nodes.next_if(|node| *node < id.node).is_some() {}
        nodes.peek() == Some(&id.node)
    })
}

/// As the API writes it.
fn state_of(node: &Node) -> &'static str {
    v1::NodeState::try_from(node.state.to_wire()).unwrap_or_default().as_str_name()
}

/// As the API writes it.
fn eligibility_of(node: &Node) -> &'static str {
    v1::Eligibility::try_from(node.eligibility.to_wire()).unwrap_or_default().as_str_name()
}

impl Map {
    /// Reads the map of a state, away from the threads that serve.
    pub(super) async fn read(state: Arc<State>, telemetry: Telemetry) -> Result<Self, JoinError> {
        tessera_consensus::try_blocking(move || Self::of(&state, &telemetry)).await
    }

    pub(super) fn of(state: &State, telemetry: &Telemetry) -> Self {
        let mut map = Self {
            revision: state.revision().0,
            nodes: nodes_of(state).cloned().collect(),
            cards: Vec::new(),
            models: Names::default(),
            queues: Names::default(),
        };
        for (id, card) in cards_of(state) {
            let shown = map.shown(state, telemetry, id, card);
            map.cards.push(CardRow { id, card: Arc::clone(card), shown });
        }
        map
    }

    fn shown(&mut self, state: &State, telemetry: &Telemetry, id: CardId, card: &Card) -> Shown {
        let counts = card.extents.counts();
        let mut held: BTreeMap<AllocationId, u64> = BTreeMap::new();
        for extent in card.extents.as_slice() {
            if let Some(owner) = extent.state.owner() {
                *held.entry(owner.allocation).or_default() += u64::from(extent.length.0);
            }
        }
        let mut jobs: BTreeMap<JobId, u64> = BTreeMap::new();
        for (allocation, blocks) in held {
            if let Some(allocation) = state.allocation(allocation) {
                *jobs.entry(allocation.job).or_default() += blocks;
            }
        }
        let most = jobs.iter().max_by_key(|(job, blocks)| (**blocks, std::cmp::Reverse(**job))).map(|(job, _)| *job);
        let queue = most.and_then(|job| state.job(job)).map_or(0, |job| self.queues.place(&job.spec.queue));
        let c = counts;
        Shown {
            model: self.models.place(&card.description.model),
            blocks: [u64::from(card.blocks.0), c.free, c.held, c.running, c.draining, c.lost, c.offline],
            job: most.map_or(0, |job| job.0),
            queue,
            jobs: jobs.len(),
            busy: busy(telemetry, id, card),
        }
    }

    /// Goes on to another state, and to newer readings when they are wanted, too.
    pub(super) fn advance(&mut self, state: &State, telemetry: &Telemetry, measure: bool) -> Step {
        let same_nodes = nodes_of(state).map(|node| node.id).eq(self.nodes.iter().map(|node| node.id));
        let mut places = self.cards.iter().enumerate();
        let mut changed: Vec<(usize, &Arc<Card>)> = Vec::new();
        let same_cards = cards_of(state).all(|(id, card)| {
            let Some((place, row)) = places.next() else { return false };
            if !Arc::ptr_eq(&row.card, card) {
                changed.push((place, card));
            }
            row.id == id
        });
        if !same_nodes || !same_cards || places.next().is_some() {
            *self = Self::of(state, telemetry);
            return Step::Anew;
        }
        self.revision = state.revision().0;
        let known = (self.models.list.len(), self.queues.list.len());
        let mut nodes = Vec::new();
        for (place, node) in nodes_of(state).enumerate() {
            let before = &mut self.nodes[place];
            if Arc::ptr_eq(before, node) {
                continue;
            }
            if (before.state, before.eligibility) != (node.state, node.eligibility) {
                nodes.push(json!([place, state_of(node), eligibility_of(node)]));
            }
            *before = Arc::clone(node);
        }
        let mut rows = Vec::new();
        if measure {
            for (place, row) in self.cards.iter_mut().enumerate() {
                let busy = busy(telemetry, row.id, &row.card);
                if row.shown.busy != busy {
                    row.shown.busy = busy;
                    rows.push(row.shown.row(place));
                }
            }
        }
        for (place, card) in changed {
            let shown = self.shown(state, telemetry, self.cards[place].id, card);
            let row = &mut self.cards[place];
            row.card = Arc::clone(card);
            if row.shown != shown {
                row.shown = shown;
                rows.push(shown.row(place));
            }
        }
        if nodes.is_empty() && rows.is_empty() {
            return Step::Same;
        }
        let (models, queues) = (&self.models.list[known.0..], &self.queues.list[known.1..]);
        let revision = self.revision.to_string();
        let changed =
            json!({ "revision": revision, "nodes": nodes, "cards": rows, "models": models, "queues": queues });
        Step::Changed(changed.to_string())
    }

    /// All of it as JSON, in columns.
    pub(super) fn whole(&self) -> String {
        let mut cards_of = BTreeMap::new();
        for row in &self.cards {
            *cards_of.entry(row.id.node).or_insert(0u32) += 1;
        }
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|node| {
                let cards = cards_of.get(&node.id).copied().unwrap_or(0);
                json!([node.description.name, state_of(node), eligibility_of(node), cards])
            })
            .collect();
        let column = |pick: &dyn Fn(&CardRow) -> u64| self.cards.iter().map(pick).collect::<Vec<u64>>();
        let [offered, free, held, running, draining, lost, offline] =
            std::array::from_fn(|place| column(&|row| row.shown.blocks[place]));
        let whole = json!({
            "revision": self.revision.to_string(),
            "nodes": nodes,
            "models": self.models.list,
            "queues": self.queues.list,
            "cards": {
                "index": column(&|row| u64::from(row.id.index)),
                "model": column(&|row| row.shown.model as u64),
                "offered": offered,
                "free": free,
                "held": held,
                "running": running,
                "draining": draining,
                "lost": lost,
                "offline": offline,
                "job": column(&|row| row.shown.job),
                "queue": column(&|row| row.shown.queue as u64),
                "jobs": column(&|row| row.shown.jobs as u64),
                "busy": column(&|row| row.shown.busy),
            },
        });
        whole.to_string()
    }
}

impl Shown {
    /// As a changed row: its place, then the columns behind `index`, in their order.
    fn row(&self, place: usize) -> Value {
        let [offered, free, held, running, draining, lost, offline] = self.blocks;
        let (model, job, queue, jobs, busy) = (self.model, self.job, self.queue, self.jobs, self.busy);
        json!([place, model, offered, free, held, running, draining, lost, offline, job, queue, jobs, busy])
    }
}
