//! A queue as it is shown.

use tessera_api::v1;

use super::job::tflops;
use super::shown::Shown;
use super::time::{Clock, text};
use super::words;
use crate::args::{idle_text, order_text};
use crate::print::{Column, Detail, Page, Tabular};

/// A queue.
pub type QueueView = Shown<v1::Queue>;

/// An amount of both resources, for people.
fn amount(of: Option<v1::QueueAmount>, none: &str) -> String {
    let of = of.filter(|of| none.is_empty() || of.milli_tflops > 0 || of.memory_mib > 0);
    of.map_or_else(|| none.to_owned(), |of| format!("{} TFLOPS, {} MiB", tflops(of.milli_tflops), of.memory_mib))
}

/// Millionths as percent, with two digits.
pub(super) fn percent(millionths: u64) -> f64 {
    let hundredths = u32::try_from(millionths / 100).unwrap_or(u32::MAX);
    f64::from(hundredths) / 100.0
}

impl QueueView {
    /// The settings of the queue; its weight is at least 1.
    #[must_use]
    pub fn set(&self) -> v1::QueueSettings {
        let set = self.settings.clone().unwrap_or_default();
        v1::QueueSettings { weight: set.weight.max(1), ..set }
    }

    /// The amount that it borrows and has borrowed, for its weight, in percent of the pool.
    #[must_use]
    pub fn share_percent(&self) -> f64 {
        percent(self.share_ppm)
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
        let set = self.set();
        vec![
            set.name,
            if set.parent.is_empty() { "-".to_owned() } else { set.parent },
            self.jobs.to_string(),
            amount(Some(self.used.unwrap_or_default()), ""),
            amount(set.guaranteed, "nothing"),
            amount(set.maximum, "the pool"),
            set.weight.to_string(),
            format!("{} %", self.share_percent()),
        ]
    }

    fn name(&self) -> String {
        self.set().name
    }
}

impl Detail for QueueView {
    fn detail(&self, clock: &Clock, out: &mut Page) {
        let set = self.set();
        out.title(format!("queue {}", set.name));
        out.line("parent", if set.parent.is_empty() { "none" } else { &set.parent });
        out.line("jobs", self.jobs);
        out.line("used", amount(Some(self.used.unwrap_or_default()), ""));
        out.line("guaranteed", amount(set.guaranteed, "nothing"));
        out.line("maximum", amount(set.maximum, "the pool"));
        out.line("weight", set.weight);
        out.line("held on average", amount(Some(self.mean_used.unwrap_or_default()), ""));
        out.line("borrowed for its weight", format!("{} % of the pool", self.share_percent()));
        out.line("packing", if set.packing == 0 { "as the pool says".to_owned() } else { words::packing(set.packing) });
        for window in &set.windows {
            out.line("window", window);
        }
        if let Some(until) = text(self.closed_until.as_ref()) {
            out.line("closed until", format!("{until}, in {}", clock.until(until.as_str())));
        }
        if let Some(policy) = &set.idle {
            out.line("idle", idle_text(policy));
        }
        out.line("order", order_text(set.attained.as_ref()));
        let most = set.checkpoints_mib.map_or_else(String::new, |most| format!(" of at most {most}"));
        out.line("checkpoints", format!("{:.1}{most} MiB", self.checkpoint_bytes as f64 / f64::from(1 << 20)));
    }

    fn name(&self) -> String {
        self.set().name
    }
}
