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
    /// Log entries that watches can go back.
    pub event_limit: u64,
    /// First port that workers meet at.
    pub first_master_port: u32,
    /// Number of such ports.
    pub master_ports: u32,
    /// Whether the release level stays as it is although every member can apply a higher one.
    pub hold_level: bool,
}

impl From<v1::PoolConfig> for ConfigView {
    fn from(config: v1::PoolConfig) -> Self {
        let compaction = config.compaction.unwrap_or_default();
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
            event_limit: config.event_limit,
            first_master_port: config.first_master_port,
            master_ports: config.master_ports,
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
        out.line("request ids", format!("kept {}, {ids} at most", time(self.request_retention_seconds)));
        out.line("events", format!("{} entries", self.event_limit));
        let last = self.first_master_port.saturating_add(self.master_ports).saturating_sub(1);
        out.line("release level", if self.hold_level { "held" } else { "raised when every member can apply it" });
        out.line("ports of workers", format!("{} to {last}", self.first_master_port));
    }

    fn name(&self) -> String {
        "pool/config".to_owned()
    }
}
