//! A job as a page for people.

use tessera_api::v1::{self, Access};

use super::checkpoint::CheckpointView;
use super::job::{JobView, exit_of, exit_text, from_of, master_of, slices, tflops};
use super::time::Clock;
use super::used::{mebibytes, share};
use super::wishes::affinity_text;
use super::{HostView, UseView, words};
use crate::print::{Detail, Page, Tabular as _};

impl Detail for JobView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("job {}", self.id));
        out.line("name", &self.spec.name);
        out.state("state", &self.stands());
        let why = self.why();
        out.line("reason", format!("{} ({})", why.sentence, why.code));
        out.line("waits for", self.waits_for.as_deref().unwrap_or_default());
        out.line("queue", &self.spec.queue);
        out.line("submitter", &self.submitter);
        out.line(
            "priority",
            format!("{}{}", self.spec.priority(), if self.spec.preemptible() { "" } else { ", not preemptible" }),
        );
        out.line("command", self.spec.command.join(" "));
        out.line("gang", self.gang_text());
        out.line("virtual card", self.card_text());
        out.line("host", self.spec.host.map(HostView::from).unwrap_or_default().text());
        out.line("affinity", self.spec.affinity.as_ref().map(affinity_text).unwrap_or_default());
        if self.spec.packing != 0 {
            out.line("packing", words::packing(self.spec.packing));
        }
        let mode = self.spec.checkpoint.as_ref().map_or(0, |policy| policy.mode);
        out.line("suspension", words::checkpoint_mode(mode));
        for (name, value) in self.spec.other_lines() {
            out.line(&name, value);
        }
        out.line("submitted", format!("{} ago", clock.ago(self.submitted_at.as_ref())));
        out.line("ran", clock.between(self.started_at.as_ref(), self.ended_at.as_ref()));
        out.line("exit", self.history.last().map_or_else(|| exit_text(None, None), exit_of));
        out.line("trace", self.trace_id());
        for (key, value) in &self.spec.labels {
            out.line("label", format!("{key}={value}"));
        }
        if let Some(of) = &self.r#move {
            out.line("move", format!("{} for {}", words::move_phase(of.phase), clock.ago(of.started_at.as_ref())));
        }
        if let Some(attained) = &self.attained {
            out.line("has had", attained_text(attained));
        }
        if let Some(idle) = &self.idle {
            out.line("idle", format!("for {}, {}", clock.ago(idle.since.as_ref()), words::idle_step(idle.step)));
        }
        if let Some(used) = &self.used {
            out.line("use", used.text());
        }
        if let Some(allocation) = &self.allocation {
            holds(allocation, out);
        }
        if let Some(used) = self.used.as_ref().filter(|used| !used.by_worker.is_empty()) {
            uses(used, out);
        }
        if !self.history.is_empty() {
            attempts(&self.history, clock, out);
        }
        if !self.checkpoints.is_empty() {
            checkpoints(&self.checkpoints(), clock, out);
        }
    }

    fn name(&self) -> String {
        format!("job/{}", self.id)
    }
}

/// Writes the service that a job had, and its standing by that.
fn attained_text(attained: &v1::AttainedService) -> String {
    let service = attained.service.and_then(|time| std::time::Duration::try_from(time).ok()).unwrap_or_default();
    let service = humantime::format_duration(std::time::Duration::from_secs(service.as_secs()));
    let guarded = if attained.guarded { ", one of the oldest of its queue" } else { "" };
    format!("{service} of a card, band {}{guarded}", attained.band)
}

impl JobView {
    /// The id under which collectors have its trace; empty when it has none.
    fn trace_id(&self) -> &str {
        self.traceparent.split('-').nth(1).unwrap_or_default()
    }

    fn gang_text(&self) -> String {
        let (least, most) = (self.spec.gang_min(), self.spec.gang);
        if least < most { format!("{least} to {most}") } else { most.to_string() }
    }

    fn card_text(&self) -> String {
        let card = self.card();
        let mix = if card.mixed { ", kinds may mix" } else { "" };
        let whole = if card.whole_cards { ", whole cards" } else { "" };
        let elastic = if card.elastic { ", elastic" } else { "" };
        let device = match card.access() {
            Access::Unspecified | Access::Worker => "",
            Access::Device => ", as one device",
            Access::Remote => ", as one device of a program elsewhere",
        };
        let least = match card.slice_memory_mib {
            0 => String::new(),
            least => format!(", at least {least} MiB on each card"),
        };
        let kinds: Vec<String> = card.kinds.iter().map(|kind| words::kind(*kind)).collect();
        let kinds = if kinds.is_empty() { "any kind".to_owned() } else { kinds.join(", ") };
        let precision = match card.precision {
            0 => String::new(),
            said => format!(" {}", words::precision(said)),
        };
        let (compute, memory, span) = (tflops(card.milli_tflops), card.memory_mib, words::span(card.span));
        format!("{compute} TFLOPS{precision}, {memory} MiB, span {span}, {kinds}{mix}{whole}{least}{device}{elastic}")
    }
}

/// The program and the slices of a worker.
fn held(worker: &v1::Worker, some_only_serve: bool) -> String {
    let program = (some_only_serve && !worker.only_serves).then(|| "program".to_owned());
    let slices = Some(slices(worker)).filter(|slices| !slices.is_empty());
    program.into_iter().chain(slices).collect::<Vec<_>>().join(" + ")
}

fn holds(allocation: &v1::Allocation, out: &mut Page) {
    let phase = words::allocation_phase(allocation.phase);
    out.title(format!("allocation {} (epoch {}, {phase})", allocation.id, allocation.epoch));
    out.line("rank 0 at", master_of(allocation));
    let some_only_serve = allocation.workers.iter().any(|worker| worker.only_serves);
    out.table(
        &["RANK", "CARD", "NODE", "STATE", "SLICES"],
        allocation.workers.iter().map(|worker| {
            vec![
                worker.rank.to_string(),
                worker.member.to_string(),
                worker.node_name.clone(),
                words::worker_state(worker.state),
                held(worker, some_only_serve),
            ]
        }),
    );
}

fn uses(used: &UseView, out: &mut Page) {
    out.title("use".to_owned());
    let slices = used.by_worker.iter().flat_map(|worker| worker.slices.iter().map(move |slice| (worker, slice)));
    out.table(
        &["RANK", "NODE", "CARD", "BLOCKS", "USE", "IN USE", "OF", "CPUS", "HOST MEMORY"],
        slices.map(|(worker, slice)| {
            vec![
                worker.rank.to_string(),
                worker.node_name.clone(),
                slice.card_index.to_string(),
                slice.blocks.to_string(),
                share(slice.utilization_ratio),
                format!("{} MiB", mebibytes(slice.memory_used_bytes)),
                format!("{} MiB", mebibytes(slice.memory_held_bytes)),
                format!("{:.1}", worker.processors),
                format!("{} MiB", mebibytes(worker.host_memory_bytes)),
            ]
        }),
    );
}

fn attempts(history: &[v1::Attempt], clock: &Clock, out: &mut Page) {
    out.title("attempts".to_owned());
    out.table(
        &["TRY", "GRANTED", "RAN", "BLOCKS", "FROM", "SAVED", "LOST", "EXIT", "REASON"],
        history.iter().map(|attempt| {
            vec![
                attempt.number.to_string(),
                format!("{} ago", clock.ago(attempt.granted_at.as_ref())),
                clock.between(attempt.started_at.as_ref(), attempt.ended_at.as_ref()),
                attempt.blocks.to_string(),
                from_of(attempt).unwrap_or_else(|| "-".to_owned()),
                if attempt.saved_as == 0 { "-".to_owned() } else { words::checkpoint_mode(attempt.saved_as) },
                lost_text(attempt.lost_seconds),
                exit_of(attempt),
                attempt.reason.as_ref().map(|reason| reason.sentence.clone()).unwrap_or_default(),
            ]
        }),
    );
    lost_words(history, out);
}

/// The reasons for which attempts were not saved, or did not resume from the newest checkpoint.
fn lost_words(history: &[v1::Attempt], out: &mut Page) {
    for attempt in history {
        out.line(&format!("attempt {} not saved", attempt.number), &attempt.not_saved);
        out.line(&format!("attempt {} passed over a checkpoint", attempt.number), &attempt.passed_over);
    }
}

/// Time that was computed and is gone.
fn lost_text(seconds: f64) -> String {
    if seconds < 0.5 { "-".to_owned() } else { format!("{seconds:.0} s") }
}

fn checkpoints(checkpoints: &[CheckpointView], clock: &Clock, out: &mut Page) {
    out.title("checkpoints".to_owned());
    out.table(
        &["CHECKPOINT", "AGE", "PROGRESS", "MIB", "AVAILABLE", "KEPT BY"],
        checkpoints.iter().map(|checkpoint| checkpoint.cells(clock)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_has_had_is_time_of_a_card_with_its_band() {
        let service = Some(prost_types::Duration { seconds: 5_400, nanos: 250_000_000 });
        let mut attained = v1::AttainedService { service, band: 2, guarded: false };
        assert_eq!(attained_text(&attained), "1h 30m of a card, band 2");
        attained.guarded = true;
        assert_eq!(attained_text(&attained), "1h 30m of a card, band 2, one of the oldest of its queue");
    }
}
