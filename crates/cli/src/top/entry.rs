//! One row of a list: what it is about, and its cells.

use tessera_api::v1::{CardHealth, Eligibility, JobState, NodeState, QueueAmount, SliceView};

use tessera_diagnostics::shown;

use crate::args::TopTab;
use crate::view::words::{eligibility, health, kind, node_state};
use crate::view::{BlocksView, CardView, Clock, JobView, NodeView, QueueView, busy_share};

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A job by its number.
    Job(u64),
    /// A node by its name.
    Node(String),
    /// A card by its node and its index.
    Card(String, u32),
    /// A queue by its name.
    Queue(String),
}

impl Subject {
    /// The number of a job.
    #[must_use]
    pub const fn job(&self) -> Option<u64> {
        match self {
            Self::Job(number) => Some(*number),
            Self::Node(_) | Self::Card(..) | Self::Queue(_) => None,
        }
    }
}

/// A cell: what is shown, and what it is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub text: String,
    /// The sort key, when it is a number.
    pub number: Option<f64>,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub subject: Subject,
    /// Its cells, one for each column but the bar.
    pub cells: Vec<Cell>,
    /// Its blocks, drawn as a bar.
    pub blocks: Option<BlocksView>,
    /// The cards that a job is on, by node and index.
    pub cards: Vec<(String, u32)>,
    /// True if the row needs attention.
    pub alarming: bool,
}

/// A column of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub title: &'static str,
    /// 0: what is left.
    pub width: u16,
    /// True if the column holds numbers.
    pub right: bool,
}

const fn left(title: &'static str, width: u16) -> Column {
    Column { title, width, right: false }
}

const fn right(title: &'static str, width: u16) -> Column {
    Column { title, width, right: true }
}

/// The column of a job that says what it computes of what it may.
pub const USE: usize = 5;

const JOBS: &[Column] = &[
    right("JOB", 7),
    left("NAME", 14),
    left("QUEUE", 9),
    left("STATE", 10),
    right("BLOCKS", 6),
    right("USE", 5),
    right("RAN", 7),
    left("WHERE OR WHY", 0),
];
const NODES: &[Column] = &[
    left("NODE", 18),
    left("STATE", 9),
    right("CARDS", 5),
    right("FREE", 6),
    right("BLOCKS", 7),
    right("JOBS", 4),
    right("HEARD", 6),
    left("USE", 0),
];
const CARDS: &[Column] = &[
    left("CARD", 20),
    left("KIND", 5),
    left("HEALTH", 9),
    right("FREE", 5),
    right("BLOCKS", 6),
    right("BUSY", 5),
    right("MEMORY", 6),
    left("USE", 0),
];
const QUEUES: &[Column] = &[
    left("QUEUE", 18),
    right("JOBS", 6),
    right("USED TF", 10),
    right("GUARANT.", 9),
    right("MAXIMUM", 9),
    right("WEIGHT", 6),
    left("SHARE", 0),
];

/// The columns of a list; the last of nodes and cards is their bar.
#[must_use]
pub const fn columns(tab: TopTab) -> &'static [Column] {
    match tab {
        TopTab::Jobs => JOBS,
        TopTab::Nodes => NODES,
        TopTab::Cards => CARDS,
        TopTab::Queues => QUEUES,
    }
}

fn words(text: impl Into<String>) -> Cell {
    Cell { text: shown::line(&text.into()).into_owned(), number: None }
}

fn number(value: u64) -> Cell {
    Cell { text: value.to_string(), number: Some(value as f64) }
}

/// A share as percent; unknown ones go below all others.
pub fn percent(share: Option<f64>) -> Cell {
    match share {
        Some(share) => Cell { text: format!("{:.0}%", share * 100.0), number: Some(share) },
        None => Cell { text: "-".to_owned(), number: Some(-1.0) },
    }
}

/// `12s`, or `-`.
fn seconds(value: Option<f64>) -> Cell {
    match value {
        Some(value) => Cell { text: format!("{value:.0}s"), number: Some(value) },
        None => Cell { text: "-".to_owned(), number: Some(f64::INFINITY) },
    }
}

impl Entry {
    /// Returns whether a cell, or the node of a card, contains `text`, in any case.
    #[must_use]
    pub fn has(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.cells.iter().any(|cell| cell.text.to_lowercase().contains(&text))
            || self.cards.iter().any(|(node, _)| node.to_lowercase().contains(&text))
    }

    /// The row of a job. Its use is read separately.
    #[must_use]
    pub fn job(job: &JobView, clock: &Clock) -> Self {
        let used = JobCards::of(job);
        let place = if used.cards.is_empty() || job.is_waiting() { job.why_short() } else { used.nodes() };
        Self {
            subject: Subject::Job(job.id),
            cells: vec![
                number(job.id),
                words(&job.spec.name),
                words(&job.spec.queue),
                words(job.stands()),
                number(used.blocks),
                percent(None),
                Cell {
                    text: clock.between(job.started_at.as_ref(), job.ended_at.as_ref()),
                    number: Some(clock.seconds_between(job.started_at.as_ref(), job.ended_at.as_ref())),
                },
                words(place),
            ],
            blocks: None,
            cards: used.cards,
            alarming: matches!(job.state(), JobState::Failed | JobState::Timeout),
        }
    }

    #[must_use]
    pub fn node(node: &NodeView) -> Self {
        let eligible = node.state() != NodeState::Ready || node.eligibility() == Eligibility::Eligible;
        let state = if eligible { node_state(node.state) } else { eligibility(node.eligibility) };
        let blocks = node.blocks();
        Self {
            subject: Subject::Node(node.name.clone()),
            cells: vec![
                words(&node.name),
                words(state),
                number(node.cards.into()),
                number(blocks.free),
                number(blocks.total()),
                number(node.job_ids.len() as u64),
                seconds(node.since_heartbeat_seconds),
            ],
            blocks: Some(blocks),
            cards: Vec::new(),
            alarming: node.state() == NodeState::Lost
                || node.connected == Some(false)
                || blocks.lost > 0
                || node.faults > 0,
        }
    }

    #[must_use]
    pub fn card(card: &CardView) -> Self {
        let (of, blocks) = (card.of(), card.blocks());
        let memory = card.memory_used_mib as f64 / of.memory_mib.max(1) as f64;
        Self {
            subject: Subject::Card(card.node_name.clone(), of.index),
            cells: vec![
                words(&card.name),
                words(kind(of.kind)),
                words(health(of.health)),
                number(blocks.free),
                number(blocks.total()),
                percent(card.sample.as_ref().and_then(|sample| busy_share(&sample.read))),
                percent(Some(memory)),
            ],
            blocks: Some(blocks),
            cards: Vec::new(),
            alarming: of.health() == CardHealth::Unhealthy || blocks.lost > 0,
        }
    }

    #[must_use]
    pub fn queue(queue: &QueueView) -> Self {
        let tflops = |value: f64| Cell { text: format!("{value:.0}"), number: Some(value) };
        let of = |amount: QueueAmount| tflops(amount.milli_tflops as f64 / 1000.0);
        let or_none = |amount: Option<_>| amount.map_or_else(|| Cell { text: "-".to_owned(), number: Some(-1.0) }, of);
        let (set, share) = (queue.set(), queue.share_percent());
        Self {
            subject: Subject::Queue(set.name.clone()),
            cells: vec![
                words(set.name),
                number(queue.jobs),
                of(queue.used.unwrap_or_default()),
                or_none(set.guaranteed),
                or_none(set.maximum),
                number(set.weight.into()),
                Cell { text: format!("{share}%"), number: Some(share) },
            ],
            blocks: None,
            cards: Vec::new(),
            alarming: false,
        }
    }
}

pub struct JobCards {
    pub blocks: u64,
    pub memory_mib: u64,
    /// The cards, each once, by node and index.
    pub cards: Vec<(String, u32)>,
}

impl JobCards {
    #[must_use]
    pub fn of(job: &JobView) -> Self {
        let workers = job.allocation.iter().flat_map(|allocation| &allocation.workers);
        let slices: Vec<_> =
            workers.flat_map(|of| of.slices.iter().map(|slice| (of.node_name.as_str(), slice))).collect();
        let of = |slice: &SliceView| slice.slice.unwrap_or_default();
        let mut cards: Vec<(String, u32)> =
            slices.iter().map(|(node, slice)| ((*node).to_owned(), of(slice).card_index)).collect();
        cards.sort();
        cards.dedup();
        Self {
            blocks: slices.iter().map(|(_, slice)| slice.last_block_number + 1 - slice.first_block_number).sum(),
            memory_mib: slices.iter().map(|(_, slice)| of(slice).memory_mib).sum(),
            cards,
        }
    }

    /// The nodes, each once: `a, b` or `a, b and 6 more`.
    fn nodes(&self) -> String {
        let mut nodes: Vec<&str> = self.cards.iter().map(|(node, _)| node.as_str()).collect();
        nodes.dedup();
        match nodes.as_slice() {
            [first, second, rest @ ..] if !rest.is_empty() => format!("{first}, {second} and {} more", rest.len()),
            few => few.join(", "),
        }
    }
}
