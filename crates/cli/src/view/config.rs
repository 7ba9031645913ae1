//! The pool's settings as they are shown.

use std::collections::BTreeMap;

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::time::{Clock, seconds};
use super::words;
use crate::print::{Detail, Page};

/// The pool's settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigView {
    /// Size of a block.
    pub block_tflops: f64,
    /// In this precision.
    pub reference_precision: String,
    /// How virtual cards are laid over the pool when neither job nor queue says.
    pub packing: String,
    /// Blocks that cards offer in percent of those that they are rated for, by kind; others 100.
    pub oversubscription: BTreeMap<String, u32>,
    /// After how long past use counts half in fair shares.
    pub fair_share_half_life_seconds: Option<f64>,
    /// Most times that one job is preempted within an hour.
    pub preemptions_per_hour: u32,
    /// Whether jobs are moved without being asked so that free blocks come together.
    pub automatic_compaction: bool,
    /// Share of the free blocks in pieces above which they are, in percent.
    pub compaction_threshold: u32,
    /// Most moves within an hour.
    pub moves_per_hour: u32,
    /// Most jobs that are not over.
    pub job_limit: u64,
    /// How long ended jobs stay.
    pub job_retention_seconds: Option<f64>,
    /// Most ended jobs kept.
    pub ended_job_limit: u64,
    /// How long output is kept.
    pub output_retention_seconds: Option<f64>,
    /// How long answered request ids are remembered.
    pub request_retention_seconds: Option<f64>,
    /// Most request ids remembered.
    pub request_limit: u64,
    /// Answered request ids that are remembered now.
    pub request_ids: u64,
    /// Ids that were made until then are forgotten, and refused; none is while it is absent.
    pub request_floor: Option<String>,
    /// Log entries that watches can go back.
    pub event_limit: u64,
    /// Most events that watches can go back, over all entries.
    pub history_limit: u64,
    /// Most bytes of all jobs, ended ones included.
    pub spec_bytes: u64,
    /// Most queues.
    pub queue_limit: u64,
    /// Most nodes, forgotten ones included.
    pub node_limit: u64,
    /// Most cards of all nodes together.
    pub card_limit: u64,
    /// First port that workers meet at.
    pub first_master_port: u32,
    /// Number of such ports.
    pub master_ports: u32,
    /// How often agents send heartbeats.
    pub lease_heartbeat_seconds: Option<f64>,
    /// Age of a lease at which workers are told to stop.
    pub lease_stop_after_seconds: Option<f64>,
    /// Age of a lease by which workers are killed.
    pub lease_kill_after_seconds: Option<f64>,
    /// Silence after which a node is lost and its blocks are granted again.
    pub lease_regrant_after_seconds: Option<f64>,
    /// The same at present: longer while leases may run that were granted before the timings were changed.
    pub lease_regrant_ceiling_seconds: Option<f64>,
    /// Whether the release level stays as it is although every member can apply a higher one.
    pub hold_level: bool,
}

impl From<v1::GetPoolConfigResponse> for ConfigView {
    fn from(answer: v1::GetPoolConfigResponse) -> Self {
        let config = answer.config.unwrap_or_default();
        let leases = config.leases.unwrap_or_default();
        let (compaction, limits) = (config.compaction.unwrap_or_default(), config.limits.unwrap_or_default());
        Self {
            block_tflops: tflops(config.block_milli_tflops),
            reference_precision: words::precision(config.reference_precision),
            packing: words::packing(config.packing),
            oversubscription: config.oversubscription.iter().map(|of| (words::kind(of.kind), of.percent)).collect(),
            fair_share_half_life_seconds: seconds(config.fair_share_half_life.as_ref()),
            preemptions_per_hour: config.preemptions_per_hour,
            automatic_compaction: compaction.automatic,
            compaction_threshold: compaction.threshold_percent,
            moves_per_hour: compaction.moves_per_hour,
            job_limit: config.job_limit,
            job_retention_seconds: seconds(config.job_retention.as_ref()),
            ended_job_limit: config.ended_job_limit,
            output_retention_seconds: seconds(config.output_retention.as_ref()),
            request_retention_seconds: seconds(config.request_retention.as_ref()),
            request_limit: config.request_limit,
            request_ids: answer.request_ids,
            request_floor: super::time::text(answer.request_floor.as_ref()),
            event_limit: config.event_limit,
            history_limit: limits.events,
            spec_bytes: limits.spec_bytes,
            queue_limit: limits.queues,
            node_limit: limits.nodes,
            card_limit: limits.cards,
            first_master_port: config.first_master_port,
            master_ports: config.master_ports,
            lease_heartbeat_seconds: seconds(leases.heartbeat.as_ref()),
            lease_stop_after_seconds: seconds(leases.stop_after.as_ref()),
            lease_kill_after_seconds: seconds(leases.kill_after.as_ref()),
            lease_regrant_after_seconds: seconds(leases.regrant_after.as_ref()),
            lease_regrant_ceiling_seconds: seconds(answer.regrant_ceiling.as_ref()),
            hold_level: config.hold_level,
        }
    }
}

impl Detail for ConfigView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let time = |seconds: Option<f64>| {
            let time = std::time::Duration::try_from_secs_f64(seconds.unwrap_or_default()).unwrap_or_default();
            humantime::format_duration(time).to_string()
        };
        let kinds: Vec<String> = self.oversubscription.iter().map(|(kind, of)| format!("{kind} {of} %")).collect();
        out.title("settings of the pool".to_owned());
        out.line("block", format!("{} TFLOPS {}", self.block_tflops, self.reference_precision));
        out.line("packing", &self.packing);
        out.line("oversubscription", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") });
        out.line("half-life of use", time(self.fair_share_half_life_seconds));
        out.line("preemptions", format!("{} an hour per job at most", self.preemptions_per_hour));
        let when = if self.automatic_compaction { "automatic" } else { "when asked for" };
        let (threshold, moves) = (self.compaction_threshold, self.moves_per_hour);
        out.line("compaction", format!("{when}, above {threshold} % in pieces, {moves} moves an hour at most"));
        out.line("jobs", format!("{} at most", self.job_limit));
        let ended = self.ended_job_limit;
        out.line("ended jobs", format!("kept {}, {ended} at most", time(self.job_retention_seconds)));
        out.line("output", format!("kept {}", time(self.output_retention_seconds)));
        let ids = self.request_limit;
        let refused = self.request_floor.as_ref().map(|floor| format!("; those made until {floor} are refused"));
        let (kept, refused) = (time(self.request_retention_seconds), refused.unwrap_or_default());
        out.line("request ids", format!("kept {kept}, {ids} at most, {} now{refused}", self.request_ids));
        out.line("events", format!("{} entries, {} events at most", self.event_limit, self.history_limit));
        out.line("bytes of jobs", format!("{} at most", self.spec_bytes));
        let (nodes, cards) = (self.node_limit, self.card_limit);
        out.line("nodes and cards", format!("{nodes} and {cards} at most"));
        out.line("queues", format!("{} at most", self.queue_limit));
        let last = self.first_master_port.saturating_add(self.master_ports).saturating_sub(1);
        out.line("release level", if self.hold_level { "held" } else { "raised when every member can apply it" });
        out.line("ports of workers", format!("{} to {last}", self.first_master_port));
        out.line("heartbeats", format!("every {}", time(self.lease_heartbeat_seconds)));
        let (stop, kill) = (time(self.lease_stop_after_seconds), time(self.lease_kill_after_seconds));
        let regrant = time(self.lease_regrant_after_seconds);
        out.line(
            "leases",
            format!("work stops after {stop}, is killed after {kill}, blocks are granted again after {regrant}"),
        );
        if self.lease_regrant_ceiling_seconds > self.lease_regrant_after_seconds {
            let ceiling = time(self.lease_regrant_ceiling_seconds);
            out.line("longer leases", format!("may run: blocks are granted again after {ceiling} for now"));
        }
    }

    fn name(&self) -> String {
        "pool/config".to_owned()
    }
}
