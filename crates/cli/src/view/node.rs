//! A node as it is shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::v1;

use super::time::{Clock, seconds, text};
use super::{BlocksView, CardView, HostView, words};
use crate::print::{Column, Detail, Page, Tabular};

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeView {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether the pool hears from it.
    pub state: String,
    /// Whether new work may go to it.
    pub eligibility: String,
    /// Why an operator changed that.
    pub eligibility_reason: String,
    /// When what is left on it is suspended, if it is drained by some time.
    pub drain_by: Option<String>,
    /// Number of its cards.
    pub cards: u32,
    /// Its blocks.
    pub blocks: BlocksView,
    /// Pool-wide number of its first block.
    pub first_block: u64,
    /// Jobs with a worker on it.
    pub jobs: Vec<u64>,
    /// What the host offers; unknown when its agent does not say.
    pub host: Option<HostView>,
    /// What its workers hold of that, promises included.
    pub host_used: HostView,
    /// Whether the host ends every process of a worker whose supervisor dies.
    pub contained: bool,
    /// Why it does not.
    pub containment_missing: String,
    /// Workers in a row that could not be started for a reason that lies in the node.
    pub faults: u32,
    /// Names of the data on its disks.
    pub cached: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where members read its logs.
    pub address: String,
    /// How workers of other nodes reach it.
    pub worker_host: String,
    /// Release of its agent.
    pub agent_version: String,
    /// Starts of its agent.
    pub incarnation: u64,
    /// When its state changed last.
    pub changed_at: Option<String>,
    /// Whether its agent has a session with the leader; unknown unless the leader answered.
    pub connected: Option<bool>,
    /// Seconds since its last heartbeat; unknown unless the leader answered.
    pub since_heartbeat_seconds: Option<f64>,
}

impl From<v1::Node> for NodeView {
    fn from(node: v1::Node) -> Self {
        let containment = node.containment.unwrap_or_default();
        Self {
            id: node.id,
            name: node.name,
            state: words::node_state(node.state),
            eligibility: words::eligibility(node.eligibility),
            eligibility_reason: node.eligibility_reason,
            drain_by: text(node.drain_by.as_ref()),
            cards: node.cards,
            blocks: node.blocks.unwrap_or_default().into(),
            first_block: node.first_block_number,
            jobs: node.job_ids,
            host: node.host.map(Into::into),
            host_used: both(node.host_used.unwrap_or_default(), node.host_promised.unwrap_or_default()).into(),
            contained: containment.whole,
            containment_missing: containment.missing,
            faults: node.faults,
            cached: node.cached,
            labels: node.labels,
            address: node.address,
            worker_host: node.worker_host,
            agent_version: node.agent_version,
            incarnation: node.incarnation,
            changed_at: text(node.changed_at.as_ref()),
            connected: node.session.as_ref().map(|session| session.connected),
            since_heartbeat_seconds: seconds(node.session.as_ref().and_then(|of| of.since_heartbeat.as_ref())),
        }
    }
}

fn both(one: v1::HostRequest, other: v1::HostRequest) -> v1::HostRequest {
    v1::HostRequest {
        milli_cpus: one.milli_cpus.saturating_add(other.milli_cpus),
        memory_mib: one.memory_mib.saturating_add(other.memory_mib),
    }
}

impl NodeView {
    /// `3/96 CPUs, 2048/1048576 MiB`.
    fn host_text(&self) -> String {
        let used = &self.host_used;
        match &self.host {
            Some(of) => format!("{}/{} CPUs, {}/{} MiB in use", used.cpus(), of.cpus(), used.memory_mib, of.memory_mib),
            None => "not known".to_owned(),
        }
    }

    /// What its silence means for the work on it.
    fn containment_text(&self) -> String {
        if self.contained {
            return "work ends with its supervisor, whatever it forked".to_owned();
        }
        let why = if self.containment_missing.is_empty() { "its agent did not say" } else { &self.containment_missing };
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
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.state.clone(),
            self.eligibility.clone(),
            self.cards.to_string(),
            self.blocks.total.to_string(),
            self.blocks.free.to_string(),
            self.blocks.running.to_string(),
            self.jobs.len().to_string(),
            self.heartbeat(),
            self.first_block.to_string(),
            self.blocks.lost.to_string(),
            self.blocks.offline.to_string(),
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
        out.state("state", &node.state);
        let why =
            if node.eligibility_reason.is_empty() { String::new() } else { format!(" ({})", node.eligibility_reason) };
        out.line("eligibility", format!("{}{why}", node.eligibility));
        if let Some(by) = &node.drain_by {
            out.line("left by", by);
        }
        out.line("heartbeat", node.heartbeat());
        out.line("since", format!("{} ago", clock.ago(node.changed_at.as_deref())));
        out.line("agent", format!("{}, start {}", node.agent_version, node.incarnation));
        out.line("address", &node.address);
        out.line("worker host", &node.worker_host);
        out.line("host", node.host_text());
        out.line("containment", node.containment_text());
        if node.faults > 0 {
            out.line("failed starts", format!("{} in a row, for reasons of the node", node.faults));
        }
        out.line("cached data", node.cached.join(", "));
        let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
        out.line("jobs", if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") });
        for (key, value) in &node.labels {
            out.line("label", format!("{key}={value}"));
        }
        for card in self.card_list.iter().filter(|card| !card.lack_of_blocks.is_empty()) {
            out.line("note", format!("card {}: {}", card.index, card.lack_of_blocks));
        }
        out.tabular("cards", &self.card_list, clock);
    }

    fn name(&self) -> String {
        self.node.name.clone()
    }
}
