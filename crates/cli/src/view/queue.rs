//! A queue as it is shown.

use serde::Serialize;
use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, text};
use super::words;
use crate::args::idle_text;
use crate::print::{Column, Detail, Page, Tabular};

/// A queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// The queue above it; empty for a top one.
    pub parent: String,
    /// What its jobs can always have.
    pub guaranteed: Option<AmountView>,
    /// What its jobs can have at most.
    pub maximum: Option<AmountView>,
    /// What its jobs hold.
    pub used: AmountView,
    /// What it held on average, the past counting less.
    pub mean_used: AmountView,
    /// What it borrows and has borrowed, for its weight, in percent of the pool; the least goes first.
    pub share_percent: f64,
    /// Its share of what is left over.
    pub weight: u32,
    /// How virtual cards of its jobs are laid over the pool; absent: as the pool says.
    pub packing: Option<String>,
    /// Its jobs that are not over.
    pub jobs: u64,
    /// When its jobs may run; none: at any time.
    pub windows: Vec<String>,
    /// Its windows are closed until then; absent: they are open, or nobody has said yet when they open.
    pub closed_until: Option<String>,
    /// What follows for its jobs that compute next to nothing; absent: what the queue above says.
    pub idle: Option<String>,
    /// Bytes of its jobs' checkpoints, each counted once wherever it lies.
    pub checkpoint_bytes: u64,
    /// What they may take; absent: there is no bound.
    pub checkpoints_mib: Option<u64>,
}

/// An amount of both resources.
pub type AmountView = Shown<v1::QueueAmount>;

impl AmountView {
    /// Its compute, in TFLOPS.
    #[must_use]
    pub fn tflops(&self) -> f64 {
        tflops(self.milli_tflops)
    }

    fn text(amount: Option<&Self>, none: &str) -> String {
        let amount = amount.filter(|of| none.is_empty() || of.milli_tflops > 0 || of.memory_mib > 0);
        amount.map_or_else(|| none.to_owned(), |of| format!("{} TFLOPS, {} MiB", of.tflops(), of.memory_mib))
    }
}

/// Millionths as percent, with two digits.
fn percent(millionths: u64) -> f64 {
    let hundredths = u32::try_from(millionths / 100).unwrap_or(u32::MAX);
    f64::from(hundredths) / 100.0
}

impl From<v1::Queue> for QueueView {
    fn from(queue: v1::Queue) -> Self {
        let settings = queue.settings.unwrap_or_default();
        Self {
            name: settings.name,
            parent: settings.parent,
            guaranteed: settings.guaranteed.map(Into::into),
            maximum: settings.maximum.map(Into::into),
            used: queue.used.map(Into::into).unwrap_or_default(),
            packing: (settings.packing != 0).then(|| words::packing(settings.packing)),
            mean_used: queue.mean_used.map(Into::into).unwrap_or_default(),
            share_percent: percent(queue.share_ppm),
            weight: settings.weight.max(1),
            jobs: queue.jobs,
            windows: settings.windows,
            closed_until: text(queue.closed_until.as_ref()),
            idle: settings.idle.as_ref().map(idle_text),
            checkpoint_bytes: queue.checkpoint_bytes,
            checkpoints_mib: settings.checkpoints_mib,
        }
    }
}

impl Tabular for QueueView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("QUEUE"),
            Column::left("PARENT"),
            Column::right("JOBS"),
            Column::left("USED"),
            Column::left("GUARANTEED"),
            Column::left("MAXIMUM"),
            Column::right("WEIGHT"),
            Column::right("SHARE"),
        ];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![
            self.name.clone(),
            if self.parent.is_empty() { "-".to_owned() } else { self.parent.clone() },
            self.jobs.to_string(),
            AmountView::text(Some(&self.used), ""),
            AmountView::text(self.guaranteed.as_ref(), "nothing"),
            AmountView::text(self.maximum.as_ref(), "the pool"),
            self.weight.to_string(),
            format!("{} %", self.share_percent),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl Detail for QueueView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        out.title(format!("queue {}", self.name));
        out.line("parent", if self.parent.is_empty() { "none" } else { &self.parent });
        out.line("jobs", self.jobs);
        out.line("used", AmountView::text(Some(&self.used), ""));
        out.line("guaranteed", AmountView::text(self.guaranteed.as_ref(), "nothing"));
        out.line("maximum", AmountView::text(self.maximum.as_ref(), "the pool"));
        out.line("weight", self.weight);
        out.line("held on average", AmountView::text(Some(&self.mean_used), ""));
        out.line("borrowed for its weight", format!("{} % of the pool", self.share_percent));
        out.line("packing", self.packing.as_deref().unwrap_or("as the pool says"));
        for window in &self.windows {
            out.line("window", window);
        }
        if let Some(until) = &self.closed_until {
            out.line("closed until", format!("{until}, in {}", clock.until(until)));
        }
        if let Some(ladder) = &self.idle {
            out.line("idle", ladder);
        }
        let most = self.checkpoints_mib.map_or_else(String::new, |most| format!(" of at most {most}"));
        out.line("checkpoints", format!("{:.1}{most} MiB", self.checkpoint_bytes as f64 / f64::from(1 << 20)));
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
