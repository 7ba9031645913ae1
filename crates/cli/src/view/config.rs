//! The pool's settings as they are shown.

use std::collections::BTreeMap;

use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, seconds, text};
use super::words;
use crate::print::{Detail, Page};

/// The pool's settings.
pub type ConfigView = Shown<v1::GetPoolConfigResponse>;

/// Size of a block, and in which precision.
pub(super) fn block_text(config: &v1::PoolConfig) -> String {
    format!("{} TFLOPS {}", tflops(config.block_milli_tflops), words::precision(config.reference_precision))
}

impl Detail for ConfigView {
    fn detail(&self, _: &Clock, out: &mut Page) {
        let time = |of: Option<prost_types::Duration>| {
            let seconds = seconds(of.as_ref()).unwrap_or_default();
            humantime::format_duration(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default()).to_string()
        };
        let config = self.config.clone().unwrap_or_default();
        let (compaction, limits) = (config.compaction.unwrap_or_default(), config.limits.unwrap_or_default());
        let leases = config.leases.unwrap_or_default();
        let kinds = config.oversubscription.iter().map(|of| (words::kind(of.kind), of.percent));
        let kinds: BTreeMap<String, u32> = kinds.collect();
        let kinds: Vec<String> = kinds.iter().map(|(kind, of)| format!("{kind} {of} %")).collect();
        out.title("settings of the pool".to_owned());
        out.line("block", block_text(&config));
        out.line("packing", words::packing(config.packing));
        out.line("oversubscription", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") });
        out.line("half-life of use", time(config.fair_share_half_life));
        out.line("preemptions", format!("{} an hour per job at most", config.preemptions_per_hour));
        let when = if compaction.automatic { "automatic" } else { "when asked for" };
        let (threshold, moves) = (compaction.threshold_percent, compaction.moves_per_hour);
        out.line("compaction", format!("{when}, above {threshold} % in pieces, {moves} moves an hour at most"));
        out.line("jobs", format!("{} at most", config.job_limit));
        let ended = config.ended_job_limit;
        out.line("ended jobs", format!("kept {}, {ended} at most", time(config.job_retention)));
        out.line("output", format!("kept {}", time(config.output_retention)));
        let ids = config.request_limit;
        let refused = text(self.request_floor.as_ref()).map(|floor| format!("; those made until {floor} are refused"));
        let (kept, refused) = (time(config.request_retention), refused.unwrap_or_default());
        out.line("request ids", format!("kept {kept}, {ids} at most, {} now{refused}", self.request_ids));
        out.line("events", format!("{} entries, {} events at most", config.event_limit, limits.events));
        out.line("bytes of jobs", format!("{} at most", limits.spec_bytes));
        let (nodes, cards) = (limits.nodes, limits.cards);
        out.line("nodes and cards", format!("{nodes} and {cards} at most"));
        out.line("queues", format!("{} at most", limits.queues));
        let last = config.first_master_port.saturating_add(config.master_ports).saturating_sub(1);
        out.line("release level", if config.hold_level { "held" } else { "raised when every member can apply it" });
        out.line("ports of workers", format!("{} to {last}", config.first_master_port));
        out.line("heartbeats", format!("every {}", time(leases.heartbeat)));
        let (stop, kill) = (time(leases.stop_after), time(leases.kill_after));
        let regrant = time(leases.regrant_after);
        out.line(
            "leases",
            format!("work stops after {stop}, is killed after {kill}, blocks are granted again after {regrant}"),
        );
        if seconds(self.regrant_ceiling.as_ref()) > seconds(leases.regrant_after.as_ref()) {
            let ceiling = time(self.regrant_ceiling);
            out.line("longer leases", format!("may run: blocks are granted again after {ceiling} for now"));
        }
    }

    fn name(&self) -> String {
        "pool/config".to_owned()
    }
}
