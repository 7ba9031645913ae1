//! A node as it is shown.

use std::ops::Deref;

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::{BlocksView, CardView, HostView, words};
use crate::print::{Column, Detail, Page, Tabular};

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// The node as the ledger has it.
    #[serde(flatten)]
    pub node: Shown<v1::Node>,
    /// The share of the host that its workers hold, promises included.
    pub host_used: HostView,
    /// Tells whether its agent has a session with the leader; unknown unless the leader answered.
    pub connected: Option<bool>,
    /// Seconds since its last heartbeat; unknown unless the leader answered.
    pub since_heartbeat_seconds: Option<f64>,
}

impl From<v1::Node> for NodeView {
    fn from(node: v1::Node) -> Self {
        let session = node.session.as_ref();
        Self {
            host_used: both(node.host_used.unwrap_or_default(), node.host_promised.unwrap_or_default()).into(),
            connected: session.map(|session| session.connected),
            since_heartbeat_seconds: seconds(session.and_then(|session| session.since_heartbeat.as_ref())),
            node: node.into(),
        }
    }
}

impl Deref for NodeView {
    type Target = v1::Node;

    fn deref(&self) -> &v1::Node {
        &self.node
    }
}

fn both(one: v1::HostRequest, other: v1::HostRequest) -> v1::HostRequest {
    v1::HostRequest {
        milli_cpus: one.milli_cpus.saturating_add(other.milli_cpus),
        memory_mib: one.memory_mib.saturating_add(other.memory_mib),
    }
}

impl NodeView {
    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> BlocksView {
        self.blocks.unwrap_or_default().into()
    }

    /// `3/96 CPUs, 2048/1048576 MiB`.
    fn host_text(&self) -> String {
        let used = &self.host_used;
        match self.host.map(HostView::from) {
            Some(of) => format!("{}/{} CPUs, {}/{} MiB in use", used.cpus(), of.cpus(), used.memory_mib, of.memory_mib),
            None => "not known".to_owned(),
        }
    }

    /// The consequence of its silence for the work on it.
    fn containment_text(&self) -> String {
        let contained = self.containment.clone().unwrap_or_default();
        if contained.whole {
            return "work ends with its supervisor, whatever it forked".to_owned();
        }
        let why = if contained.missing.is_empty() { "its agent did not say" } else { &contained.missing };
        format!("what workers fork may outlive them; blocks of this node wait for its return or an operator ({why})")
    }

    fn heartbeat(&self) -> String {
        match (self.connected, self.since_heartbeat_seconds) {
            (_, Some(seconds)) => format!("{seconds:.1}s ago"),
            (Some(false), None) => "no session".to_owned(),
            _ => "-".to_owned(),
        }
    }
}

impl Tabular for NodeView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::right("ID"),
            Column::left("NODE"),
            Column::state("STATE"),
            Column::state("ELIGIBILITY"),
            Column::right("CARDS"),
            Column::right("BLOCKS"),
            Column::right("FREE"),
            Column::right("RUNNING"),
            Column::right("JOBS"),
            Column::right("HEARTBEAT"),
            Column::wide("FIRST"),
            Column::wide("LOST"),
            Column::wide("OFFLINE"),
            Column::wide("ADDRESS"),
            Column::wide("VERSION"),
            Column::wide("LABELS"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        let blocks = self.blocks();
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        vec![
            self.id.to_string(),
            self.name.clone(),
            words::node_state(self.state),
            words::eligibility(self.eligibility),
            self.cards.to_string(),
            blocks.total().to_string(),
            blocks.free.to_string(),
            blocks.running.to_string(),
            self.job_ids.len().to_string(),
            self.heartbeat(),
            self.first_block_number.to_string(),
            blocks.lost.to_string(),
            blocks.offline.to_string(),
            self.address.clone(),
            self.agent_version.clone(),
            labels.join(","),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// A node with its cards.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeDetailView {
    /// The node.
    #[serde(flatten)]
    pub node: NodeView,
    /// Its cards.
    pub card_list: Vec<CardView>,
}

impl From<v1::GetNodeResponse> for NodeDetailView {
    fn from(response: v1::GetNodeResponse) -> Self {
        Self {
            node: response.node.unwrap_or_default().into(),
            card_list: response.cards.into_iter().map(Into::into).collect(),
        }
    }
}

impl Detail for NodeDetailView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        let node = &self.node;
        out.title(format!("node {}", node.name));
        out.line("number", node.id);
        out.state("state", &words::node_state(node.state));
        let why =
            if node.eligibility_reason.is_empty() { String::new() } else { format!(" ({})", node.eligibility_reason) };
        out.line("eligibility", format!("{}{why}", words::eligibility(node.eligibility)));
        if let Some(by) = text(node.drain_by.as_ref()) {
            out.line("left by", by);
        }
        out.line("heartbeat", node.heartbeat());
        out.line("since", format!("{} ago", clock.ago(node.changed_at.as_ref())));
        out.line("agent", format!("{}, start {}", node.agent_version, node.incarnation));
        out.line("address", &node.address);
        out.line("worker host", &node.worker_host);
        out.line("host", node.host_text());
        out.line("containment", node.containment_text());
        if node.faults > 0 {
            out.line("failed starts", format!("{} in a row, for reasons of the node", node.faults));
        }
        out.line("cached data", node.cached.join(", "));
        let jobs: Vec<String> = node.job_ids.iter().map(ToString::to_string).collect();
        out.line("jobs", if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") });
        for (key, value) in &node.labels {
            out.line("label", format!("{key}={value}"));
        }
        for card in self.card_list.iter().filter(|card| !card.lack_of_blocks.is_empty()) {
            out.line("note", format!("card {}: {}", card.of().index, card.lack_of_blocks));
        }
        out.tabular("cards", &self.card_list, clock);
    }

    fn name(&self) -> String {
        self.node.name.clone()
    }
}
