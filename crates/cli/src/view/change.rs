//! The messages of watches, as they are shown: one object per message, with its kind.

use serde::Serialize;
use tessera_api::v1::{JobEvent, PoolEvent, job_event, pool_event};
use tessera_client::watch::{ListedPart, Update};

use super::checkpoint::name_of;
use super::time::{Clock, text};
use super::{CardView, JobView, NodeView, words};
use crate::print::{Column, Tabular};

/// One message of a watch of jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobUpdateView {
    /// A job of the list at the beginning.
    Listed {
        /// The job.
        job: Box<JobView>,
    },
    /// The list is complete.
    Synced {
        /// Up to this revision.
        revision: u64,
    },
    /// The list begins anew: forget what was listed.
    Relisting {
        /// True if the events in between are forgotten.
        compacted: bool,
    },
    /// Nothing up to this revision concerns the watch.
    Progress {
        /// The revision.
        revision: u64,
    },
    /// A change.
    Event(Box<JobChangeView>),
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobChangeView {
    /// The log entry.
    pub revision: u64,
    /// Its place in the entry.
    pub ordinal: u32,
    /// The time of the change.
    pub time: Option<String>,
    /// The job.
    pub job_id: u64,
    /// The kind of the change: `state`, `worker`, `released`, `move`, `quarantined` or `removed`.
    pub change: String,
    /// State before.
    pub from: Option<String>,
    /// State now, of the job or of the worker.
    pub to: Option<String>,
    /// Code of the reason.
    pub reason: Option<String>,
    /// For people.
    pub sentence: String,
    /// The allocation concerned.
    pub allocation_id: Option<u64>,
    /// The worker concerned.
    pub rank: Option<u32>,
    /// The nodes concerned.
    pub nodes: Vec<String>,
}

impl From<Update<Box<tessera_api::v1::Job>, JobEvent>> for JobUpdateView {
    fn from(update: Update<Box<tessera_api::v1::Job>, JobEvent>) -> Self {
        match update {
            Update::Listed(job) => Self::Listed { job: Box::new((*job).into()) },
            Update::Synced { revision } => Self::Synced { revision },
            Update::Event(event) => Self::Event(Box::new(event.into())),
            Update::Progress { revision } => Self::Progress { revision },
            Update::Relisting { compacted } => Self::Relisting { compacted },
        }
    }
}

impl From<JobEvent> for JobChangeView {
    fn from(event: JobEvent) -> Self {
        let mut view = Self {
            revision: event.revision,
            ordinal: event.ordinal,
            time: text(event.time.as_ref()),
            job_id: event.job_id,
            change: String::new(),
            from: None,
            to: None,
            reason: None,
            sentence: String::new(),
            allocation_id: None,
            rank: None,
            nodes: Vec::new(),
        };
        view.fill(event.change);
        view
    }
}

impl JobChangeView {
    fn fill(&mut self, change: Option<job_event::Change>) {
        use job_event::Change;
        match change {
            Some(Change::State(state)) => {
                "state".clone_into(&mut self.change);
                self.from = (state.from != 0).then(|| words::job_state(state.from));
                self.to = Some(words::job_state(state.to));
                let reason = state.reason.unwrap_or_default();
                self.reason = Some(reason.code);
                self.sentence = reason.sentence;
                self.allocation_id = state.allocation_id;
                self.nodes = state.nodes;
            }
            Some(Change::Worker(worker)) => {
                "worker".clone_into(&mut self.change);
                let state = words::worker_state(worker.state);
                self.sentence = format!("worker {} on {} is {state}", worker.rank, worker.node_name);
                self.to = Some(state);
                self.about(worker.allocation_id, worker.rank, worker.node_name);
            }
            Some(Change::Released(released)) => {
                "released".clone_into(&mut self.change);
                self.sentence = format!("allocation {} gave its blocks back", released.allocation_id);
                self.allocation_id = Some(released.allocation_id);
            }
            Some(Change::Move(of)) => {
                "move".clone_into(&mut self.change);
                let how = if of.in_progress { "goes on" } else { "ended" };
                self.sentence = format!("move {} {how}", of.move_id);
            }
            Some(Change::Quarantined(worker)) => {
                "quarantined".clone_into(&mut self.change);
                self.sentence = format!(
                    "the stop of worker {} on {} could not be confirmed; its blocks are quarantined: {}",
                    worker.rank, worker.node_name, worker.message
                );
                self.about(worker.allocation_id, worker.rank, worker.node_name);
            }
            Some(Change::Skipped(skipped)) => {
                "skipped".clone_into(&mut self.change);
                let name = name_of(skipped.attempt, skipped.sequence);
                let left = match skipped.newest_left_attempt {
                    0 => "the job begins anew".to_owned(),
                    attempt => format!("the job goes on from {}", name_of(attempt, skipped.newest_left_sequence)),
                };
                self.sentence = format!("checkpoint {name} is passed over, {left}: {}", skipped.message);
            }
            Some(Change::Removed(_)) => {
                "removed".clone_into(&mut self.change);
                "it has left the ledger".clone_into(&mut self.sentence);
            }
            None => "unknown".clone_into(&mut self.change),
        }
    }

    fn about(&mut self, allocation: u64, rank: u32, node: String) {
        self.allocation_id = Some(allocation);
        self.rank = Some(rank);
        self.nodes = vec![node];
    }
}

/// One message of a watch of the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PoolUpdateView {
    /// A node of the list at the beginning.
    ListedNode {
        /// The node.
        node: Box<NodeView>,
    },
    /// A card of the list at the beginning.
    ListedCard {
        /// The card.
        card: Box<CardView>,
    },
    /// The list is complete.
    Synced {
        /// Up to this revision.
        revision: u64,
    },
    /// The list begins anew: forget what was listed.
    Relisting {
        /// True if the events in between are forgotten.
        compacted: bool,
    },
    /// Nothing up to this revision concerns the watch.
    Progress {
        /// The revision.
        revision: u64,
    },
    /// A change.
    Event(PoolChangeView),
}

/// A change of the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolChangeView {
    /// The log entry.
    pub revision: u64,
    /// Its place in the entry.
    pub ordinal: u32,
    /// The time of the change.
    pub time: Option<String>,
    /// The kind of object that changed: `node`, `card`, `queue` or `config`.
    pub change: String,
    /// Name of what changed.
    pub name: String,
    /// For people.
    pub sentence: String,
}

impl From<Update<ListedPart, PoolEvent>> for PoolUpdateView {
    fn from(update: Update<ListedPart, PoolEvent>) -> Self {
        match update {
            Update::Listed(ListedPart::Node(node)) => Self::ListedNode { node: Box::new((*node).into()) },
            Update::Listed(ListedPart::Card(card)) => Self::ListedCard { card: Box::new((*card).into()) },
            Update::Synced { revision } => Self::Synced { revision },
            Update::Event(event) => Self::Event(event.into()),
            Update::Progress { revision } => Self::Progress { revision },
            Update::Relisting { compacted } => Self::Relisting { compacted },
        }
    }
}

impl From<PoolEvent> for PoolChangeView {
    fn from(event: PoolEvent) -> Self {
        use pool_event::Change;
        let (change, name, sentence) = match event.change {
            Some(Change::Node(node)) => {
                let stands = words::node_state(node.state);
                ("node", node.node_name, format!("it is {stands} and {}", words::eligibility(node.eligibility)))
            }
            Some(Change::Card(card)) => {
                ("card", format!("{}/{}", card.node_name, card.card_index), "it was declared or changed".to_owned())
            }
            Some(Change::Queue(queue)) => ("queue", queue.queue, "it was set or removed".to_owned()),
            Some(Change::Config(_)) => ("config", "pool".to_owned(), "the settings changed".to_owned()),
            None => ("unknown", String::new(), String::new()),
        };
        Self {
            revision: event.revision,
            ordinal: event.ordinal,
            time: text(event.time.as_ref()),
            change: change.to_owned(),
            name,
            sentence,
        }
    }
}

impl Tabular for JobChangeView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("TIME"),
            Column::right("JOB"),
            Column::left("CHANGE"),
            Column::state("TO"),
            Column::left("REASON"),
            Column::left("WHAT"),
            Column::wide("REVISION"),
            Column::wide("NODES"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![
            self.time.clone().unwrap_or_default(),
            self.job_id.to_string(),
            self.change.clone(),
            self.to.clone().unwrap_or_else(|| "-".to_owned()),
            self.reason.clone().unwrap_or_else(|| "-".to_owned()),
            self.sentence.clone(),
            format!("{}.{}", self.revision, self.ordinal),
            self.nodes.join(","),
        ]
    }

    fn name(&self) -> String {
        format!("job/{}", self.job_id)
    }
}

impl Tabular for PoolChangeView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] =
            &[Column::left("TIME"), Column::left("CHANGE"), Column::left("NAME"), Column::left("WHAT")];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![self.time.clone().unwrap_or_default(), self.change.clone(), self.name.clone(), self.sentence.clone()]
    }

    fn name(&self) -> String {
        format!("{}/{}", self.change, self.name)
    }
}
